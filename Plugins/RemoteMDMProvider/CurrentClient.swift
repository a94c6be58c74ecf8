import CertificateProviding
import Synchronization

/// The client of a session, which is there once it has connected.
final class CurrentClient<Client: Sendable>: Sendable {
    private let client = Mutex<Client?>(nil)

    func set(_ new: Client) { client.withLock { $0 = new } }

    func get() throws(ProviderError) -> Client {
        if let client = client.withLock(\.self) { return client }
        throw ProviderError(.internal, "A request was made before the connection.")
    }
}
