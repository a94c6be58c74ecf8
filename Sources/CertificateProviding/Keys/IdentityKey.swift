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
    ) async throws(ProviderError) -> [UInt8]

    /// The operations that the key is permitted, and that work: see ``signatureSchemes`` and ``decrypter``.
    var use: KeyUse { get }

    // Further abilities are properties, so that a key that wraps another one passes them on.

    /// Exports the private key; `nil` for a key that cannot be exported.
    var exporter: (any KeyExporting)? { get }

    /// Decrypts with the private key; `nil` for a key that must not decrypt.
    var decrypter: (any KeyDecrypting)? { get }

    /// Signs a digest that the caller has made; `nil` for a key that hashes the message itself, as Ed25519 does.
    var digestSigner: (any DigestSigning)? { get }

    /// Signs on threads of its own and calls back; `nil` for a key that signs in the caller's task only.
    var callbackSigner: (any CallbackSigning)? { get }

    /// The key in a form that only its place can use, for a file that other programs read; `nil` for a key without one. Does not
    /// block.
    var wrapped: WrappedKey? { get }

    /// Proves where the private key lives; `nil` for a key that cannot.
    var attester: (any KeyAttesting)? { get }

    /// In a plugin, the key of its host's key store that this one is, or wraps; `nil` for any other key. The host uses such a key
    /// itself, and not through the plugin.
    var hostKey: KeyReference? { get }
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
    /// Signatures, if the key has a scheme for them, and the kinds of decryption that ``decrypter`` has a scheme of: the
    /// default for a key that has no record of its uses.
    public var use: KeyUse {
        KeyUse(signatureSchemes: signatureSchemes, decryptionSchemes: decrypter?.decryptionSchemes ?? [])
    }
    /// `nil`: the default for a key that hashes the message itself.
    public var digestSigner: (any DigestSigning)? { nil }
    /// `nil`: the default for a key that signs in the caller's task.
    public var callbackSigner: (any CallbackSigning)? { nil }
    /// `nil`: the default for a key that has no such form.
    public var wrapped: WrappedKey? { nil }
    /// `nil`: the default for a key that cannot prove where it lives.
    public var attester: (any KeyAttesting)? { nil }
    /// `nil`: the default for a key that is not of a plugin's host.
    public var hostKey: KeyReference? { nil }
}

/// The ability of an ``IdentityKey`` to sign a digest that the caller has made.
///
/// Large data need not be in memory, nor go to the place of the key.
public protocol DigestSigning: Sendable {
    /// The schemes of ``IdentityKey/signatureSchemes`` by which the key signs a digest, most preferred first; at least one.
    var digestSchemes: [SignatureScheme] { get }

    /// Signs the message that `digest` was made of.
    ///
    /// Runs on the caller's executor and does not suspend if the key is in memory. A key that blocks works on other
    /// threads and suspends the caller, for at most ``IdentityKey/signatureTimeout``.
    ///
    /// - Parameter digest: Made by the scheme's ``SignatureScheme/digestAlgorithm``.
    /// - Returns: What ``IdentityKey/signature(for:using:)`` returns for the message.
    /// - Throws: `unsupportedAlgorithm` for a scheme outside ``digestSchemes``, `malformedData` for a digest of another
    ///   length than the scheme's, or an error of the key store.
    func signature(
        forDigest digest: [UInt8], using scheme: SignatureScheme
    ) async throws(ProviderError) -> [UInt8]
}

extension DigestSigning {
    /// Checks what ``signature(forDigest:using:)`` gets.
    ///
    /// - Throws: `unsupportedAlgorithm` for a scheme outside ``digestSchemes``, `malformedData` for a digest of another
    ///   length than the scheme's.
    public func requireDigest(
        _ digest: [UInt8], for scheme: SignatureScheme
    ) throws(ProviderError) {
        guard digestSchemes.contains(scheme), let algorithm = scheme.digestAlgorithm else {
            let schemes = digestSchemes.map(\.description).joined(separator: ", ")
            throw ProviderError(
                .unsupportedAlgorithm,
                """
                The key does not sign digests with \(scheme); \
                \(schemes.isEmpty ? "let it sign the message." : "let it sign the message, or use one of: \(schemes).")
                """)
        }
        guard digest.count == algorithm.size else {
            throw ProviderError(
                .malformedData,
                """
                The digest to sign with \(scheme) has \(digest.count) bytes instead of \(algorithm.size); hash the \
                message with \(algorithm).
                """)
        }
    }
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
        completion: @escaping @Sendable (Result<[UInt8], ProviderError>) -> Void)
}

extension IdentityKey where Self: CallbackSigning {
    /// Signs with ``CallbackSigning/sign(_:using:completion:)`` and suspends until it calls back.
    public func signature(
        for message: [UInt8], using scheme: SignatureScheme
    ) async throws(ProviderError) -> [UInt8] {
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
    ) async throws(ProviderError) -> SecretBytes
}

/// The ability of an ``IdentityKey`` to leave its key store.
public protocol KeyExporting: Sendable {
    /// Returns the key as an unencrypted PKCS#8 `PrivateKeyInfo` (RFC 5208), DER. May block while a store is read.
    ///
    /// - Throws: Errors of the key store; none for a key in memory.
    func pkcs8Representation() throws(ProviderError) -> SecretBytes
}

/// A private key that is encrypted by the place that alone can use it, such as a TPM.
///
/// A program that may use the place, and has this, has the key: keep it as a private key.
public struct WrappedKey: Sendable {
    /// The label of its block in PEM (RFC 7468), such as `TSS2 PRIVATE KEY`.
    public let label: String
    /// The content of the block, DER.
    public let der: SecretBytes

    /// Creates the form.
    public init(label: String, der: SecretBytes) { (self.label, self.der) = (label, der) }
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
