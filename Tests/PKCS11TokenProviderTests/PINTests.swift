import CertificateProviding
import Foundation
import PKCS11TokenProvider
import TestSupport
import Testing

/// A PIN that a token has rejected is not sent to it again.
@Suite(.timeLimit(.minutes(5))) struct PINTests {
    /// Restarts with a wrong PIN cost one try, which a token that counts would show by its lock: the TPM locks at the
    /// third. That of SoftHSM forgets at a right PIN that it has seen a wrong one.
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
        #expect(throws: CertificateProviderError.self) { try setup.provider().getStoredCertificate() }

        // Neither does a person's, and the right one still works.
        var byHand = try TokenSetup(module, .pins, pin: .none)
        byHand.storage = setup.storage
        let (provider, person) = (try byHand.provider(), Person(TokenFarm.pin))
        try await provider.getCertificate(person).verifyPossession()
        #expect(person.questions.count == 1)
        for log in [setup.log, byHand.log] {
            #expect(!log.text.contains(TokenFarm.wrongPIN) && !log.text.contains(TokenFarm.pin))
        }
    }

    /// What the token says of itself to another process.
    private func hasSeenAWrongPIN(_ module: TestModule) throws -> Bool {
        let slots = String(
            decoding: try Subprocess.run(["pkcs11-tool", "--module", module.library, "--list-token-slots"]), as: UTF8.self)
        let slot = try #require(
            slots.components(separatedBy: "Slot ").first { $0.contains(": \(module.label(.pins))\n") }, "\(slots)")
        return slot.contains("user PIN count low")
    }

    @Test(arguments: TestModule.installed) func aPINInTheURIWorksAndIsReported(module: TestModule) async throws {
        var setup = try TokenSetup(module, pin: .none)
        setup.uri += "&pin-value=" + TokenFarm.pin
        try await setup.identity().verifyPossession()
        let list = await (try setup.provider()).listIdentities()
        #expect(list.identities.count == 1 && list.failures.isEmpty)
        #expect(list.remarks.contains { $0.contains("'pin-value'") && $0.contains("'pin-source'") }, "\(list.remarks)")
        #expect(setup.log.text.contains("pin-value"))
        #expect(!"\(list.remarks) \(list.identities) \(setup.log.text)".contains(TokenFarm.pin))
    }

    @Test(arguments: TestModule.installed) func theURIMayNameTheFile(module: TestModule) async throws {
        let file = try TokenFarm.shared().file("pin")
        for source in [file, "file:\(file)", "file://\(file)"] {
            var setup = try TokenSetup(module, pin: .none)
            setup.uri += "&pin-source=" + source
            try await setup.identity().verifyPossession()
        }
    }

    @Test(arguments: [
        "pkcs11:?pin-source=|/bin/echo%201234", "pkcs11:?pin-source=%7c/bin/echo", "pkcs11:?pin-source=relative",
        "pkcs11:slot-id=0", "pkcs11:token=a;pin-value=1234", "pkcs11:token=a;unknown=1", "pkcs11:token=%zz", "http://a",
    ])
    func aURIThatIsRefused(uri: String) throws {
        var setup = try TokenSetup(.softhsm, pin: .none)
        setup.uri = uri
        let error = #expect(throws: CertificateProviderError.self) { try setup.provider() }
        #expect(error?.code == .configurationInvalid && error?.message.contains("1234") == false, "\(String(describing: error))")
    }

    @Test(arguments: [("login", "perhaps"), ("timeout", "0"), ("delete-objects", "2"), ("pin-source", "1234")])
    func aParameterThatIsRefused(name: String, value: String) throws {
        let error = #expect(throws: CertificateProviderError.self) {
            try TokenSetup(.softhsm, pin: .none).with(name, value).provider()
        }
        #expect(error?.code == .configurationInvalid && error?.message.contains("1234") == false)
    }
}
