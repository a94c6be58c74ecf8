import CP11Kit
import CertificateProviding
import FaultyModuleControl
import PKCS11TokenProvider
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(5))) struct MechanismTests {
    private func identity(_ mechanisms: [CK_MECHANISM_TYPE]) async throws -> Identity {
        let module = try FaultyModule()
        module.control.set_token(0, "alpha", "0001", FaultyModule.pin)
        module.control.set_mechanisms(0, mechanisms, UInt32(mechanisms.count))
        try module.add(FaultyModule.rsaIdentity.get(), to: 0)
        module.control.insert(0, 0)
        return try await module.provider().getCertificate(NoUserInteraction())
    }

    private static let schemes: [SignatureScheme] = [
        .rsaPSSRSAESHA256, .rsaPSSRSAESHA384, .rsaPSSRSAESHA512, .rsaPKCS1SHA256, .rsaPKCS1SHA384, .rsaPKCS1SHA512,
    ]

    @Test(arguments: [[CKM_RSA_X_509], [CKM_RSA_PKCS, CKM_RSA_PKCS_PSS]])
    func everyRSASchemeVerifies(mechanisms: [CK_MECHANISM_TYPE]) async throws {
        let identity = try await identity(mechanisms)
        #expect(identity.key.signatureSchemes == Self.schemes)
        for scheme in Self.schemes { #expect(try await identity.key.signsValidly(scheme), "\(scheme)") }
    }

    @Test func whatTheTokenLacksIsNotOffered() async throws {
        let identity = try await identity([CKM_RSA_PKCS])
        #expect(identity.key.signatureSchemes == [.rsaPKCS1SHA256, .rsaPKCS1SHA384, .rsaPKCS1SHA512])
        #expect(await code { _ = try await identity.key.signsValidly(.rsaPSSRSAESHA256) } == .unsupportedAlgorithm)
    }

    @Test(arguments: [[], [CKM_ECDSA]]) func noMechanismIsAClearError(mechanisms: [CK_MECHANISM_TYPE]) async throws {
        #expect(await code { _ = try await identity(mechanisms) } == .unsupportedAlgorithm)
    }
}
