/// The private key of an identity: it signs, wherever it lives.
///
/// A key need not be in memory: see ``exporter``.
public protocol IdentityKey: Sendable {
    var publicKey: PublicKeyInfo { get }

    /// What the key can really do, most preferred first.
    var signatureSchemes: [SignatureScheme] { get }

    var location: KeyLocation { get }

    /// The key's RFC 7512 URI without any PIN, where it has one.
    var uri: String? { get }

    /// How long a signature may take before ``signature(for:using:)`` gives up with `timedOut`; nil for a key in memory
    /// and for one that sets no limit. A TLS handshake waits for the key that long, and does not count it as the peer's
    /// time.
    var signatureTimeout: Duration? { get }

    /// Signs `message`, which is hashed here as `scheme` says and must not be hashed already.
    ///
    /// Runs on the caller's executor and returns without suspending when the key is in memory; a key that blocks
    /// suspends and works elsewhere.
    ///
    /// - Returns: The signature as TLS carries it: DER for ECDSA, the raw octets otherwise.
    /// - Throws: `unsupportedAlgorithm` for a scheme outside ``signatureSchemes``, or what the key's home reports.
    func signature(
        for message: [UInt8], using scheme: SignatureScheme
    ) async throws(CertificateProviderError) -> [UInt8]

    // Further abilities are properties, so that a key that wraps another one passes them on.

    /// Exports the private key; nil for a key that never leaves its token.
    var exporter: (any KeyExporting)? { get }

    /// Decrypts with the private key; nil for a key that may not.
    var decrypter: (any KeyDecrypting)? { get }

    /// Signs on threads of its own and calls back; nil for a key that only signs in the caller's task.
    var callbackSigner: (any CallbackSigning)? { get }
}

extension IdentityKey {
    public var uri: String? { nil }
    public var signatureTimeout: Duration? { nil }
    public var exporter: (any KeyExporting)? { nil }
    public var decrypter: (any KeyDecrypting)? { nil }
    public var callbackSigner: (any CallbackSigning)? { nil }
}

/// The ability of an ``IdentityKey`` to sign on threads of its own and to call back.
///
/// An event loop that passes a signature on needs no task for it, which saves two changes of thread.
public protocol CallbackSigning: Sendable {
    /// Signs like ``IdentityKey/signature(for:using:)``. Returns at once.
    ///
    /// - Parameter completion: Called once, on any thread, which it must not block.
    func sign(
        _ message: [UInt8], using scheme: SignatureScheme,
        completion: @escaping @Sendable (Result<[UInt8], CertificateProviderError>) -> Void)
}

extension IdentityKey where Self: CallbackSigning {
    public func signature(
        for message: [UInt8], using scheme: SignatureScheme
    ) async throws(CertificateProviderError) -> [UInt8] {
        let result = await withCheckedContinuation { continuation in
            sign(message, using: scheme) { continuation.resume(returning: $0) }
        }
        return try result.get()
    }
}

/// The ability of an ``IdentityKey`` to decrypt, which SCEP (RFC 8894) asks of an identity's key.
public protocol KeyDecrypting: Sendable {
    /// Decrypts by RSAES-PKCS1-v1_5 (RFC 8017, section 7.2). Suspends while a token works.
    ///
    /// - Throws: `malformedData` for a ciphertext that was not encrypted for the key, or an error of the key store.
    func decrypt(_ ciphertext: [UInt8]) async throws(CertificateProviderError) -> SecretBytes
}

/// The ability of an ``IdentityKey`` to leave its key store.
public protocol KeyExporting: Sendable {
    /// Returns the key as an unencrypted PKCS#8 `PrivateKeyInfo` (RFC 5208), DER.
    func pkcs8Representation() throws(CertificateProviderError) -> SecretBytes
}


/// Where a private key rests.
public struct KeyLocation: RawRepresentable, Hashable, Sendable {
    public let rawValue: String
    public init(rawValue: String) { self.rawValue = rawValue }

    /// In a file that belongs to the user.
    public static let file = Self(rawValue: "file")
    /// In this host's sealed identity store.
    public static let store = Self(rawValue: "store")
    /// In a PKCS#11 token.
    public static let token = Self(rawValue: "token")
    /// In a plugin.
    public static let plugin = Self(rawValue: "plugin")
}
