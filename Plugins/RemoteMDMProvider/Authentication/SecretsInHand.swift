import CertificateProviding
import Synchronization

/// The secrets of one run, cached by their prompts: the user is asked for each once.
final class SecretsInHand: Sendable {
    private let secrets = Mutex<[String: SecretBytes]>([:])

    func secret(
        _ prompt: String, orAsk ask: () async throws(CertificateProviderError) -> SecretBytes
    ) async throws(CertificateProviderError) -> SecretBytes {
        if let secret = secrets.withLock({ $0[prompt] }) { return secret }
        let secret = try await ask()
        secrets.withLock { $0[prompt] = secret }
        return secret
    }
}
