import CertificateProviding
import Synchronization

/// A private key in an agent, or on its way there.
final class AgentKey: IdentityKey {
    var publicKey: PublicKeyInfo { key.info }
    var signatureSchemes: [SignatureScheme] { [key.type.scheme] }
    var location: KeyLocation { .plugin }
    var uri: String? { key.uri }
    var signatureTimeout: Duration? { Agent.signatureTimeout }

    private let key: SSHPublicKey
    private let agent: Agent
    private let executor: BlockingExecutor
    /// Signs until the key is in the agent.
    private let new: Mutex<SoftwareKey?>

    init(_ key: SSHPublicKey, in agent: Agent, _ executor: BlockingExecutor, signingWith new: SoftwareKey? = nil) {
        (self.key, self.agent, self.executor) = (key, agent, executor)
        self.new = Mutex(new)
    }

    /// Drops the private key of a new key. Its memory is wiped.
    func forget() { new.withLock { $0 = nil } }

    func signature(
        for message: [UInt8], using scheme: SignatureScheme
    ) async throws(ProviderError) -> [UInt8] {
        guard signatureSchemes.contains(scheme) else {
            throw ProviderError(
                .unsupportedAlgorithm,
                "A key of type \(publicKey.displayName) in an ssh-agent cannot sign with \(scheme).")
        }
        if let new = new.withLock(\.self) { return try await new.signature(for: message, using: scheme) }
        return try await executor.run { [agent, key] () throws(ProviderError) in
            try agent.signature(for: message, by: key)
        }
    }
}
