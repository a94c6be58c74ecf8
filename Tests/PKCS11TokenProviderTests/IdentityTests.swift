import CertificateProviding
import PKCS11TokenProvider
import TestSupport
import Testing

/// Getting the identity, having it, and forgetting it.
@Suite(.timeLimit(.minutes(20))) struct IdentityTests {
    @Test(arguments: TestModule.installed) func getsItWithThePINOfAFile(module: TestModule) async throws {
        let setup = try TokenSetup(module)
        let provider = try setup.provider()
        let identity = try await provider.getCertificate(NoUserInteraction())
        let farm = try TokenFarm.shared()
        #expect(identity.certificateChain.map(\.isAuthority) == [false, true])
        #expect(identity.certificateChain.last == farm.authority.intermediate)
        #expect(
            identity.provenance.provider == PKCS11TokenProvider.id
                && identity.provenance.alias == module.kinds[0].rawValue)
        let stored = try #require(try provider.getStoredCertificate())
        #expect(stored.certificate == identity.certificate)
        // As after a restart.
        #expect(try setup.provider().getStoredCertificate()?.certificate == identity.certificate)
    }

    @Test(arguments: TestModule.installed) func aPersonMayGiveUp(module: TestModule) async throws {
        let refusal = Person { _ throws(ProviderError) in
            throw ProviderError(.userCancelled, "No.")
        }
        let provider = try TokenSetup(module, .closed, pin: .none).provider()
        #expect(await failure { _ = try await provider.getCertificate(refusal) }?.code == .userCancelled)
    }

    @Test(arguments: TestModule.installed) func loginNeverHasNoKey(module: TestModule) async throws {
        let setup = try TokenSetup(module, .closed).with("login", "never")
        let error = await failure { _ = try await setup.identity() }
        #expect(error?.code == .interactionRequired || error?.code == .notFound, "\(String(describing: error))")
    }

    @Test(arguments: TestModule.installed) func loginAlwaysSignsToo(module: TestModule) async throws {
        try await TokenSetup(module).with("login", "always").identity().verifyPossession()
    }
}
