import CertificateProviding
import Foundation
import PKCS11TokenProvider
import TestSupport
import Testing

/// Logins with right and wrong PINs. One after the other: a TPM has no room for more.
@Suite(.serialized, .timeLimit(.minutes(20))) struct LoginTests {
    /// A login belongs to the process, so that all of it is one test.
    @Test(arguments: TestModule.installed) func getsItWithThePINOfAPerson(module: TestModule) async throws {
        let setup = try TokenSetup(module, .person, pin: .none)
        let provider = try setup.provider()
        // Nothing prompts here.
        #expect(try provider.getStoredCertificate() == nil)
        #expect(
            await failure { _ = try await provider.getCertificate(NoUserInteraction()) }?.code == .interactionRequired)

        let person = Person(TokenFarm.pin)
        let identity = try await provider.getCertificate(person)
        #expect(person.questions == ["PIN for the token '\(module.label(.person))'"])
        try await identity.verifyPossession()
        // The PIN is known now.
        #expect(try provider.getStoredCertificate()?.certificate == identity.certificate)
        _ = try await provider.getCertificate(person)
        #expect(person.questions.count == 1)

        try provider.deleteStoredCertificate()
        #expect(try provider.getStoredCertificate() == nil)
        let error = await failure { try await identity.verifyPossession() }
        #expect(error?.code == .interactionRequired, "\(String(describing: error))")
        // Nothing on the token is gone.
        _ = try await provider.getCertificate(person)
        #expect(person.questions.count == 2)
        try await identity.verifyPossession()
        try provider.deleteStoredCertificate()
        try provider.deleteStoredCertificate()
    }

    /// Restarts with a wrong PIN cost one try, which a token that counts would show by its lock: the TPM locks at the third.
    /// The count of SoftHSM is reset by a right PIN.
    @Test(arguments: TestModule.installed) func aWrongPINIsSentOnce(module: TestModule) async throws {
        let setup = try TokenSetup(module, .pins, pin: .wrong)
        for restart in 0..<10 {
            let error = await failure { _ = try await setup.identity() }
            #expect(error?.code == .pinIncorrect, "\(restart): \(String(describing: error))")
            #expect(error?.message.contains(TokenFarm.wrongPIN) == false)
            if restart == 0, TestModule.softHSMs.contains(module) {
                #expect(try hasSeenAWrongPIN(module))
                try TokenFarm.shared().pkcs11Tool(.softhsm, module.label(.pins), "--list-objects")
            }
        }
        if TestModule.softHSMs.contains(module) { #expect(try !hasSeenAWrongPIN(module)) }
        let list = await (try setup.provider()).listIdentities()
        #expect(list.failures.map(\.code) == [.pinIncorrect] && list.identities.count == 1)
        #expect(throws: ProviderError.self) { try setup.provider().getStoredCertificate() }

        // Neither does a person's, and the right one still works.
        var byHand = try TokenSetup(module, .pins, pin: .none)
        byHand.storage = setup.storage
        let (provider, person) = (try byHand.provider(), Person(TokenFarm.pin))
        try await provider.getCertificate(person).verifyPossession()
        #expect(person.questions.count == 1)
        try provider.deleteStoredCertificate()
        for log in [setup.log, byHand.log] {
            #expect(!log.text.contains(TokenFarm.wrongPIN) && !log.text.contains(TokenFarm.pin))
        }
    }

    /// Returns whether the token's flags, read by another process, show a wrong PIN.
    private func hasSeenAWrongPIN(_ module: TestModule) throws -> Bool {
        let slots = String(
            decoding: try Subprocess.run(["pkcs11-tool", "--module", module.library, "--list-token-slots"]),
            as: UTF8.self)
        let slot = try #require(
            slots.components(separatedBy: "Slot ").first { $0.contains(": \(module.label(.pins))\n") }, "\(slots)")
        return slot.contains("user PIN count low")
    }

    /// One thread's logout takes the login from all; the next signature takes it back where a PIN is configured.
    @Test(arguments: TestModule.installed) func aLogoutElsewhereDoesNotStopAService(module: TestModule) async throws {
        let (service, other) = (try TokenSetup(module, .person), try TokenSetup(module, .person))
        let first = try service.provider()
        let identity = try await first.getCertificate(NoUserInteraction())
        let provider = try other.provider()
        _ = try await provider.getCertificate(NoUserInteraction())
        try provider.deleteStoredCertificate()
        try await identity.verifyPossession()
        try first.deleteStoredCertificate()
    }
}
