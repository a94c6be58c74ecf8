import CertificateProviding
import Foundation
import PKCS11TokenProvider
import TestSupport
import Testing

/// Which identity a URI means, among what lies on tokens.
@Suite(.timeLimit(.minutes(20))) struct SelectionTests {
    private typealias Content = TokenFarm.SoftHSMToken

    @Test(arguments: ["object=p384", "id=%a2", "object=p384;id=%a2", "id=%a2;type=private", "id=%a2;type=cert"])
    func byIdAndLabel(path: String) async throws {
        var setup = try TokenSetup(token: Content.ambiguous.rawValue)
        setup.uri = "pkcs11:token=ambiguous;\(path)?module-name=softhsm"
        #expect(try await setup.identity().provenance.alias == "p384")
    }

    @Test func twoAreNoneAndAreNamed() async throws {
        let error = await failure { _ = try await TokenSetup(token: Content.ambiguous.rawValue).identity() }
        #expect(error?.code == .configurationInvalid)
        for part in ["object=p256", "object=p384", "id=%A1", "id=%A2", "token=ambiguous"] {
            #expect(error?.message.contains(part) == true, "\(error?.message ?? "")")
        }
    }

    /// Two tokens of one label, of which one has the identity.
    @Test func bySerial() async throws {
        let list = await (try TokenSetup(token: Content.twin.rawValue).provider()).listIdentities()
        let uri = try #require(list.identities.first?.keyURI)
        let serial = try #require(uri.split(separator: ";").first { $0.hasPrefix("serial=") })
        var setup = try TokenSetup(token: Content.twin.rawValue)
        setup.uri = "pkcs11:token=twin;\(serial)?module-name=softhsm"
        #expect(try await setup.identity().provenance.alias == "p256")
        setup.uri = "pkcs11:token=twin;serial=0000?module-name=softhsm"
        #expect(await failure { _ = try await setup.identity() }?.code == .tokenNotPresent)
    }

    @Test("A missing identity is notFound, a missing token is tokenNotPresent")
    func nothingThatMatches() async throws {
        let none = try TokenSetup(token: Content.ambiguous.rawValue, "nothing")
        #expect(await failure { _ = try await none.identity() }?.code == .notFound)
        let noToken = try TokenSetup(token: "nobody's")
        #expect(await failure { _ = try await noToken.identity() }?.code == .tokenNotPresent)
        #expect(try noToken.provider().getStoredCertificate() == nil)
    }

    /// A certificate without a key, a key without a certificate, and a pair that does not belong together.
    @Test func halvesAreNoIdentities() async throws {
        let setup = try TokenSetup(token: Content.halves.rawValue)
        let list = await (try setup.provider()).listIdentities()
        #expect(list.identities.isEmpty, "\(list.identities)")
        #expect(list.failures.map(\.code) == [.keyMismatch], "\(list.failures)")
        #expect(list.remarks.count == 2, "\(list.remarks)")
        for (part, kind) in [("id=%B1", "type=cert"), ("id=%B2", "type=private")] {
            #expect(list.remarks.contains { $0.contains(part) && $0.contains(kind) }, "\(list.remarks)")
        }
        #expect(await failure { _ = try await setup.identity() }?.code == .keyMismatch)
        for object in ["p256", "p384"] {
            let error = await failure { _ = try await TokenSetup(token: Content.halves.rawValue, object).identity() }
            #expect(error?.code == .notFound || error?.code == .keyMismatch, "\(object): \(String(describing: error))")
        }
    }

    @Test func twoCertificatesForOneKey() async throws {
        let both = await (try TokenSetup(token: Content.renewed.rawValue).provider()).listIdentities()
        #expect(Set(both.identities.compactMap(\.alias)) == ["p256", "renewed"], "\(both)")
        // The one that begins last.
        #expect(try await TokenSetup(token: Content.renewed.rawValue).identity().provenance.alias == "p256")
        for alias in ["p256", "renewed"] {
            let identity = try await TokenSetup(token: Content.renewed.rawValue, alias).identity()
            #expect(identity.provenance.alias == alias)
        }
    }
}

/// The module that is loaded, and the messages about one that cannot be.
@Suite(.timeLimit(.minutes(20))) struct ModuleTests {
    @Test func aModuleThatIsNotThere() async throws {
        let setup = try TokenSetup(.softhsm).with("module-path", "/nonexistent/module.so")
        #expect(await failure { _ = try await setup.identity() }?.code == .fileNotFound)
    }

    @Test(arguments: [
        ("/etc/passwd", ProviderError.Code.unavailable), ("/lib/x86_64-linux-gnu/libc.so.6", .unavailable),
        ("/tmp", .fileNotFound),
    ])
    func aFileThatIsNoModule(path: String, code: ProviderError.Code) async throws {
        let setup = try TokenSetup(.softhsm).with("module-path", path)
        let error = await failure { _ = try await setup.identity() }
        #expect(error?.code == code && error?.message.contains(path) == true, "\(String(describing: error))")
        let list = await (try setup.provider()).listIdentities()
        #expect(list.identities.isEmpty && list.failures.map(\.code) == [code])
    }

    @Test func aNameThatIsNotConfigured() async throws {
        var setup = try TokenSetup(.softhsm)
        setup.uri = "pkcs11:?module-name=nobody"
        let error = await failure { _ = try await setup.identity() }
        #expect(error?.code == .unavailable && error?.message.contains("nobody") == true)
    }

    /// By p11-kit's name, and by that of the library (RFC 7512, section 2.3), whichever way it is loaded.
    @Test(arguments: ["softhsm", "softhsm2", "libsofthsm2", "libsofthsm2.so", "SoftHSM", "LibSoftHSM2.SO"])
    func byName(name: String) async throws {
        var setup = try TokenSetup(.softhsm)
        setup.uri = "pkcs11:token=\(TestModule.softhsm.label(.main));object=p256?module-name=\(name)"
        try await setup.identity().verifyPossession()
        try await setup.with("module-path", TestModule.softhsm.library).identity().verifyPossession()
        setup.uri = "pkcs11:?module-name=x\(name)"
        let error = await failure { _ = try await setup.with("module-path", TestModule.softhsm.library).identity() }
        #expect(
            error?.code == .configurationInvalid && error?.message.contains("'module-name' in the URI names '") == true)
    }

    @Test func aPipeIsNoModule() async throws {
        let directory = try TemporaryDirectory()
        try #require(mkfifo(directory["module.so"], 0o600) == 0)
        let setup = try TokenSetup(.softhsm).with("module-path", directory["module.so"])
        #expect(await failure { _ = try await setup.identity() }?.code == .configurationInvalid)
        var inDirectory = setup.with("module-path", directory.path)
        inDirectory.uri += inDirectory.uri.contains("?") ? "&module-name=module" : "?module-name=module"
        #expect(await failure { _ = try await inDirectory.identity() }?.code == .configurationInvalid)
    }

    /// RFC 7512, section 2.4: `module-path` may be the directory in which `module-name` is looked for.
    @Test(arguments: ["softhsm2", "SoftHSM2", "libsofthsm2.so"]) func byDirectory(name: String) async throws {
        var setup = try TokenSetup(.softhsm)
        let directory = String(TestModule.softhsm.library.prefix { $0 != "." }.dropLast("/libsofthsm2".count))
        let token = "pkcs11:token=\(TestModule.softhsm.label(.main));object=p256?"
        setup.uri = token + "module-name=\(name)&module-path=\(directory)"
        try await setup.identity().verifyPossession()
        setup.uri = token + "module-name=\(name)"
        try await setup.with("module-path", directory + "/").identity().verifyPossession()
        setup.uri = token + "module-name=x\(name)&module-path=\(directory)"
        let other = await failure { _ = try await setup.identity() }
        #expect(other?.code == .fileNotFound, "\(String(describing: other))")
        #expect(other?.message.contains("'x\(name)' was not found in the directory '\(directory)'") == true)
        setup.uri = token + "module-path=\(directory)"
        #expect(await failure { _ = try await setup.identity() }?.code == .configurationInvalid)
    }

    /// Relative to the working directory, and in a URI to nothing.
    @Test func byRelativePath() async throws {
        var setup = try TokenSetup(.softhsm)
        // Of its file alone: by which name p11-kit knows the library depends on who has loaded it first.
        setup.uri = "pkcs11:token=\(TestModule.softhsm.label(.main));object=p256"
        let up = FileManager.default.currentDirectoryPath.split(separator: "/").map { _ in "../" }.joined()
        let path = up + TestModule.softhsm.library.dropFirst()
        try await setup.with("module-path", path).identity().verifyPossession()
        setup.uri += "?module-path=" + path
        #expect(failure { _ = try setup.provider() }?.code == .configurationInvalid)
    }

    @Test(arguments: ["module-path parameter", "module-path in the URI"]) func byPath(way: String) async throws {
        var setup = try TokenSetup(.softhsm)
        setup.uri = "pkcs11:token=\(TestModule.softhsm.label(.main));object=p256"
        if way.hasSuffix("URI") {
            setup.uri += "?module-path=" + TestModule.softhsm.library
        } else {
            setup = setup.with("module-path", TestModule.softhsm.library)
        }
        try await setup.identity().verifyPossession()
    }
}
