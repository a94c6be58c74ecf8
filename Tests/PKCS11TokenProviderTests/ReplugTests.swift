import CertificateProviding
import Foundation
import Glibc
import PKCS11TokenProvider
import TestSupport
import Testing

/// Tokens of SoftHSM whose directory is moved away and back.
///
/// SoftHSM sees them again only after it was finalized, which is not done while the user is logged in to another token, and
/// which p11-kit does not do as long as a part other than certprov uses it. So this runs again in a process of its own.
@Suite(.serialized, .timeLimit(.minutes(20))) struct ReplugTests {
    /// The directory of the tokens, in the process within.
    private static let directory = ProcessInfo.processInfo.environment["CERTPROV_TEST_REPLUG"]

    @Test(.enabled(if: directory == nil)) func inAProcessOfItsOwn() async throws {
        let directory = try TemporaryDirectory()
        try directory.write("directories.tokendir = \(directory["tokens"])\nlog.level = ERROR\n".utf8, to: "conf")
        try directory.write(TokenFarm.pin.utf8, to: "pin")
        try FileManager.default.createDirectory(atPath: directory["tokens"], withIntermediateDirectories: true)
        let environment = "SOFTHSM2_CONF=" + directory["conf"]
        let authority = try TestAuthority()
        for label in ["alpha", "beta"] {
            let identity = try authority.issue(label)
            let key = try #require(identity.key.exporter)
            let base64 = try key.pkcs8Representation().withUnsafeBytes { Data($0).base64EncodedString() }
            let pem = "-----BEGIN PRIVATE KEY-----\n\(base64)\n-----END PRIVATE KEY-----\n"
            try directory.write(pem.utf8, to: "key")
            try directory.write(identity.certificate.derRepresentation, to: "certificate")
            let pins = ["--pin", TokenFarm.pin, "--so-pin", TokenFarm.soPIN]
            let token = ["--token", label, "--label", label, "--id", "01", "--pin", TokenFarm.pin]
            try Subprocess.run([environment, "softhsm2-util", "--init-token", "--free", "--label", label] + pins)
            try Subprocess.run([environment, "softhsm2-util", "--import", directory["key"]] + token)
            try Subprocess.run([
                environment, "pkcs11-tool", "--module", TestModule.softhsm.library, "--token-label", label, "--login",
                "--pin", TokenFarm.pin, "--write-object", directory["certificate"], "--type", "cert", "--id", "01",
                "--label", label,
            ])
        }
        try Subprocess.run([
            environment, "pkcs11-tool", "--module", TestModule.softhsm.library, "--init-token", "--slot-index", "2",
            "--label",
            "gamma", "--so-pin", TokenFarm.soPIN,
        ])
        try await Subprocess.runTests(
            [
                "aPINThatIsSetLaterIsUsed", "underLoad", "whileItIsLookedFor", "whileAnotherProviderHasItToo",
                "notWhileAnotherTokenIsInUse",
            ],
            of: "ReplugTests",
            with: [environment, "CERTPROV_TEST_REPLUG=" + directory.path])
    }

    /// The files that are moved away: the token alone, or all of them.
    @Test(.enabled(if: directory != nil), arguments: [false, true]) func underLoad(all: Bool) async throws {
        let directory = try #require(Self.directory)
        // The other token is not logged in to, and is connected all the same.
        let provider = try provider("pkcs11:object=alpha", in: directory)
        let key = try await provider.getCertificate(NoUserInteraction()).key
        let end = Flag()
        let errors = try await withThrowingTaskGroup(of: [ProviderError].self) { tasks in
            for _ in 0..<8 {
                tasks.addTask {
                    var errors: [ProviderError] = []
                    while !end.isRaised {
                        do throws(ProviderError) { try await sign(with: key) } catch { errors.append(error) }
                    }
                    return errors
                }
            }
            for _ in 0..<2 {
                let putBack = try takeAway(all ? nil : "alpha", in: directory)
                await tokenNotPresent { () throws(ProviderError) in try await sign(with: key) }
                putBack()
                await successful { () throws(ProviderError) in try await sign(with: key) }
            }
            end.raise()
            return try await tasks.reduce(into: []) { $0 += $1 }
        }
        let others = errors.filter { $0.code != .tokenNotPresent }
        #expect(others.isEmpty, "\(others.count) of \(errors.count): \(String(describing: others.first))")
    }

    /// No thread signs at that time, which would notice that the token is gone.
    @Test(.enabled(if: directory != nil), arguments: [false, true]) func whileItIsLookedFor(all: Bool) async throws {
        let directory = try #require(Self.directory)
        let provider = try provider("pkcs11:token=alpha", in: directory)
        try await sign(with: provider.getCertificate(NoUserInteraction()).key)
        let putBack = try takeAway(all ? nil : "alpha", in: directory)
        await tokenNotPresent { () throws(ProviderError) in
            _ = try await provider.getCertificate(NoUserInteraction())
        }
        putBack()
        await successful { () throws(ProviderError) in
            try await sign(with: provider.getCertificate(NoUserInteraction()).key)
        }
    }

    /// The other one does nothing at that time, and goes on afterwards.
    @Test(.enabled(if: directory != nil), arguments: [false, true])
    func whileAnotherProviderHasItToo(all: Bool) async throws {
        let directory = try #require(Self.directory)
        let providers = try (0..<2).map { _ in try provider("pkcs11:token=alpha", in: directory) }
        var keys: [any IdentityKey] = []
        for provider in providers { keys.append(try await provider.getCertificate(NoUserInteraction()).key) }
        let putBack = try takeAway(all ? nil : "alpha", in: directory)
        await tokenNotPresent { [keys] () throws(ProviderError) in try await sign(with: keys[0]) }
        putBack()
        for key in keys { await successful { () throws(ProviderError) in try await sign(with: key) } }
    }

    /// The error says whose use is in the way, and when that is over, the token is found.
    @Test(.enabled(if: directory != nil)) func notWhileAnotherTokenIsInUse() async throws {
        let directory = try #require(Self.directory)
        let alpha = try provider("pkcs11:token=alpha", in: directory)
        let key = try await alpha.getCertificate(NoUserInteraction()).key
        let other = try provider("pkcs11:token=beta", in: directory)
        let otherKey = try await other.getCertificate(NoUserInteraction()).key
        let putBack = try takeAway("alpha", in: directory)
        await tokenNotPresent { () throws(ProviderError) in try await sign(with: key) }
        putBack()
        for use in [
            { () async throws in try await sign(with: key) },
            { () async throws in _ = try await alpha.getCertificate(NoUserInteraction()) },
        ] {
            await #expect {
                try await use()
            } throws: { ($0 as? ProviderError)?.message.contains("login to 'beta'") == true }
        }
        try await sign(with: otherKey)
        try other.deleteStoredCertificate()
        await successful { () throws(ProviderError) in try await sign(with: key) }
        try await sign(with: otherKey)
    }

    /// SoftHSM does not see that there is one by now, though it says so.
    @Test(.enabled(if: directory != nil)) func aPINThatIsSetLaterIsUsed() async throws {
        let directory = try #require(Self.directory)
        let provider = try provider("pkcs11:token=gamma", in: directory)
        for _ in 0..<3 {
            let error = await failure { try await provider.getCertificate(NoUserInteraction()) }
            #expect(error?.code == .rejected && error?.message.contains("no user PIN yet") == true)
        }
        let tool = ["pkcs11-tool", "--module", TestModule.softhsm.library, "--token-label", "gamma"]
        let pin = ["--login", "--pin", TokenFarm.pin]
        let object = ["--id", "01", "--label", "gamma"]
        try Subprocess.run(
            tool + [
                "--login", "--login-type", "so", "--so-pin", TokenFarm.soPIN, "--init-pin", "--new-pin", TokenFarm.pin,
            ])
        try Subprocess.run(tool + pin + object + ["--write-object", directory + "/certificate", "--type", "cert"])
        try Subprocess.run(
            [
                "softhsm2-util", "--import", directory + "/key", "--token", "gamma", "--label", "gamma", "--id", "01",
                "--pin", TokenFarm.pin,
            ])
        // The first one of them finds out, and the others wait for their logins until then.
        try await withThrowingTaskGroup(of: Void.self) { tasks in
            for _ in 0..<16 {
                tasks.addTask { try await sign(with: provider.getCertificate(NoUserInteraction()).key) }
            }
            try await tasks.waitForAll()
        }
    }

    private func provider(_ uri: String, in directory: String) throws -> PKCS11TokenProvider {
        let values = [
            "uri": uri, "module-path": TestModule.softhsm.library, "pin-source": "file:\(directory)/pin",
        ]
        let provider = try PKCS11TokenProvider(
            environment: .testing(), parameters: ProviderParameters(values.mapValues { .init($0) }))
        return provider
    }

    /// - Parameter label: Of the token; `nil` for all tokens.
    /// - Returns: A closure that puts the files back.
    private func takeAway(_ label: String?, in directory: String) throws -> () -> Void {
        let tokens = directory + "/tokens"
        var path = tokens
        if let label {
            let names = try FileManager.default.contentsOfDirectory(atPath: tokens)
            let name = try #require(
                names.first { name in
                    let token = FileManager.default.contents(atPath: "\(tokens)/\(name)/token.object")
                    return token?.range(of: Data(label.utf8)) != nil
                })
            path += "/" + name
        }
        try #require(rename(path, directory + "/away") == 0)
        return { [path] in #expect(rename(directory + "/away", path) == 0) }
    }
}

private func sign(with key: any IdentityKey) async throws(ProviderError) {
    let signature = try await key.signature(for: [1], using: .ecdsaP256SHA256)
    #expect(key.publicKey.isValidSignature(signature, for: [1], using: .ecdsaP256SHA256))
}

/// Repeats `body` until it fails, with the one code that it may.
private func tokenNotPresent(_ body: () async throws(ProviderError) -> Void) async {
    while true {
        do throws(ProviderError) { try await body() } catch {
            #expect(error.code == .tokenNotPresent, "\(error)")
            return
        }
    }
}

/// Repeats `body` until it does not fail.
private func successful(_ body: () async throws(ProviderError) -> Void) async {
    while true {
        do throws(ProviderError) { return try await body() } catch {
            #expect(error.code == .tokenNotPresent, "\(error)")
        }
    }
}
