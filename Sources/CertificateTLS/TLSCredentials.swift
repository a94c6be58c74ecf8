public import CertificateProviding
import Glibc
import NIOCore
package import NIOSSL

/// Credentials for a TLS configuration: fixed ``TLSCredentials``, or ``RotatingCredentials``.
package protocol TLSCredentialSource: Sendable {
    /// Sets the credentials and the signature schemes of `configuration`. All other settings are unchanged. Does not
    /// block.
    ///
    /// For a key that cannot sign in TLS 1.3, TLS 1.2 becomes the highest version, unless the configuration requires
    /// TLS 1.3. In that case its handshakes fail when they need the key, and
    /// ``CertificateProviding/ProviderError/init(tlsError:from:with:)`` explains the failure.
    func present(in configuration: inout TLSConfiguration)
}

/// The chain and key of one identity for SwiftNIO SSL: converted once, shared by any number of connections.
///
/// A key with an ``/CertificateProviding/IdentityKey/exporter`` is passed to BoringSSL, which then signs like with a
/// key from a file. Any other key stays in its key store and is asked for a signature in each handshake, without
/// blocking the event loop.
public struct TLSCredentials: TLSCredentialSource {
    /// The identity that was converted.
    public let identity: Identity

    let certificateChain: [NIOSSLCertificateSource]
    let privateKey: NIOSSLPrivateKeySource
    /// The algorithms that both key and BoringSSL support, most preferred first. Never empty, without duplicates.
    let signatureAlgorithms: [SignatureAlgorithm]
    /// Whether BoringSSL itself holds the key.
    let isKeyNative: Bool

    /// Whether the key can sign in TLS 1.3. An RSA key must support RSASSA-PSS for that (RFC 8446, section 4.2.3),
    /// which not every token does.
    var signsInTLS13: Bool { signatureAlgorithms.contains { !SignatureAlgorithm.onlyInTLS12.contains($0) } }

    /// Converts an identity, and refuses one that BoringSSL would refuse in the handshake.
    ///
    /// Does not use the key; ``RotatingTLS/update(to:)`` does.
    ///
    /// - Throws: `unsupportedAlgorithm` for a leaf or a key that BoringSSL cannot use, such as id-RSASSA-PSS; `malformedData` for a
    ///   certificate whose encoding it refuses; `keyMismatch` if the exported key does not match the certificate; errors of the export.
    public init(_ identity: Identity) throws(ProviderError) {
        let provider = identity.provenance.provider
        try Self.checkKey(of: identity.certificate, provider)
        let algorithms = Self.usableAlgorithms(of: identity.key)
        guard !algorithms.isEmpty else {
            let offered = identity.key.signatureSchemes.map(\.description).joined(separator: ", ")
            throw Self.unusable(
                identity.certificate, provider,
                "its key supports no signature scheme that TLS can use here (\(offered))")
        }
        let key: NIOSSLPrivateKey
        if let exporter = identity.key.exporter {
            key = try Self.nativeKey(exporter, of: identity)
            self.isKeyNative = true
        } else {
            key = NIOSSLPrivateKey(customPrivateKey: RemoteSigner(identity.key, algorithms: algorithms))
            self.isKeyNative = false
        }
        self.certificateChain = try Self.load(identity.certificateChain, provider)
        try Self.tryOut(certificateChain, .privateKey(key), algorithms, of: identity.certificate, provider)
        self.identity = identity
        self.privateKey = .privateKey(key)
        self.signatureAlgorithms = algorithms
    }

    /// Checks that BoringSSL does not refuse a chain, for an identity whose key is not at hand. ``init(_:)`` includes
    /// this.
    ///
    /// - Throws: `unsupportedAlgorithm` for a leaf that BoringSSL cannot use, such as id-RSASSA-PSS; `malformedData` for
    ///   a certificate whose encoding it refuses; `notFound` for an empty chain.
    package static func check(
        _ chain: [X509Certificate], of provider: ProviderID
    ) throws(ProviderError) {
        guard let leaf = chain.first else {
            throw ProviderError(.notFound, "The identity has no certificate.", provider: provider)
        }
        try checkKey(of: leaf, provider)
        try tryOut(try load(chain, provider), nil, [], of: leaf, provider)
    }

    /// Sets the chain, the key and its signature schemes.
    package func present(in configuration: inout TLSConfiguration) {
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

    /// The credentials as an override for one connection.
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
    /// Checks the type and the size of the leaf's key.
    private static func checkKey(
        of leaf: X509Certificate, _ provider: ProviderID
    ) throws(ProviderError) {
        try leaf.requireUsableKeySize(provider: provider)
        switch leaf.publicKey.algorithm {
        case .rsa where leaf.publicKey.isRestrictedToPSS:
            throw unusable(
                leaf, provider,
                "its certificate is for an id-RSASSA-PSS key; have it issued for rsaEncryption, EC or Ed25519")
        case .rsa, .ed25519: return
        case .ec where ["P-256", "P-384", "P-521"].contains(leaf.publicKey.curve):
            guard !leaf.permitsSignatures else { return }
            throw unusable(
                leaf, provider,
                "its key usage does not permit digital signatures; have it issued with the key usage digitalSignature")
        default:
            throw unusable(
                leaf, provider,
                "its key is of type \(leaf.publicKey.displayName); use RSA, EC (P-256, P-384, P-521) or Ed25519")
        }
    }

    private static func load(
        _ chain: [X509Certificate], _ provider: ProviderID
    ) throws(ProviderError) -> [NIOSSLCertificateSource] {
        try chain.enumerated().map { index, certificate throws(ProviderError) in
            do {
                return .certificate(try NIOSSLCertificate(bytes: certificate.derRepresentation, format: .der))
            } catch {
                let fault = certificate.encodingFault ?? "is not encoded as RFC 5280 demands"
                let name = index == 0 ? "it" : "'\(certificate.subject)' in its chain"
                throw unusable(
                    chain[0], provider, "\(name) \(fault); have its CA issue another one", code: .malformedData,
                    underlying: error)
            }
        }
    }

    /// Puts the chain into a context. Only there BoringSSL looks at the leaf, and a failure in a handshake would come too
    /// late. The context trusts no CA, so that no file is read.
    private static func tryOut(
        _ chain: [NIOSSLCertificateSource], _ key: NIOSSLPrivateKeySource?, _ algorithms: [SignatureAlgorithm],
        of leaf: X509Certificate, _ provider: ProviderID
    ) throws(ProviderError) {
        var trial = TLSConfiguration.makeClientConfiguration()
        trial.trustRoots = .certificates([])
        trial.certificateChain = chain
        trial.privateKey = key
        if !algorithms.isEmpty { trial.signingSignatureAlgorithms = algorithms }
        do {
            _ = try NIOSSLContext(configuration: trial)
        } catch {
            throw unusable(
                leaf, provider, "BoringSSL refuses its certificate (\(leaf.publicKey.displayName))", underlying: error)
        }
    }

    private static func usableAlgorithms(of key: any IdentityKey) -> [SignatureAlgorithm] {
        var seen = Set<SignatureAlgorithm>()
        return key.signatureSchemes.map(SignatureAlgorithm.init(scheme:))
            .filter { SignatureAlgorithm.usable.contains($0) && seen.insert($0).inserted }
    }

    private static func nativeKey(
        _ exporter: any KeyExporting, of identity: Identity
    ) throws(ProviderError) -> NIOSSLPrivateKey {
        let pkcs8: SecretBytes
        do {
            pkcs8 = try exporter.pkcs8Representation()
        } catch {
            throw error.attributed(to: identity.provenance.provider)
        }
        if let exported = try? SoftwareKey(pkcs8: pkcs8, location: identity.key.location),
            exported.publicKey != identity.certificate.publicKey
        {
            throw ProviderError(
                .keyMismatch,
                """
                The exported key of '\(identity.certificate.subject)' does not match its certificate; obtain the \
                identity again.
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
            throw unusable(
                identity.certificate, identity.provenance.provider,
                "BoringSSL cannot load its key (\(identity.key.publicKey.displayName))", underlying: error)
        }
    }

    private static func unusable(
        _ leaf: X509Certificate, _ provider: ProviderID, _ reason: String,
        code: ProviderError.Code = .unsupportedAlgorithm, underlying: (any Error)? = nil
    ) -> ProviderError {
        ProviderError(
            code, "The identity '\(leaf.subject)' cannot be used for TLS: \(reason).", provider: provider,
            underlying: underlying)
    }
}
