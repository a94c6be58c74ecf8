import CertificateProviding
import FoundationEssentials
import OpenSSLSupport
import ProviderTransport

/// The certificate that authenticates the first enrolment: the device certificate from the manufacturer (IDevID, IEEE
/// 802.1AR), or one that was installed with the host.
struct ClientCertificate: Sendable {
    /// The parameter `client-certificate`.
    enum Place: Sendable {
        /// PEM.
        case file(String)
        /// An identity in a key store, by its URI.
        case keyStore(String, any KeyStore)
    }

    private let place: Place
    private let keySource: SecretSource?
    private let parameters: Parameters

    /// `nil` if none is configured.
    init?(_ parameters: Parameters) throws(ProviderError) {
        guard var place = parameters[EnrolmentParameter.clientCertificate] else { return nil }
        // In the place where new keys are made, it is used through the same store: one login is enough.
        if case .keyStore(let uri, _) = place, parameters[EnrolmentParameter.key].holds(keyURI: uri) {
            place = .keyStore(uri, parameters[EnrolmentParameter.key])
        }
        self.parameters = parameters
        self.place = place
        keySource = parameters[EnrolmentParameter.clientKeySource]
        switch (place, keySource) {
        case (.keyStore, nil): break
        case (.keyStore, _):
            throw parameters.invalid(
                EnrolmentParameter.clientKeySource,
                "is only for a certificate in a file: a key store has the key itself")
        case (.file, nil):
            throw parameters.invalid(
                EnrolmentParameter.clientCertificate,
                "needs its private key: set '\(EnrolmentParameter.clientKeySource.name)'")
        case (.file, .prompt?):
            throw parameters.invalid(
                EnrolmentParameter.clientKeySource, "cannot be prompt: a key is not typed; name a file or a credential")
        case (.file, _): break
        }
    }

    /// Returns the certificate with its key, after the key has signed a probe.
    ///
    /// - Throws: `configurationInvalid` for a certificate that is not valid now, and for an unreadable key;
    ///   `keyMismatch` if the two do not belong together; the errors of the token.
    func identity(
        _ environment: ProviderEnvironment, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Identity {
        let identity: Identity
        switch place {
        case .keyStore(let uri, let store):
            do throws(ProviderError) { identity = try await store.identity(uri, interaction) } catch {
                throw parameters.error(error, about: EnrolmentParameter.clientCertificate)
            }
        case .file(let path):
            // Required for a file.
            let source = keySource ?? .prompt
            let pem = try await environment.secret(
                from: source, prompt: "Private key of \(DisplayText.visible(path)), PEM", interaction: interaction)
            identity = try await environment.executor.run { () throws(ProviderError) in
                let certificates = try parameters.reading(EnrolmentParameter.clientCertificate) {
                    () throws(ProviderError) in
                    try CertificateFile.read(path)
                }
                let key = try parameters.reading(EnrolmentParameter.clientKeySource) {
                    () throws(ProviderError) in
                    try Self.key(pem, source)
                }
                return try parameters.reading(EnrolmentParameter.clientCertificate) {
                    () throws(ProviderError) in
                    try Identity(
                        certificateChain: CertificateChain.build(for: key.publicKey, among: certificates), key: key,
                        provenance: .init(provider: RemoteMDMProvider.id, source: path))
                }
            }
            try await identity.verifyPossession()
        }
        let leaf = identity.certificate
        let now = environment.now()
        // A certificate that a slow clock takes for not yet valid is left to the server.
        guard leaf.notValidBefore <= now + IssuedCertificate.clockSkew, now <= leaf.notValidAfter else {
            throw parameters.error(
                ProviderError(
                    .configurationInvalid,
                    "The certificate '\(leaf.subject)' is not valid now, but from "
                        + "\(leaf.notValidBefore.formatted(.iso8601)) to \(leaf.notValidAfter.formatted(.iso8601)); "
                        + "check this host's clock, or obtain another certificate. Nothing was sent."),
                about: EnrolmentParameter.clientCertificate)
        }
        return identity
    }

    /// Closes what the key store holds open.
    func shutdown() async {
        if case .keyStore(_, let store) = place { await store.shutdown() }
    }

    private static func key(
        _ pem: SecretBytes, _ source: SecretSource
    ) throws(ProviderError) -> SoftwareKey {
        let name = "the value of \(source)"
        guard let block = try PEMFile(pem, named: name).blocks.first(where: \.isPrivateKey) else {
            throw ProviderError(.configurationInvalid, "\(name) contains no private key in PEM.")
        }
        guard !block.isEncrypted else {
            throw ProviderError(
                .configurationInvalid, "\(name) is encrypted; decrypt it with 'openssl pkey', or use a key in a token.")
        }
        return try OpenSSLLibrary().privateKey(of: block, in: name, password: nil)
    }
}
