import Crypto
import FoundationEssentials

/// A pin of a server: a certificate of its chain, or the public key of one.
public struct CertificatePin: Sendable, Hashable {
    private enum Kind: Hashable {
        case certificate(X509Certificate)
        case publicKey(sha256: [UInt8])
    }
    private let kind: Kind

    /// Pins a whole certificate. A renewed certificate for the same key does not match.
    public init(_ certificate: X509Certificate) { kind = .certificate(certificate) }

    /// Reads the pin of a public key as RFC 7469, section 2.4, and curl write it: `sha256/`, or `sha256//`, and the
    /// base64 of the SHA-256 hash of the DER `SubjectPublicKeyInfo`.
    ///
    /// - Throws: `configurationInvalid` for an invalid pin. It is never ignored.
    public init(publicKey text: String) throws(ProviderError) {
        // A slash is a digit of base64 as well, and each 64th digest begins with one.
        let digests = ["sha256//", "sha256/"].filter(text.hasPrefix)
            .compactMap { Data(base64Encoded: String(text.dropFirst($0.count))) }
        guard let digest = digests.first(where: { $0.count == SHA256.byteCount }) else {
            throw ProviderError(
                .configurationInvalid,
                "'\(text.withVisibleControls)' is not a valid pin: expected sha256/ and 44 base64 characters.")
        }
        kind = .publicKey(sha256: Array(digest))
    }

    /// Reads pins: `sha256/…` for a public key, or the path of a PEM or DER file with the certificates to pin. Blocks
    /// on that file.
    ///
    /// - Throws: `configurationInvalid`; `fileNotFound` or `malformedData` for the file.
    package static func read(_ text: String) throws(ProviderError) -> [CertificatePin] {
        if text.hasPrefix("sha256/") { return [try CertificatePin(publicKey: text)] }
        do throws(ProviderError) { return try CertificateFile.read(text).map { CertificatePin($0) } } catch {
            // The user may have taken the pin for a PIN, and written one here instead of a file's name.
            guard error.code == .fileNotFound, !text.contains(where: { "/.".contains($0) }) else { throw error }
            throw ProviderError(
                .configurationInvalid,
                "The value (not shown, as it may be a PIN) is not a valid pin: expected sha256/ and 44 base64 "
                    + "characters, or the path of a certificate file. A token's PIN belongs in 'pin-source'.")
        }
    }

    /// Reads pins of public keys, separated by commas, each as ``init(publicKey:)`` does.
    package static func keys(_ list: String) throws(ProviderError) -> [CertificatePin] {
        try list.split(separator: ",", omittingEmptySubsequences: false).map { text throws(ProviderError) in
            try CertificatePin(publicKey: String(text).trimmed)
        }
    }

    /// Returns the pin of a certificate's public key, in the form that ``init(publicKey:)`` reads.
    package static func publicKeyText(of certificate: X509Certificate) -> String {
        "sha256/" + Data(SHA256.hash(data: certificate.publicKey.derRepresentation)).base64EncodedString()
    }

    /// Whether the pin matches `certificate`.
    package func matches(_ certificate: X509Certificate) -> Bool {
        switch kind {
        case .certificate(let pinned): pinned == certificate
        case .publicKey(let digest):
            SHA256.hash(data: certificate.publicKey.derRepresentation).elementsEqual(digest)
        }
    }
}

extension [CertificatePin] {
    /// Whether one of the pins matches a peer. An empty list matches each peer, but none where a pin alone authenticates.
    ///
    /// - Parameters:
    ///   - chain: Leaf first.
    ///   - isPinOnly: Whether a pin alone authenticates the peer. It must be that of the leaf then: the handshake does not prove that the
    ///     peer has the keys of the other certificates. Otherwise the chain is one that was verified.
    package func match(_ chain: [X509Certificate], isPinOnly: Bool) -> Bool {
        if isEmpty { return !isPinOnly }
        return (isPinOnly ? chain.prefix(1) : chain[...]).contains { one in contains { $0.matches(one) } }
    }
}
