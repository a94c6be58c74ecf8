import CertificateProviderTesting
import CertificateProviding
import Foundation
import PluginHost
import TPMKeyStore
import TestSupport
import Testing

/// The contract of key stores, on a software TPM.
@Suite(.serialized, .enabled(if: TestLength.hasSeconds), .timeLimit(.minutes(20))) struct TPMConformanceTests {
    /// Keys of each type, with their uses, and 64 signatures at once.
    @Test func inAService() async throws {
        let store = try TPMStore()
        let report = await KeyStoreConformance(place: "tpm:") { try store.store() }.run()
        #expect(report.isPassed && report.results.count > 6, "\(report)")
        #expect(try store.tpm.leftovers().isEmpty)
        #expect(try store.storage.recordNames().isEmpty)
    }

    @Test func inThePlugin() async throws {
        let tpm = try SoftwareTPM()
        let report = try await inPlugin([.p256, .rsa2048], ["tcti": tpm.tcti])
        #expect(report.isPassed && report.results.count > 6, "\(report)")
        #expect(try tpm.leftovers().isEmpty)
    }

    @Test("Keys attest, in a service and in the plugin, and leave nothing in the TPM", arguments: [false, true])
    func keysThatAttest(isInPlugin: Bool) async throws {
        let store = try TPMStore()
        let server = try AttestationServer(listing: store.tpm)
        let parameters = server.parameters.merging(["tcti": store.tpm.tcti]) { $1 }
        let report =
            isInPlugin
            ? try await inPlugin([.p256], parameters)
            : await KeyStoreConformance([.p256, .rsa2048], place: "tpm:") { try store.store("tpm:", parameters) }.run()
        #expect(report.isPassed && report.results.contains { $0.name.contains("attestation") }, "\(report)")
        #expect(try store.tpm.leftovers().isEmpty)
        #expect(server.count("certified the attestation key") == 1)
    }

    /// As two services have them, each with a process of its own.
    @Test func inTwoPluginsBehindTheResourceManager() async throws {
        let tpm = try SoftwareTPM()
        let manager = try ResourceManager(tpm)
        // The plugin gets the variable of its host.
        setenv(manager.bus.name, manager.bus.value, 1)
        let parameters = ["tcti": manager.tcti, "environment": manager.bus.name]
        try await withThrowingTaskGroup(of: ConformanceReport.self) { tasks in
            for _ in 0..<2 { tasks.addTask { try await inPlugin([.p256], parameters) } }
            for try await report in tasks { #expect(report.isPassed && report.results.count > 4, "\(report)") }
        }
        withExtendedLifetime(manager) {}
    }

    private func inPlugin(_ types: [KeyType], _ parameters: [String: String]) async throws -> ConformanceReport {
        let (storage, directory) = (InMemoryStorage(), try TemporaryDirectory())
        let built = URL(filePath: try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe"))
            .deletingLastPathComponent().appending(path: "certprov-plugin-tpm").path
        try directory.install("certprov-plugin-tpm", copying: built)
        let host = PluginHost(PluginDirectories([directory.path]), logger: ProviderEnvironment.testing().logger)
        let descriptor = try #require(try host.keyStore("tpm", ProviderParameters()))
        // A busy machine may take its time.
        let texts = parameters.merging(["timeout": "300"]) { $1 }.mapValues { ProviderParameters.Value($0) }
        let stores = try ProviderRegistry(keyStores: [descriptor]).keyStores(["tpm": ProviderParameters(texts)]) { _ in
            .testing(storage: storage)
        }
        let report = await KeyStoreConformance(types, place: "tpm:") { try stores.store("tpm:") }.run()
        await host.shutdown()
        return report
    }
}
