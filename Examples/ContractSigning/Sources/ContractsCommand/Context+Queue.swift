import CertificateProviding
import CertprovKit
import Contracts

extension Context {
    /// The contracts of this host: in its identity store, or in the vault of the registered application.
    func queue() throws(ProviderError) -> ContractQueue {
        try ContractQueue(
            storage: logon.manager.environment(of: ProviderID("contracts_")).storage,
            documents: DocumentDirectory(path: StateDirectory.path() + "/contracts"))
    }
}
