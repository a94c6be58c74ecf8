import CertificateProviding
import Synchronization

/// A certificate file, and a private key (PKCS#8, DER) that some secret source gives.
final class SplitProvider: CertificateProvider {
    static let id = ProviderID("split")
    static let descriptor = ProviderDescriptor(
        id: id, displayName: "Certificate and key", summary: "A certificate file, and a key in a secret source.",
        parameters: [
            ParameterDescriptor("certificate", .path, isRequired: true, summary: "PEM, or DER for one"),
            ParameterDescriptor("key-source", .secretSource, isRequired: true, summary: "PKCS#8, DER"),
        ]
    ) { SplitProvider(environment: $0) }

    var id: ProviderID { Self.id }
    private let environment: ProviderEnvironment
    private let settings = Mutex<(certificate: String, key: SecretSource)?>(nil)

    init(environment: ProviderEnvironment) { self.environment = environment }

    func setParameters(_ parameters: ProviderParameters) throws(CertificateProviderError) {
        try parameters.refuseUnknown(knowing: Self.descriptor.parameters, provider: id)
        let certificate = try parameters.requiredString("certificate", provider: id)
        guard let key = try parameters.secretSource("key-source", provider: id) else {
            throw parameters.invalid("key-source", "is missing", provider: id)
        }
        settings.withLock { $0 = (certificate, key) }
    }

    func getCertificate(_ interaction: any UserInteraction) async throws(CertificateProviderError) -> Identity {
        guard let identity = try await environment.executor.run(getStoredCertificate) else {
            throw CertificateProviderError(.notFound, "The parameters are missing.", provider: id)
        }
        try await identity.verifyPossession()
        return identity
    }

    /// Both are at hand always, so that nothing is kept in `environment.storage`.
    func getStoredCertificate() throws(CertificateProviderError) -> Identity? {
        guard let (certificate, source) = settings.withLock({ $0 }) else { return nil }
        let chain = try CertificateFile.read(certificate)
        let key = try SoftwareKey(pkcs8: environment.secrets.read(source), location: .file)
        // Says `keyMismatch` where the two do not belong together.
        return try Identity(certificateChain: chain, key: key, provenance: .init(provider: id, source: certificate))
    }

    func deleteStoredCertificate() throws(CertificateProviderError) {}
}
