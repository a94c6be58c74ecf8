import CertificateProviding
import Foundation
import Logging
import TPMKeyStore
import TestSupport

/// The key store `tpm:` on a software TPM, as a service has it.
struct TPMStore {
    let tpm: SoftwareTPM
    let storage = InMemoryStorage()
    /// How far the wall clock is ahead.
    var ahead: Double = 0

    init(_ tpm: SoftwareTPM? = nil) throws { self.tpm = try tpm ?? SoftwareTPM() }

    /// Those of a service that has just started.
    func keyStores(
        _ parameters: [String: String] = [:], variables: [String: String] = [:]
    ) throws -> KeyStores {
        let texts = ["tcti": tpm.tcti].merging(parameters) { $1 }.mapValues { ProviderParameters.Value($0) }
        return try ProviderRegistry(keyStores: [.tpm]).keyStores(["tpm": ProviderParameters(texts)]) { _ in
            var environment = ProviderEnvironment.testing(storage: storage, variables: variables)
            environment.now = { [ahead] in Date() + ahead }
            return environment
        }
    }

    func store(
        _ place: String = "tpm:", _ parameters: [String: String] = [:], variables: [String: String] = [:]
    ) throws -> any KeyStore { try keyStores(parameters, variables: variables).store(place) }

    /// A new key.
    func make(
        _ type: KeyType = .p256, use: KeyUse = .signing, _ place: String = "tpm:", _ parameters: [String: String] = [:]
    ) async throws -> any IdentityKey {
        try await store(place, parameters).make(NewKey(type, label: "test", use: use), NoUserInteraction()) { _ in }
    }
}
