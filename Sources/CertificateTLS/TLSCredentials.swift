public import CertificateProviding
import Glibc
import NIOCore
public import NIOSSL

/// Something that a TLS configuration can present: ``TLSCredentials``, which stay, or ``RotatingTLSCredentials``.
public protocol TLSCredentialSource: Sendable {
    /// Sets what `configuration` presents to its peers, and the signature schemes that go with it. For a key that
    /// cannot sign in TLS 1.3, TLS 1.2 becomes the highest version, unless the configuration demands TLS 1.3: then its
    /// handshakes fail as soon as the key is asked for, and
    /// ``CertificateProviding/CertificateProviderError/init(tlsError:from:)`` says why. Everything else in the
    /// configuration stays as it is. Does not block.
    func present(in configuration: inout TLSConfiguration)
}

/// The chain and key of one identity as SwiftNIO SSL uses them: made once, shared by any number of connections.
///
/// A key with an ``/CertificateProviding/IdentityKey/exporter`` is handed to BoringSSL, which then signs in the handshake as it does with a key from a
/// file. Any other key stays at home and is asked for a signature in each handshake, without blocking the event loop.
public struct TLSCredentials: TLSCredentialSource {
    public let identity: Identity

    let certificateChain: [NIOSSLCertificateSource]
    let privateKey: NIOSSLPrivateKeySource
    /// What the key can do and BoringSSL knows, most preferred first. Never empty, without repetitions.
    let signatureAlgorithms: [SignatureAlgorithm]
    /// Whether BoringSSL itself holds the key.
    let isKeyNative: Bool

    /// Whether the key can sign in TLS 1.3. There an RSA key must do so with RSASSA-PSS (RFC 8446, section 4.2.3),
    /// which not every token can.
    var signsInTLS13: Bool { signatureAlgorithms.contains { !SignatureAlgorithm.onlyInTLS12.contains($0) } }

    /// Converts an identity. What BoringSSL would refuse in the handshake is refused here.
    ///
    /// Does not use the key; ``RotatingTLSCredentials/update(to:)`` does.
    ///
    /// - Throws: `unsupportedAlgorithm` for a certificate or key that BoringSSL cannot use, such as id-RSASSA-PSS;
    ///   `keyMismatch` for an exportable key that is exported as another one; or whatever it reports when it is read.
    public init(_ identity: Identity) throws(CertificateProviderError) {
        let leaf = identity.certificate
        try Self.checkAlgorithm(of: identity)
        let algorithms = Self.usableAlgorithms(of: identity.key)
        guard !algorithms.isEmpty else {
            let offered = identity.key.signatureSchemes.map(\.description).joined(separator: ", ")
            throw Self.unusable(identity, "its key offers no signature scheme that TLS can use here (\(offered))")
        }
        let key: NIOSSLPrivateKey
        if let exporter = identity.key.exporter {
            key = try Self.nativeKey(exporter, of: identity)
            self.isKeyNative = true
        } else {
            key = NIOSSLPrivateKey(customPrivateKey: RemoteSigner(identity.key, algorithms: algorithms))
            self.isKeyNative = false
        }
        do {
            self.certificateChain = try identity.certificateChain.map {
                .certificate(try NIOSSLCertificate(bytes: $0.derRepresentation, format: .der))
            }
            // BoringSSL looks at the leaf (kind of key, key usage) only when it is put into a context, where the
            // failure would come too late. This context trusts nobody, so that no file is read.
            var trial = TLSConfiguration.makeClientConfiguration()
            trial.trustRoots = .certificates([])
            trial.certificateChain = certificateChain
            trial.privateKey = .privateKey(key)
            trial.signingSignatureAlgorithms = algorithms
            _ = try NIOSSLContext(configuration: trial)
        } catch {
            var reason = "BoringSSL refuses its certificate (\(leaf.publicKey.displayName))"
            if leaf.publicKey.algorithm == .ec { reason += "; an EC certificate must permit digital signatures" }
            throw Self.unusable(identity, reason, underlying: error)
        }
        self.identity = identity
        self.privateKey = .privateKey(key)
        self.signatureAlgorithms = algorithms
    }

    public func present(in configuration: inout TLSConfiguration) {
        configuration.signingSignatureAlgorithms = signatureAlgorithms
        if !signsInTLS13 { configuration.excludeTLS13() }
        if isKeyNative && identity.certificate.publicKey.algorithm == .ed25519 {
            // AsyncHTTPClient hashes configurations, and NIOSSLPrivateKey.hash(into:) traps on an Ed25519 key, since
            // i2d_PrivateKey knows only RSA, EC and DSA. Given per connection, the key is never hashed.
            let override = self.override
            configuration.certificateChain = []
            configuration.privateKey = nil
            configuration.sslContextCallback = { _, promise in promise.succeed(override) }
        } else {
            configuration.certificateChain = certificateChain
            configuration.privateKey = privateKey
            configuration.sslContextCallback = nil
        }
    }

    /// The credentials as a change to one connection.
    var override: NIOSSLContextConfigurationOverride {
        var override = NIOSSLContextConfigurationOverride()
        override.certificateChain = certificateChain
        override.privateKey = privateKey
        return override
    }
}

extension TLSCredentials: CustomStringConvertible {
    public var description: String { identity.description }
}

extension TLSCredentials {
    private static func checkAlgorithm(of identity: Identity) throws(CertificateProviderError) {
        let publicKey = identity.certificate.publicKey
        switch publicKey.algorithm {
        case .rsa where publicKey.isRestrictedToPSS:
            throw unusable(
                identity, "its certificate is for an id-RSASSA-PSS key; have it issued for rsaEncryption, EC or Ed25519"
            )
        case .rsa, .ed25519: return
        case .ec where ["P-256", "P-384", "P-521"].contains(publicKey.curve): return
        default:
            throw unusable(
                identity,
                "its key is of kind \(publicKey.displayName); RSA, EC (P-256, P-384, P-521) and Ed25519 are usable")
        }
    }

    private static func usableAlgorithms(of key: any IdentityKey) -> [SignatureAlgorithm] {
        var seen = Set<SignatureAlgorithm>()
        return key.signatureSchemes.map(SignatureAlgorithm.init(scheme:))
            .filter { SignatureAlgorithm.usable.contains($0) && seen.insert($0).inserted }
    }

    private static func nativeKey(
        _ exporter: any KeyExporting, of identity: Identity
    ) throws(CertificateProviderError) -> NIOSSLPrivateKey {
        let pkcs8: SecretBytes
        do {
            pkcs8 = try exporter.pkcs8Representation()
        } catch {
            throw error.attributed(to: identity.provenance.provider)
        }
        if let exported = try? SoftwareKey(pkcs8: pkcs8, location: identity.key.location),
            !exported.publicKey.isSameKey(as: identity.certificate.publicKey)
        {
            throw CertificateProviderError(
                .keyMismatch,
                """
                The key of '\(identity.certificate.subject)' was exported as another one than its certificate is for; \
                obtain the identity anew.
                """,
                provider: identity.provenance.provider)
        }
        var bytes = pkcs8.withUnsafeBytes { Array($0) }
        // NIOSSL parses in place and keeps no reference, so this wipes the only copy.
        defer {
            bytes.withUnsafeMutableBytes { buffer in
                if let base = buffer.baseAddress { explicit_bzero(base, buffer.count) }
            }
        }
        do {
            return try NIOSSLPrivateKey(bytes: bytes, format: .der)
        } catch {
            throw unusable(identity, "BoringSSL cannot load its key (\(identity.key.publicKey.displayName))", underlying: error)
        }
    }

    private static func unusable(
        _ identity: Identity, _ reason: String, underlying: (any Error)? = nil
    ) -> CertificateProviderError {
        CertificateProviderError(
            .unsupportedAlgorithm, "The identity '\(identity.certificate.subject)' cannot be used for TLS: \(reason).",
            provider: identity.provenance.provider, underlying: underlying)
    }
}
