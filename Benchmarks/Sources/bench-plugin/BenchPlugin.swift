import CertificateProviding
import PKCS11TokenProvider
import PKCS12FileProvider
import PluginKit

/// The plugins that are measured, by the name of the file: `certprov-plugin-token` is the token provider,
/// `certprov-plugin-memory` has the key of a PKCS#12 file in its memory.
@main struct BenchPlugin {
    static func main() async {
        let isToken = CommandLine.arguments.first?.hasSuffix("token") ?? false
        let inner = isToken ? ProviderDescriptor.pkcs11 : .pkcs12
        await Plugin(
            ProviderDescriptor(
                id: isToken ? ProviderID("token") : ProviderID("memory"), displayName: inner.displayName,
                summary: inner.summary, parameters: inner.parameters
            ) { environment, parameters throws(ProviderError) in
                var texts = ProviderParameters()
                for declared in inner.parameters {
                    let parameter = Parameter<String?>.string(declared.name, defaultValue: "", summary: "")
                    texts[declared.name] = parameters.text(parameter).map { .init($0) }
                }
                return KeptProvider(
                    ProviderID(rawValue: isToken ? "token" : "memory") ?? inner.id,
                    try inner.makeProvider(environment, texts))
            }
        ).run()
    }
}

/// A provider whose keys stay in this process.
private final class KeptProvider: CertificateProvider {
    let id: ProviderID
    private let provider: any CertificateProvider

    init(_ id: ProviderID, _ provider: any CertificateProvider) { (self.id, self.provider) = (id, provider) }

    func getCertificate(_ interaction: any UserInteraction) async throws(ProviderError) -> Identity {
        try kept(try await provider.getCertificate(interaction))
    }

    func getStoredCertificate() throws(ProviderError) -> Identity? {
        try provider.getStoredCertificate().map { identity throws(ProviderError) in try kept(identity) }
    }

    func deleteStoredCertificate() throws(ProviderError) { try provider.deleteStoredCertificate() }

    func shutdown() async { await provider.shutdown() }

    private func kept(_ identity: Identity) throws(ProviderError) -> Identity {
        try Identity(
            certificateChain: identity.certificateChain, key: KeptKey(key: identity.key),
            provenance: .init(provider: id))
    }
}

/// A key without an exporter.
private struct KeptKey: IdentityKey {
    let key: any IdentityKey
    var publicKey: PublicKeyInfo { key.publicKey }
    var signatureSchemes: [SignatureScheme] { key.signatureSchemes }
    var location: KeyLocation { key.location }
    var use: KeyUse { key.use }
    var digestSigner: (any DigestSigning)? { key.digestSigner }
    var callbackSigner: (any CallbackSigning)? { key.callbackSigner }

    func signature(
        for message: [UInt8], using scheme: SignatureScheme
    ) async throws(ProviderError) -> [UInt8] { try await key.signature(for: message, using: scheme) }
}
