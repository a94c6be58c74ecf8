import CP11Kit
import CertificateProviding
import FaultyModuleControl
import Foundation
import Glibc
import PKCS11TokenProvider
import TestSupport
import Testing

/// Several modules that p11-kit is configured with. They are the same ones for all tests, since it has one
/// configuration for a process; other tests name their module by its path.
@Suite(
    .serialized, .timeLimit(.minutes(20)),
    .disabled(if: ProcessInfo.processInfo.environment["CERTPROV_TEST_MODULES"] != nil)
) struct SeveralModulesTests {
    /// Of p11-kit's interface for tests, which its header hides.
    private typealias OverrideSystemFiles =
        @convention(c) (
            UnsafePointer<CChar>?, UnsafePointer<CChar>?, UnsafePointer<CChar>?, UnsafePointer<CChar>?,
            UnsafePointer<CChar>?
        ) -> Void

    private static let configured = Result {
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
        guard let symbol = dlsym(nil, "p11_kit_override_system_files") else {
            throw FaultyModule.Failure(description: "another p11-kit")
        }
        // Kept by p11-kit.
        let path = strdup(directory.path)
        unsafeBitCast(symbol, to: OverrideSystemFiles.self)(nil, nil, path, path, path)
        return (directory: directory, first: modules[0], second: modules[1])
    }

    private let first, second: FaultyModule

    init() throws {
        let configured = try Self.configured.get()
        (first, second) = (configured.first, configured.second)
    }

    private func provider(_ uri: String = "pkcs11:", timeout: Int = 16) throws -> PKCS11TokenProvider {
        let values = ["uri": uri, "timeout": String(timeout), "login": "never"]
        let provider = try PKCS11TokenProvider(
            environment: .testing(), parameters: ProviderParameters(values.mapValues { .init($0) }))
        return provider
    }

    /// A host has modules for devices that it has not.
    @Test("A module that does not start is no failure for a token of another module")
    func oneThatDoesNotStartIsNoFaultOfATokenThatIsNamed() async throws {
        first.fail("C_Initialize", CKR_DEVICE_ERROR, times: 4)
        defer { first.fail("C_Initialize", CKR_OK, times: 0) }
        let list = try await provider("pkcs11:token=second").listIdentities()
        #expect(list.failures.isEmpty && list.identities.count == 1, "\(list.failures)")
        // Of all tokens something is missing.
        let all = try await provider().listIdentities()
        #expect(all.failures.map(\.code) == [.unavailable] && all.identities.count == 1, "\(all.failures)")
    }

    @Test(
        "A module that hangs does not hide the tokens of others",
        arguments: ["C_Initialize", "C_GetInfo", "C_GetSlotList", "C_GetTokenInfo", "C_FindObjectsInit"])
    func oneThatHangsHidesNoOther(function: String) async throws {
        // One that another test has left behind does not get that far again.
        await first.waitUntilFinalized()
        defer { first.control.release() }
        first.control.hold(function)
        var provider = try provider()
        var list = await provider.listIdentities()
        if list.identities.isEmpty {
            // A busy machine needs more time for the other one.
            provider = try self.provider(timeout: 240)
            list = await provider.listIdentities()
        }
        #expect(list.failures.map(\.code) == [.timedOut], "\(list.failures)")
        #expect(list.identities.map { $0.keyURI?.contains("second") } == [true])
        // A module that is known to hang costs no more time.
        #expect(await provider.listIdentities().identities.count == 1)
    }

    /// Hosts have modules for devices that they have not. A token that is away is one all the same, so that another
    /// provider is asked.
    @Test("A module that fails does not end the search for a token")
    func oneThatFailsIsNoReasonToLookNoFurther() async throws {
        let provider = try provider("pkcs11:token=third")
        first.fail("C_GetSlotList", CKR_DEVICE_ERROR, times: 4)
        defer { first.fail("C_GetSlotList", CKR_OK, times: 0) }
        #expect(try provider.getStoredCertificate() == nil)
        let error = await failure { try await provider.getCertificate(NoUserInteraction()) }
        #expect(error?.code == .tokenNotPresent && error?.message.contains("C_GetSlotList") == true)
    }

    /// One with readers that nothing can be put into shows a new token only after a start.
    @Test("A module is not started again for a token of another module", arguments: [true, false])
    func noneIsStartedAgainForATokenOfAnother(isFirst: Bool) async throws {
        [first, second].forEach { $0.control.fix_readers(1) }
        defer { [first, second].forEach { $0.control.fix_readers(0) } }
        let starts = [first, second].map { $0.calls("C_Initialize") }
        let provider = try provider("pkcs11:token=\(isFirst ? "first" : "second")", timeout: 600)
        #expect(await provider.listIdentities().identities.count == 1)
        for (module, before) in zip([first, second], starts) { #expect(module.calls("C_Initialize") <= before + 1) }
        await provider.shutdown()
    }

    @Test("A module that hangs in a shutdown keeps no other one from its end", arguments: [true, false])
    func oneThatHangsKeepsNoOtherFromItsEnd(isFirst: Bool) async throws {
        let (hanging, other) = isFirst ? (first, second) : (second, first)
        for module in [first, second] { await module.waitUntilFinalized() }
        defer { hanging.control.release() }
        let provider = try provider(timeout: 600)
        #expect(await provider.listIdentities().identities.count == 2)
        hanging.control.hold("C_Finalize")
        async let shutdown: Void = provider.shutdown()
        try await hanging.waitUntilHeld(1)
        await other.waitUntilFinalized()
        hanging.control.release()
        await shutdown
        await hanging.waitUntilFinalized()
    }

    /// As many signatures hang as a module has threads.
    @Test func signaturesThatHangTakeNoThreadFromAnother() async throws {
        defer { first.control.release() }
        first.control.set_visibility(0, 1, 1)
        second.control.insert(0, -1)
        let provider = try provider()
        let identity = try await provider.getCertificate(NoUserInteraction())
        second.control.insert(0, 0)
        first.control.hold("C_Sign")
        try await withThrowingTaskGroup(of: ProviderError.Code?.self) { tasks in
            for _ in 0..<40 { tasks.addTask { await code { _ = try await identity.key.signsValidly() } } }
            try await first.waitUntilHeld(16)
            let list = await provider.listIdentities()
            #expect(list.identities.map { $0.keyURI?.contains("second") } == [true], "\(list.failures)")
            for try await code in tasks { #expect(code == .timedOut) }
        }
    }
}
