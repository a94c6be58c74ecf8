import CertificateProviding

/// A certificate file, and a private key (PKCS#8, DER) from a secret source.
final class SplitProvider: CertificateProvider {
    static let id = ProviderID("split")
    static let descriptor = ProviderDescriptor(
        id: id, displayName: "Certificate and key", summary: "A certificate file, and a key in a secret source.",
        parameters: [certificate.descriptor, keySource.descriptor]
    ) { SplitProvider($0, $1) }
    private static let certificate = Parameter.required("certificate", .path, summary: "PEM, or DER for one")
    private static let keySource = Parameter.requiredSecretSource("key-source", summary: "PKCS#8, DER")

    var id: ProviderID { Self.id }
    private let environment: ProviderEnvironment
    private let certificate: String
    private let source: SecretSource

    /// The parameters are parsed and checked.
    init(_ environment: ProviderEnvironment, _ parameters: Parameters) {
        self.environment = environment
        certificate = parameters[Self.certificate]
        source = parameters[Self.keySource]
    }

    func getCertificate(_ interaction: any UserInteraction) async throws(ProviderError) -> Identity {
        guard let identity = try await environment.executor.run(getStoredCertificate) else {
            throw ProviderError(.notFound, "There is no identity.", provider: id)
        }
        try await identity.verifyPossession()
        return identity
    }

    /// Both can be read at any time, so nothing is stored in `environment.storage`.
    func getStoredCertificate() throws(ProviderError) -> Identity? {
        let chain = try CertificateFile.read(certificate)
        let key = try SoftwareKey(pkcs8: environment.secrets.read(source), location: .file)
        // Throws `keyMismatch` if the two do not belong together.
        return try Identity(certificateChain: chain, key: key, provenance: .init(provider: id, source: certificate))
    }

    func deleteStoredCertificate() throws(ProviderError) {}
}
