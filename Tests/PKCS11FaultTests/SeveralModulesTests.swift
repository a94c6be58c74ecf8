import CertificateProviding
import FaultyModuleControl
import Foundation
import Glibc
import PKCS11TokenProvider
import TestSupport
import Testing

/// Several modules that p11-kit is configured with. One test, since it has one configuration for a process; all others
/// name their module by its path.
@Suite(.timeLimit(.minutes(5))) struct SeveralModulesTests {
    /// Of p11-kit's interface for tests, which its header hides.
    private typealias OverrideSystemFiles =
        @convention(c) (
            UnsafePointer<CChar>?, UnsafePointer<CChar>?, UnsafePointer<CChar>?, UnsafePointer<CChar>?,
            UnsafePointer<CChar>?
        ) -> Void

    @Test(.disabled(if: ProcessInfo.processInfo.environment["CERTPROV_TEST_MODULES"] != nil))
    func oneThatHangsHidesNoOther() async throws {
        let directory = try TemporaryDirectory()
        var modules: [FaultyModule] = []
        for (index, label) in ["first", "second"].enumerated() {
            let module = try FaultyModule()
            module.control.set_token(0, label, "000\(index)", FaultyModule.pin)
            try module.add(FaultyModule.authority.get().issue(label), to: 0)
            module.control.insert(0, 0)
            try directory.write("module: \(module.path)\n".utf8, to: label + ".module", mode: 0o644)
            modules.append(module)
        }
        let symbol = try #require(dlsym(nil, "p11_kit_override_system_files"))
        // Kept by p11-kit.
        let path = strdup(directory.path)
        unsafeBitCast(symbol, to: OverrideSystemFiles.self)(nil, nil, path, path, path)
        let first = modules[0]
        defer { first.control.release() }
        for function in ["C_Initialize", "C_GetInfo", "C_GetSlotList", "C_GetTokenInfo", "C_FindObjectsInit"] {
            first.control.hold(function)
            let provider = PKCS11TokenProvider(environment: .testing(variables: ["PIN": FaultyModule.pin]))
            let values = ["uri": "pkcs11:", "timeout": "6", "pin-source": "env:PIN", "login": "never"]
            try provider.setParameters(ProviderParameters(values.mapValues { .init($0) }))
            let list = await provider.listIdentities()
            #expect(list.failures.map(\.code) == [.timedOut], "\(function): \(list.failures)")
            #expect(list.identities.map { $0.keyURI?.contains("second") } == [true])
            // What is known to hang costs nothing more.
            #expect(await provider.listIdentities().identities.count == 1)
            first.control.release()
        }
    }
}
