import CertificateProviding
import Foundation
import Glibc
import PKCS11TokenProvider
import TestSupport
import Testing

/// A host on which p11-kit is configured with no module for tokens.
///
/// p11-kit has one configuration for a process, so this runs again in a process of its own.
@Suite(.timeLimit(.minutes(20))) struct NoModuleTests {
    /// The directory of p11-kit's configuration, in the process within.
    private static let modules = ProcessInfo.processInfo.environment["CERTPROV_TEST_NO_MODULES"]

    @Test("A host without a module has no token, and is told what to install", .enabled(if: modules == nil))
    func aHostWithoutAModule() async throws {
        let directory = try TemporaryDirectory()
        try await Subprocess.runTests(
            ["aModuleThatIsInstalledLaterIsFound"], of: "NoModuleTests",
            with: ["CERTPROV_TEST_NO_MODULES=\(directory.path)"])
    }

    /// Of p11-kit's interface for tests, which its header hides.
    private typealias OverrideSystemFiles =
        @convention(c) (
            UnsafePointer<CChar>?, UnsafePointer<CChar>?, UnsafePointer<CChar>?, UnsafePointer<CChar>?,
            UnsafePointer<CChar>?
        ) -> Void

    @Test(.enabled(if: modules != nil)) func aModuleThatIsInstalledLaterIsFound() async throws {
        let symbol = try #require(dlsym(nil, "p11_kit_override_system_files"))
        let path = try #require(Self.modules)
        // Kept by p11-kit.
        let modules = strdup(path)
        unsafeBitCast(symbol, to: OverrideSystemFiles.self)(nil, nil, modules, modules, modules)
        let provider = try PKCS11TokenProvider(
            environment: .testing(),
            parameters: ProviderParameters(["login": .init("never"), "timeout": .init("600")]))
        let list = await provider.listIdentities()
        #expect(list.failures.isEmpty && list.remarks.count == 1, "\(list)")
        #expect(list.remarks.first?.contains("install the one of the token") == true, "\(list.remarks)")
        // The next provider of a sequence is asked.
        #expect(try provider.getStoredCertificate() == nil)
        let error = await failure { try await provider.getCertificate(NoUserInteraction()) }
        #expect(error?.code == .tokenNotPresent && error?.message.contains("set 'module-path'") == true)
        let module = try FaultyModule.withIdentity()
        try Data("module: \(module.path)\n".utf8).write(to: URL(fileURLWithPath: path + "/faulty.module"))
        // p11-kit reads its configuration anew when nothing of it is in use: what the calls before have loaded is given back after
        // they have returned.
        var found = 0
        for _ in 0..<3000 where found == 0 {
            found = await provider.listIdentities().identities.count
            if found == 0 { try await Task.sleep(for: .milliseconds(10)) }
        }
        #expect(found == 1)
    }
}
