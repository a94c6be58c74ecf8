import CertificateProviding
import FoundationEssentials
import OpenSSLSupport
import RemoteMDMParameters
import ServerTransport

/// What a server knows this host by until it has issued a certificate itself: the device's own, which its manufacturer
/// has issued (IDevID, IEEE 802.1AR), or one from whoever has set the host up.
struct ClientCertificate: Sendable {
    private enum Place {
        /// PEM.
        case file(chain: String, key: SecretSource)
        /// RFC 7512.
        case token(uri: String)
    }

    private let place: Place
    private let parameters: ProviderParameters

    /// `nil` where none is configured.
    init?(
        _ parameters: ProviderParameters, for server: ServerURL, provider: ProviderID
    ) throws(CertificateProviderError) {
        let key = try parameters.secretSource(Parameter.clientKeySource, provider: provider)
        self.parameters = parameters
        guard let chain = parameters.string(Parameter.clientCertificate) else {
            guard key == nil else {
                throw parameters.invalid(
                    Parameter.clientKeySource, "needs a '\(Parameter.clientCertificate)'", provider: provider)
            }
            return nil
        }
        guard server.isSecure else {
            throw parameters.invalid(
                Parameter.clientCertificate, "is of no use with an http: server, which is shown none",
                provider: provider)
        }
        if chain.lowercased().hasPrefix("pkcs11:") {
            guard key == nil else {
                throw parameters.invalid(
                    Parameter.clientKeySource, "is for a file: a token has the key itself; remove it",
                    provider: provider)
            }
            guard !chain.lowercased().contains("pin-value") else {
                throw parameters.invalid(
                    Parameter.clientCertificate,
                    "has a PIN in its URI, which everybody reads who sees the configuration; name its source there with "
                        + "pin-source", provider: provider)
            }
            place = .token(uri: chain)
        } else {
            guard let key else {
                throw parameters.invalid(
                    Parameter.clientCertificate, "needs its private key: set '\(Parameter.clientKeySource)'",
                    provider: provider)
            }
            guard key != .prompt else {
                throw parameters.invalid(
                    Parameter.clientKeySource, "cannot be prompt: nobody types a key in; name a file or a credential",
                    provider: provider)
            }
            place = .file(chain: chain, key: key)
        }
    }

    /// The certificate with its key, which has signed a probe.
    ///
    /// - Throws: `configurationInvalid` for one that is not valid now, and for a key that cannot be read; `keyMismatch`
    ///   for that of another one; what a token meets.
    func identity(
        _ environment: ProviderEnvironment, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) -> Identity {
        let identity: Identity
        switch place {
        case .token(let uri):
            let provider = try reading(Parameter.clientCertificate) { () throws(CertificateProviderError) in
                try environment.makeProvider(TokenHome.provider, ProviderParameters(["uri": .init(uri)]))
            }
            do throws(CertificateProviderError) { identity = try await provider.getCertificate(interaction) } catch {
                throw parameters.error(error, about: Parameter.clientCertificate, provider: RemoteMDMProvider.id)
            }
        case .file(let path, let source):
            let pem = try await environment.secret(
                from: source, prompt: "Private key of \(path.withVisibleControls), PEM", interaction: interaction)
            identity = try await environment.executor.run { () throws(CertificateProviderError) in
                let chain = try reading(Parameter.clientCertificate) { () throws(CertificateProviderError) in
                    try CertificateFile.read(path)
                }
                let key = try reading(Parameter.clientKeySource) { () throws(CertificateProviderError) in
                    try Self.key(pem, source)
                }
                return try reading(Parameter.clientCertificate) { () throws(CertificateProviderError) in
                    try Identity(
                        certificateChain: chain, key: key,
                        provenance: .init(provider: RemoteMDMProvider.id, source: path))
                }
            }
            try await identity.verifyPossession()
        }
        let leaf = identity.certificate
        let now = environment.now()
        // The server says what it thinks of one that this host's clock is too slow for.
        guard leaf.notValidBefore <= now + IssuedCertificate.skew, now <= leaf.notValidAfter else {
            throw parameters.error(
                CertificateProviderError(
                    .configurationInvalid,
                    "The certificate '\(leaf.subject)' is valid from \(leaf.notValidBefore.formatted(.iso8601)) to "
                        + "\(leaf.notValidAfter.formatted(.iso8601)), and not now; see whether this host's clock is right, or "
                        + "obtain another one. Nothing was sent."),
                about: Parameter.clientCertificate, provider: RemoteMDMProvider.id)
        }
        return identity
    }

    private func reading<T>(
        _ name: String, _ body: () throws(CertificateProviderError) -> T
    ) throws(CertificateProviderError) -> T {
        try parameters.reading(name, provider: RemoteMDMProvider.id, body)
    }

    private static func key(
        _ pem: SecretBytes, _ source: SecretSource
    ) throws(CertificateProviderError) -> SoftwareKey {
        let pkcs8: SecretBytes
        do throws(OpenSSLError) { pkcs8 = try OpenSSLLibrary().pkcs8(pem: pem) } catch {
            // Without the underlying error, which might quote the key.
            let isEncrypted = pem.withUnsafeBytes { $0.contains("ENCRYPTED".utf8) }
            throw CertificateProviderError(
                .configurationInvalid,
                "what \(source) gives "
                    + (isEncrypted
                        ? "is encrypted; take its password off with 'openssl pkey', or keep the key in a token."
                        : "has no private key in PEM that can be read."))
        }
        return try SoftwareKey(pkcs8: pkcs8, location: .file)
    }
}
