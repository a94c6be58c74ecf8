import CP11Kit
import CertificateProviding
import FaultyModuleControl
import PKCS11TokenProvider
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(20))) struct MechanismTests {
    private func module(_ mechanisms: [CK_MECHANISM_TYPE]) throws -> FaultyModule {
        let module = try FaultyModule.withIdentity(FaultyModule.rsaIdentity.get())
        module.control.set_mechanisms(0, mechanisms, UInt32(mechanisms.count))
        return module
    }

    private func identity(_ mechanisms: [CK_MECHANISM_TYPE]) async throws -> Identity {
        let module = try module(mechanisms)
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
        let signer = try #require(identity.key.digestSigner)
        #expect(signer.digestSchemes == Self.schemes)
        for scheme in Self.schemes {
            #expect(try await identity.key.signsDigestValidly(scheme), "\(scheme)")
        }
    }

    @Test("A token that hashes by itself signs no digest of the caller")
    func aTokenThatHashesSignsNoDigest() async throws {
        // No probe is signed for a key that shows its modulus: this module knows the names of these mechanisms only.
        let module = try module([CKM_SHA256_RSA_PKCS, CKM_SHA256_RSA_PKCS_PSS])
        let key = try #require(try module.provider().getStoredCertificate()).key
        #expect(key.signatureSchemes == [.rsaPSSRSAESHA256, .rsaPKCS1SHA256] && key.digestSigner == nil)
        let mixed = try await identity([CKM_RSA_PKCS_PSS, CKM_SHA256_RSA_PKCS]).key
        #expect(mixed.signatureSchemes.contains(.rsaPKCS1SHA256))
        #expect(mixed.digestSigner?.digestSchemes == Array(Self.schemes.prefix(3)))
        for scheme in Self.schemes.prefix(3) { #expect(try await mixed.signsDigestValidly(scheme), "\(scheme)") }
        #expect(await code { _ = try await mixed.signsDigestValidly(.rsaPKCS1SHA256) } == .unsupportedAlgorithm)
    }

    @Test("A key offers no scheme whose mechanism the token lacks")
    func whatTheTokenLacksIsNotOffered() async throws {
        let identity = try await identity([CKM_RSA_PKCS])
        #expect(identity.key.signatureSchemes == [.rsaPKCS1SHA256, .rsaPKCS1SHA384, .rsaPKCS1SHA512])
        #expect(await code { _ = try await identity.key.signsValidly(.rsaPSSRSAESHA256) } == .unsupportedAlgorithm)
    }

    /// The token's limits for PSS, and whether they rule it out for a key of 2048 bits. Sizes are bits, or bytes.
    private static let infos: [(CK_MECHANISM_INFO, Bool)] = [
        (CK_MECHANISM_INFO(ulMinKeySize: 0, ulMaxKeySize: 0, flags: 0), false),
        (CK_MECHANISM_INFO(ulMinKeySize: 0, ulMaxKeySize: 0, flags: UInt(CKF_SIGN)), false),
        (CK_MECHANISM_INFO(ulMinKeySize: 512, ulMaxKeySize: 4096, flags: UInt(CKF_HW)), false),
        (CK_MECHANISM_INFO(ulMinKeySize: 512, ulMaxKeySize: 4096, flags: UInt(CKF_SIGN | CKF_VERIFY)), false),
        (CK_MECHANISM_INFO(ulMinKeySize: 128, ulMaxKeySize: 512, flags: UInt(CKF_SIGN)), false),
        (CK_MECHANISM_INFO(ulMinKeySize: 4096, ulMaxKeySize: 128, flags: UInt(CKF_SIGN)), false),
        (CK_MECHANISM_INFO(ulMinKeySize: 512, ulMaxKeySize: .max, flags: UInt(CKF_SIGN)), false),
        (CK_MECHANISM_INFO(ulMinKeySize: 512, ulMaxKeySize: 4096, flags: UInt(CKF_VERIFY)), true),
        (CK_MECHANISM_INFO(ulMinKeySize: 512, ulMaxKeySize: 1024, flags: UInt(CKF_SIGN)), true),
        (CK_MECHANISM_INFO(ulMinKeySize: 3072, ulMaxKeySize: 4096, flags: UInt(CKF_SIGN)), true),
    ]

    @Test("Key sizes and flags of a mechanism decide whether it is offered", arguments: infos)
    func whatTheTokenSaysOfAMechanismCounts(info: CK_MECHANISM_INFO, rulesOut: Bool) async throws {
        let module = try module([CKM_RSA_PKCS, CKM_RSA_PKCS_PSS])
        module.control.set_mechanism_info(0, CKM_RSA_PKCS_PSS, info)
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        #expect(identity.key.signatureSchemes == (rulesOut ? Array(Self.schemes.suffix(3)) : Self.schemes))
        for scheme in identity.key.signatureSchemes {
            #expect(try await identity.key.signsValidly(scheme), "\(scheme)")
        }
        // Once for each, and never again.
        #expect(module.calls("C_GetMechanismInfo") == 2)
    }

    @Test func aModuleThatTellsNothingIsTried() async throws {
        let module = try module([CKM_RSA_PKCS, CKM_RSA_PKCS_PSS])
        module.fail("C_GetMechanismInfo", CKR_FUNCTION_NOT_SUPPORTED, times: .max)
        #expect(try await module.provider().getCertificate(NoUserInteraction()).key.signatureSchemes == Self.schemes)
    }

    /// It is in the list, and the key does not know it.
    @Test(arguments: [CKR_MECHANISM_INVALID, CKR_MECHANISM_PARAM_INVALID])
    func aRefusedMechanismIsNotTheLast(result: CK_RV) async throws {
        let module = try module([CKM_RSA_PKCS_PSS, CKM_RSA_X_509])
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        for scheme in Self.schemes.prefix(3) {
            module.fail("C_SignInit", result)
            #expect(try await identity.key.signsValidly(scheme))
        }
        module.fail("C_SignInit", result, times: 2)
        #expect(await code { _ = try await identity.key.signsValidly(Self.schemes[0]) } == .unsupportedAlgorithm)
    }

    @Test func aKeyWithoutPSSIsRemarkedOn() async throws {
        let module = try module([CKM_RSA_PKCS])
        let list = try await module.provider().listIdentities()
        #expect(list.identities.count == 1, "\(list)")
        #expect(list.remarks.count == 1 && list.remarks[0].contains("TLS 1.3") && list.remarks[0].contains("alpha"))
        let other = try self.module([CKM_RSA_X_509])
        #expect(try await other.provider().listIdentities().remarks.isEmpty)
    }

    /// It was shorter when its length was asked for.
    @Test func aListThatHasGrownIsAskedForAgain() async throws {
        for function in ["C_GetMechanismList", "C_GetSlotList"] {
            let module = try FaultyModule.withIdentity()
            module.fail(function, CKR_BUFFER_TOO_SMALL, after: 1)
            let provider = try module.provider()
            #expect(try await provider.getCertificate(NoUserInteraction()).key.signsValidly())
        }
    }

    /// It always has more, or more than there can be: that it is empty would be wrong.
    @Test(arguments: [1, 5000, .max - 8] as [CK_ULONG]) func aListWithoutEndIsAnError(growth: CK_ULONG) async throws {
        let module = try FaultyModule.withIdentity()
        let provider = try module.provider()
        module.control.grow_lists(growth)
        for error in await provider.listIdentities().failures {
            #expect(error.code == .unavailable && error.message.contains("C_GetSlotList: CKR_BUFFER_TOO_SMALL"))
        }
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .unavailable)
        #expect(module.calls("C_GetSlotList") <= 18)
    }

    @Test(arguments: [[], [CKM_ECDSA]]) func noMechanismIsAClearError(mechanisms: [CK_MECHANISM_TYPE]) async throws {
        #expect(await code { _ = try await identity(mechanisms) } == .unsupportedAlgorithm)
    }
}

@Suite(.timeLimit(.minutes(20))) struct AttributeTests {
    /// The largest one is `CK_UNAVAILABLE_INFORMATION`.
    private static let lengths: [(CK_ULONG, CK_ULONG)] = [
        (8, .max - 1), (8, 4096), (8, 4), (8, 0), (0, 8), (1 << 40, 8), (.max - 1, 8), (8, .max), (.max, .max),
    ]

    /// A module reports a length, and then returns another one, or none.
    @Test(arguments: lengths) func aWrongLengthIsSurvived(asked: CK_ULONG, read: CK_ULONG) async throws {
        for type in [CKA_ID, CKA_LABEL, CKA_VALUE, CKA_SIGN, CKA_KEY_TYPE, CKA_ALWAYS_AUTHENTICATE] {
            let module = try FaultyModule.withIdentity()
            module.control.distort(type, asked, read)
            let provider = try module.provider()
            let list = await provider.listIdentities()
            #expect(list.identities.count <= 2)
            let outcome = await code { _ = try await provider.getCertificate(NoUserInteraction()) }
            // Without a certificate in sight nothing says that the PIN is for this token.
            let expected: [ProviderError.Code?] = [
                nil, .unavailable, .notFound, .malformedData, .keyMismatch, .configurationInvalid,
            ]
            #expect(expected.contains(outcome), "\(type)")
            module.control.distort(.max, 0, 0)
            #expect(try await provider.getCertificate(NoUserInteraction()).key.signsValidly())
        }
    }
}
