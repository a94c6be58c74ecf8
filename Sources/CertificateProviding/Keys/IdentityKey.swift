/// The private key of an identity: it signs, wherever it lives.
///
/// A key need not be in memory. One that is conforms to ``ExportableIdentityKey`` as well.
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
}

extension IdentityKey {
    public var uri: String? { nil }
    public var signatureTimeout: Duration? { nil }
}

/// A key that signs on threads of its own, and tells there when it is done.
///
/// An event loop that only passes the signature on is spared a task, and a change of thread in each direction.
public protocol CallbackIdentityKey: IdentityKey {
    /// Signs like ``IdentityKey/signature(for:using:)``. Returns at once.
    ///
    /// - Parameter completion: Called once, on any thread, which it must not block.
    func sign(
        _ message: [UInt8], using scheme: SignatureScheme,
        completion: @escaping @Sendable (Result<[UInt8], CertificateProviderError>) -> Void)
}

extension CallbackIdentityKey {
    public func signature(
        for message: [UInt8], using scheme: SignatureScheme
    ) async throws(CertificateProviderError) -> [UInt8] {
        let result = await withCheckedContinuation { continuation in
            sign(message, using: scheme) { continuation.resume(returning: $0) }
        }
        return try result.get()
    }
}

/// A key that decrypts as well, which some protocols ask of an identity's key, such as SCEP (RFC 8894).
public protocol DecryptingIdentityKey: IdentityKey {
    /// Whether this one really does: of the keys in one home, one may be allowed to and another may not.
    var canDecrypt: Bool { get }

    /// Decrypts by RSAES-PKCS1-v1_5 (RFC 8017, section 7.2). Suspends where the key's home works elsewhere.
    ///
    /// - Throws: `unsupportedAlgorithm` where ``canDecrypt`` is false, `malformedData` for what was not encrypted for
    ///   the key, or what the key's home reports.
    func decrypt(_ ciphertext: [UInt8]) async throws(CertificateProviderError) -> SecretBytes
}

/// A key that may leave its home.
public protocol ExportableIdentityKey: IdentityKey {
    /// Returns the key as an unencrypted PKCS#8 `PrivateKeyInfo` (RFC 5208), DER.
    ///
    /// - Throws: What the key's home reports.
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
