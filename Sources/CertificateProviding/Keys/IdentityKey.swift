/// The private key of an identity.
///
/// The key may be in memory, in a token or in a service. See ``exporter`` for keys that can be exported.
public protocol IdentityKey: Sendable {
    /// The public key that belongs to the private key.
    var publicKey: PublicKeyInfo { get }

    /// The signature schemes that the key supports, most preferred first.
    var signatureSchemes: [SignatureScheme] { get }

    /// The place that holds the key.
    var location: KeyLocation { get }

    /// The key's RFC 7512 URI without any PIN; `nil` if it has none.
    var uri: String? { get }

    /// The time after which ``signature(for:using:)`` throws `timedOut`; `nil` for a key in memory and for a key
    /// without a limit. A TLS handshake waits this long for the key, in addition to the time that the peer gets.
    var signatureTimeout: Duration? { get }

    /// Signs `message`. The message is hashed here, as `scheme` requires; the caller must not hash it.
    ///
    /// Runs on the caller's executor and does not suspend if the key is in memory. A key that blocks works on other
    /// threads and suspends the caller.
    ///
    /// - Returns: The signature as TLS encodes it: DER for ECDSA, the raw octets otherwise.
    /// - Throws: `unsupportedAlgorithm` for a scheme outside ``signatureSchemes``, or an error of the key store.
    func signature(
        for message: [UInt8], using scheme: SignatureScheme
    ) async throws(CertificateProviderError) -> [UInt8]

    // Further abilities are properties, so that a key that wraps another one passes them on.

    /// Exports the private key; `nil` for a key that cannot be exported.
    var exporter: (any KeyExporting)? { get }

    /// Decrypts with the private key; `nil` for a key that must not decrypt.
    var decrypter: (any KeyDecrypting)? { get }

    /// Signs on threads of its own and calls back; `nil` for a key that signs in the caller's task only.
    var callbackSigner: (any CallbackSigning)? { get }
}

extension IdentityKey {
    /// `nil`: the default for a key without a URI.
    public var uri: String? { nil }
    /// `nil`: the default for a key without a time limit.
    public var signatureTimeout: Duration? { nil }
    /// `nil`: the default for a key that cannot be exported.
    public var exporter: (any KeyExporting)? { nil }
    /// `nil`: the default for a key that must not decrypt.
    public var decrypter: (any KeyDecrypting)? { nil }
    /// `nil`: the default for a key that signs in the caller's task.
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
    /// Signs with ``CallbackSigning/sign(_:using:completion:)`` and suspends until it calls back.
    public func signature(
        for message: [UInt8], using scheme: SignatureScheme
    ) async throws(CertificateProviderError) -> [UInt8] {
        let result = await withCheckedContinuation { continuation in
            sign(message, using: scheme) { continuation.resume(returning: $0) }
        }
        return try result.get()
    }
}

/// The ability of an ``IdentityKey`` to decrypt what ``PublicKeyInfo/encrypt(_:using:)`` has encrypted.
public protocol KeyDecrypting: Sendable {
    /// The schemes that the key decrypts by, most preferred first; at least one.
    var decryptionSchemes: [DecryptionScheme] { get }

    /// Decrypts (RFC 8017, sections 7.1.2 and 7.2.2).
    ///
    /// Runs on the caller's executor and does not suspend if the key is in memory. A key that blocks works on other
    /// threads and suspends the caller.
    ///
    /// - Throws: `unsupportedAlgorithm` for a scheme outside ``decryptionSchemes``; `malformedData` for a ciphertext that
    ///   is damaged, or was encrypted for another key or by another scheme, without telling which; or an error of the key
    ///   store.
    func decrypt(
        _ ciphertext: [UInt8], using scheme: DecryptionScheme
    ) async throws(CertificateProviderError) -> SecretBytes
}

/// The ability of an ``IdentityKey`` to leave its key store.
public protocol KeyExporting: Sendable {
    /// Returns the key as an unencrypted PKCS#8 `PrivateKeyInfo` (RFC 5208), DER. May block while a store is read.
    ///
    /// - Throws: Errors of the key store; none for a key in memory.
    func pkcs8Representation() throws(CertificateProviderError) -> SecretBytes
}

/// The place that holds a private key.
public struct KeyLocation: RawRepresentable, Hashable, Sendable {
    public let rawValue: String
    public init(rawValue: String) { self.rawValue = rawValue }

    /// A file of the user.
    public static let file = Self(rawValue: "file")
    /// This host's sealed identity store.
    public static let store = Self(rawValue: "store")
    /// A PKCS#11 token.
    public static let token = Self(rawValue: "token")
    /// A plugin, or a place that it has.
    public static let plugin = Self(rawValue: "plugin")
}
