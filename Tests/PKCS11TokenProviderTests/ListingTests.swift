import CertificateProviding
import PKCS11TokenProvider
import TestSupport
import Testing

/// The visible objects of a token, with its PIN and without.
@Suite(.timeLimit(.minutes(20))) struct ListingTests {
    @Test(arguments: TestModule.installed) func withoutPIN(module: TestModule) async throws {
        let setup = try TokenSetup(module, .closed, nil, pin: .none)
        let list = await (try setup.provider()).listIdentities()
        #expect(list.failures.isEmpty, "\(list.failures)")
        let listed = try #require(list.identities.first)
        #expect(list.identities.count == 1, "\(list.identities.map(\.alias))")
        #expect(listed.alias == module.kinds[0].rawValue && listed.keyLocation == .token)
        #expect(!listed.isKeyExportable && !listed.isStored)
        #expect(listed.keyURI?.contains("token=\(module.label(.closed))") == true, "\(listed.keyURI ?? "no URI")")
        // The issuer lies beside it.
        #expect(listed.certificateChain.map(\.isAuthority) == [false, true])
        let remark = try #require(list.remarks.first)
        #expect(remark.contains(module.label(.closed)) && remark.contains("'pin-source'") && list.remarks.count == 1)
        let issuer = list.otherObjects.filter { $0.contains("type=cert") }
        #expect(issuer.count == 1 && issuer[0].contains("token=\(module.label(.closed))"), "\(list.otherObjects)")
    }

    @Test(arguments: TestModule.installed) func withPIN(module: TestModule) async throws {
        let setup = try TokenSetup(module, .main, nil)
        let list = await (try setup.provider()).listIdentities()
        #expect(list.failures.isEmpty && list.remarks.isEmpty, "\(list)")
        #expect(Set(list.identities.compactMap(\.alias)) == Set(module.kinds.map(\.rawValue)))
        for listed in list.identities {
            #expect(listed.keyURI?.contains("type=private") == true, "\(listed.keyURI ?? "no URI")")
            #expect(listed.certificateChain.count == 2)
        }
    }

    /// Certificates and keys that belong to no identity. The objects of remarks are among them.
    @Test func everyObjectHasItsURI() async throws {
        let list = await (try TokenSetup(token: "halves").provider()).listIdentities()
        #expect(list.identities.isEmpty && list.remarks.count == 2, "\(list)")
        for (id, kinds) in [("b1", ["cert"]), ("b2", ["private", "public"]), ("b3", ["cert", "private", "public"])] {
            let uris = list.otherObjects.filter { $0.lowercased().contains("id=%\(id)") }
            #expect(uris.count == kinds.count, "\(list.otherObjects)")
            for kind in kinds { #expect(uris.contains { $0.contains("type=\(kind)") }) }
        }
        #expect(list.otherObjects.count == 6)
    }

    /// Each URI that is listed leads to the identity it was listed for, and no other.
    @Test(arguments: TestModule.installed) func eachURIIsOneToConfigure(module: TestModule) async throws {
        var setup = try TokenSetup(module, .main, nil)
        for listed in await (try setup.provider()).listIdentities().identities {
            setup.uri = try #require(listed.keyURI) + "?module-name=\(module.rawValue)"
            let identity = try await setup.identity()
            #expect(identity.certificate == listed.certificateChain.first)
            #expect(identity.key.uri == listed.keyURI)
        }
    }

    @Test(arguments: TestModule.installed) func theChosenOneIsShownAsStored(module: TestModule) async throws {
        let setup = try TokenSetup(module)
        _ = try await setup.identity()
        let list = await (try setup.provider()).listIdentities()
        #expect(list.identities.map(\.isStored) == [true])
    }

    /// A listing asks no person, and a PIN that is not configured is not missed.
    @Test(arguments: TestModule.installed) func loginNeverShowsWhatIsPublic(module: TestModule) async throws {
        let setup = try TokenSetup(module, .closed, nil, pin: .right).with("login", "never")
        let list = await (try setup.provider()).listIdentities()
        #expect(list.failures.isEmpty && list.identities.count == 1 && list.remarks.count == 1, "\(list)")
    }

    /// SoftHSM's tokens are also those of its copy in another process.
    @Test func aTokenInTwoModulesIsOne() async throws {
        var setup = try TokenSetup(.softhsm)
        setup.uri = "pkcs11:token=\(TestModule.softhsm.label(.main));object=p256"
        let list = await (try setup.provider()).listIdentities()
        #expect(list.identities.count == 1 && list.failures.isEmpty, "\(list)")
        try await setup.identity().verifyPossession()
    }

    /// Without a module in the URI, all that p11-kit is configured with are looked at.
    @Test func allModulesAreLookedAt() async throws {
        var setup = try TokenSetup(.softhsm, pin: .none)
        setup.uri = "pkcs11:object=p256"
        let list = await (try setup.provider()).listIdentities()
        for module in TestModule.installed {
            #expect(
                list.identities.contains { $0.keyURI?.contains(module.label(.closed)) == true },
                "\(module): \(list.failures)")
        }
    }
}
