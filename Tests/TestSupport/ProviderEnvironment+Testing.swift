public import CertificateProviding
import IdentityStore
import Logging
public import ProviderTransport

extension ProviderEnvironment {
    /// An environment that leaves nothing behind.
    ///
    /// - Parameters:
    ///   - storage: Also of the key store `store:`.
    ///   - keyStores: Others than that, each with the part of the identity store that it gets.
    public static func testing(
        storage: any IdentityStorage = InMemoryStorage(), variables: [String: String] = [:],
        keyStores: [(KeyStoreDescriptor, any IdentityStorage)] = [], transport: Transport = Transport()
    ) -> ProviderEnvironment {
        var plain = ProviderEnvironment(
            storage: storage, secrets: SecretReader { variables[$0] },
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
            executor: BlockingExecutor.threads())
        plain.transport = transport
        let environment = plain
        var whole = environment
        let all = [(SealedKeyStore.descriptor, storage)] + keyStores
        whole.keyStores = KeyStores(schemes: all.map(\.0.scheme)) { location throws(ProviderError) in
            guard let (descriptor, storage) = all.first(where: { $0.0.scheme == location.scheme }) else { return nil }
            var own = environment
            own.storage = storage
            let parameters = try Parameters(
                ProviderParameters(), of: descriptor.parameters, owner: descriptor.id, keyStores: .none)
            return try descriptor.make(own, location, parameters)
        }
        return whole
    }
}
