import CertificateProviding
import FaultyModuleControl
import PKCS11TokenProvider
import TestSupport
import Testing

/// OpenSC 0.23 leaves a lock locked where a card is pulled out in the middle of a call.
@Suite(.timeLimit(.minutes(20))) struct ForgottenLockTests {
    @Test(arguments: ["C_Sign", "C_GetTokenInfo", "C_GetSessionInfo", "C_Login"])
    func aLockThatACallForgetsStopsNoOther(function: String) async throws {
        let module = try FaultyModule.withIdentity(named: "opensc-pkcs11.so")
        let provider = try module.provider(["timeout": "300", "uri": "pkcs11:token=alpha"])
        let identity = try await provider.getCertificate(NoUserInteraction())
        for _ in 0..<3 {
            module.control.forget_mutex(function)
            module.control.insert(0, -1)
            #expect(await code { _ = try await identity.key.signsValidly() } == .tokenNotPresent)
            module.control.insert(0, 0)
            try await withThrowingTaskGroup(of: Bool.self) { tasks in
                for _ in 0..<20 { tasks.addTask { try await identity.key.signsValidly() } }
                for try await isValid in tasks { #expect(isValid) }
            }
        }
        #expect(module.control.shared_uses() == 0 && module.control.tries_left(0) == 3)
    }
}
