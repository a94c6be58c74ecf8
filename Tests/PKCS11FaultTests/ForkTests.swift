import CertificateProviding
import FaultyModuleControl
import Foundation
import Glibc
import PKCS11TokenProvider
import TestSupport
import Testing

/// A child of a process that uses a token. Only in a process with no other threads, whose locks are free at the fork.
@Suite(.timeLimit(.minutes(20))) struct ForkTests {
    private static let isWithin = ProcessInfo.processInfo.environment["CERTPROV_TEST_FORK"] != nil

    @Test(.disabled(if: isWithin)) func inAProcessOfItsOwn() async throws {
        try await Subprocess.runTests(["aChildHasNoProvider"], of: "ForkTests", with: ["CERTPROV_TEST_FORK=1"])
    }

    @Test(.enabled(if: isWithin)) func aChildHasNoProvider() async throws {
        let module = try FaultyModule.withIdentity()
        let provider = try module.provider()
        let identity = try await provider.getCertificate(NoUserInteraction())
        let openings = module.calls("C_OpenSession")
        // Swift hides it, for a reason: what the child does here is little.
        let fork = unsafeBitCast(try #require(dlsym(nil, "fork")), to: (@convention(c) () -> pid_t).self)
        let child = fork()
        if child == 0 {
            alarm(30)
            do throws(ProviderError) { _ = try provider.getStoredCertificate() } catch {
                _exit(error.code == .operationNotAllowed ? 0 : 2)
            }
            _exit(1)
        }
        try #require(child > 0)
        var status: Int32 = -1
        #expect(waitpid(child, &status, 0) == child && status == 0)
        #expect(try await identity.key.signsValidly())
        #expect(module.calls("C_OpenSession") == openings)
    }
}
