import ArgumentParser
import CertificateProviding
import FoundationEssentials
import Terminal

struct StoreCertificate: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "store-certificate",
        abstract: "Store an issued certificate with its private key on a token or in another key store.",
        discussion: """
            The file has the certificate and its intermediates, in any order, as PEM, or one certificate as DER. The \
            private key is found by the certificate's public key, and tested by signing a probe. A key store such as store: keeps no \
            certificates: the certificate stays in its file, and the provider pem uses both.
            """)

    @OptionGroup var options: GlobalOptions
    @OptionGroup var place: KeyStoreOptions

    @Argument(help: ArgumentHelp("The issued certificate.", valueName: "file"), completion: .file())
    var file: String

    @Flag(help: "Once the new certificate works, destroy the other certificates of its key on the token.")
    var replace = false

    func validate() throws { try place.check(options) }

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let (store, provider) = try await context.keyStore(place)
            let certificates = try CertificateFile.read(file)
            let interaction = context.interaction
            let (leaf, key) = try await Self.leaf(of: certificates, store, provider, interaction)
            try await context.requireUnnamed(key.publicKey)
            let chain = CertificateChain.build(from: leaf, among: certificates)
            let identity = try Identity(
                certificateChain: chain, key: key, usage: leaf.permits(.client) ? .client : .server,
                provenance: .init(provider: provider, source: key.uri))
            let reference = store.reference(to: key)
            var keeper = store.certificates
            var chosen: Identity?
            try await store.storeChain(chain, for: key, interaction)
            do throws(ProviderError) {
                chosen = try await keeper?.identity(reference.uri, interaction)
            } catch {
                // A plugin need not say that it keeps none.
                if error.code == .notFound {
                    keeper = nil
                } else {
                    context.remark("the certificate is stored, but cannot be used yet: \(error.message)")
                }
            }
            guard let keeper else {
                context.remark(
                    "'\(store.scheme):' keeps no certificates, so that this one stays in its file. The provider 'pem' uses "
                        + "both: set its 'certificate' to \(RegularFile.absolute(file).withVisibleControls) and its 'key' to "
                        + "'\(store.scheme):'.")
                return try show(identity, context)
            }
            if replace {
                // The others may be all that works.
                guard chosen?.certificate == leaf else {
                    throw ProviderError(
                        .operationNotAllowed,
                        "The certificate is stored, and no other one is removed: "
                            + (chosen.map {
                                "the one that expires on \($0.certificate.notValidAfter.rfc3339) is chosen for the key."
                            }
                                ?? "the new one cannot be used yet.")
                            + " Remove certificates that are not needed with the token's own tool.", provider: provider)
                }
                try await keeper.removeOtherCertificates(than: leaf, of: reference, interaction)
            }
            return try show(identity, context)
        }
    }

    private func show(_ identity: Identity, _ context: CommandContext) throws(ProviderError) -> ExitStatus {
        let now = Date()
        let listed = ListedIdentity(identity, isStored: false)
        guard let document = IdentityDocument(listed, now: now) else {
            throw ProviderError(.internal, "The identity has no certificate.")
        }
        try context.show(StoredCertificateDocument(identity: document)) { List.table([listed], now: now) }
        return .done
    }

    /// The certificate whose private key is on the token. It is not always the first: CAs often put their own first.
    private static func leaf(
        of certificates: [X509Certificate], _ store: any KeyStore, _ provider: ProviderID,
        _ interaction: any UserInteraction
    ) async throws(ProviderError) -> (X509Certificate, any IdentityKey) {
        for certificate in certificates.filter({ !$0.isAuthority }) + certificates.filter(\.isAuthority) {
            let reference = KeyReference(publicKey: certificate.publicKey, uri: "")
            if let key = try await store.key(for: reference, interaction) { return (certificate, key) }
        }
        throw ProviderError(
            .notFound,
            "The key store has no private key for '\(certificates.first?.subject ?? "")'; use the one that the "
                + "request is from.",
            provider: provider)
    }
}

/// The result of `store-certificate`.
private struct StoredCertificateDocument: CommandDocument {
    static let kind = "Identity"

    let identity: IdentityDocument
}
