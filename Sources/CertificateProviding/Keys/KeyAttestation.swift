/// The ability of an ``IdentityKey`` to prove where it lives.
public protocol KeyAttesting: Sendable {
    /// Returns a statement about the key, which a verifier checks without trust in this host.
    ///
    /// Suspends: a TPM needs up to a second, and the first call may ask an attestation CA for a certificate.
    ///
    /// - Parameter data: 32 bytes that the statement covers, such as the hash of a server's challenge.
    /// - Throws: `malformedData` for data of another length, or an error of the key store.
    func attestation(of data: [UInt8]) async throws(ProviderError) -> KeyAttestation
}

extension KeyAttesting {
    /// Checks the argument of ``attestation(of:)``.
    ///
    /// - Throws: `malformedData` for data of another length than 32 bytes.
    public func requireAttestable(_ data: [UInt8]) throws(ProviderError) {
        guard data.count == KeyAttestation.dataSize else {
            throw ProviderError(
                .malformedData,
                "An attestation covers \(KeyAttestation.dataSize) bytes, and not \(data.count); hash the data with SHA-256."
            )
        }
    }
}

/// A statement about where a private key lives, in the terms of WebAuthn (W3C, section 8).
public struct KeyAttestation: Sendable, Hashable {
    /// The kind of a statement, by its name in the WebAuthn registry (RFC 8809), such as `tpm`. Open: a key store may have its own.
    public struct Format: RawRepresentable, Hashable, Sendable {
        public let rawValue: String
        public init(rawValue: String) { self.rawValue = rawValue }

        /// A TPM 2.0 certifies one of its keys by another (WebAuthn, section 8.3). The fields are ``KeyAttestation/certInfo`` and
        /// ``KeyAttestation/pubArea``.
        public static let tpm = Self(rawValue: "tpm")
    }

    /// The kind of the statement.
    public let format: Format
    /// The signature algorithm, by its number in the COSE registry: -7 is ECDSA with SHA-256, -257 RSASSA-PKCS1-v1_5 with SHA-256.
    public let algorithm: Int
    /// The certificate of the attestation key first, each followed by its issuer.
    public let chain: [X509Certificate]
    /// By the attestation key; DER for ECDSA, the raw octets otherwise.
    public let signature: [UInt8]
    /// Further fields of the format, by name.
    public let fields: [String: [UInt8]]

    /// Creates a statement. ``check(for:of:)`` checks it.
    public init(
        format: Format, algorithm: Int, chain: [X509Certificate], signature: [UInt8], fields: [String: [UInt8]]
    ) {
        (self.format, self.algorithm, self.chain) = (format, algorithm, chain)
        (self.signature, self.fields) = (signature, fields)
    }

    /// Creates a statement of a TPM.
    ///
    /// - Parameters:
    ///   - certInfo: `TPMS_ATTEST`, as the TPM has signed it.
    ///   - pubArea: `TPMT_PUBLIC` of the key.
    public init(
        tpm certInfo: [UInt8], pubArea: [UInt8], algorithm: Int, chain: [X509Certificate], signature: [UInt8]
    ) {
        self.init(
            format: .tpm, algorithm: algorithm, chain: chain, signature: signature,
            fields: ["certInfo": certInfo, "pubArea": pubArea])
    }

    /// `TPMS_ATTEST` of a TPM's statement; empty for another format.
    public var certInfo: [UInt8] { fields["certInfo"] ?? [] }
    /// `TPMT_PUBLIC` of a TPM's statement; empty for another format.
    public var pubArea: [UInt8] { fields["pubArea"] ?? [] }

    /// The number of bytes that a statement covers.
    public static let dataSize = 32
}
