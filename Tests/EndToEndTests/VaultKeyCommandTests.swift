import CertificateProviding
import Foundation
import TestSupport
import Testing

/// A vault that needs a key of a token besides its passcode, with each module.
@Suite(.enabled(if: TestLength.hasSeconds), .timeLimit(.minutes(60))) struct VaultKeyCommandTests {
    @Test(arguments: [TokenHost.Module.softhsm, .nss, .remote, .tpm])
    func theVaultNeedsTheToken(module: TokenHost.Module) async throws { try await check(TokenHost(module), module) }

    @Test(.enabled(if: TokenHost.runsOpencryptoki, TokenHost.whyNoOpencryptoki))
    func theVaultNeedsATokenOfOpencryptoki() async throws {
        try await check(TokenHost(.opencryptoki), .opencryptoki)
    }

    private func check(_ host: TokenHost, _ module: TokenHost.Module) async throws {
        let authority = try TestAuthority()
        let server = try await PlatformServer(authority)
        let root = Data(authority.root.derRepresentation).base64EncodedString(options: .lineLength64Characters)
        let anchors = try host.sandbox.write(
            "-----BEGIN CERTIFICATE-----\n\(root)\n-----END CERTIFICATE-----\n", to: "anchors.pem")
        let passcode = try host.sandbox.write("correct horse battery", to: "passcode")
        let wrong = try host.sandbox.write("wrong horse battery", to: "wrong")
        let password = try host.sandbox.write(PlatformServer.user.1, to: "password")
        func file(_ name: String, pin: String?, passcode: String) throws -> String {
            let lines = [
                "Host=127.0.0.1", "Port=\(server.port)", "SecurityConfiguration=SSO", "ApplicationId=demo",
                "TrustAnchors=\(anchors)", "UserCreationPolicy=automatic",
                "Registration.username=\(PlatformServer.user.0)", "Registration.password-source=file:\(password)",
                "Passcode.source=file:\(passcode)", "Vault.key=pkcs11:token=host?module-name=token",
            ]
            let all = lines + (pin.map { ["Vault.key-pin-source=file:\($0)"] } ?? [])
            return try host.sandbox.write(all.joined(separator: "\n") + "\n", to: name)
        }
        func run(_ arguments: String..., config: String) throws -> Output {
            try host.certprov(arguments + ["--config", config])
        }
        let right = try file("right.properties", pin: host.pin, passcode: passcode)
        let check = try run("check", config: right)
        #expect(check.stdout.contains("the key store answers"), "\(check)")
        let text = try String(contentsOfFile: right, encoding: .utf8)
        for place in ["store:", "nope:", "pkcs11:token=absent?module-name=token"] {
            let other = text.replacingOccurrences(of: "pkcs11:token=host?module-name=token", with: place)
            let refused = try run("check", config: try host.sandbox.write(other, to: "other.properties"))
            #expect(refused.stdout.contains("error    registration vault key"), "\(refused)")
        }
        // The token is asked before the server.
        let absent = text.replacingOccurrences(of: "token=host", with: "token=absent")
        #expect(try run("register", config: host.sandbox.write(absent, to: "absent.properties")).status == 69)
        let noPIN = try file("no-pin.properties", pin: nil, passcode: passcode)
        #expect(try run("register", config: noPIN).status == 77)
        #expect(server.log.isEmpty)
        for _ in 0..<TestLength.rounds(1, soak: 5) {
            try run("register", config: right).expect()
            #expect(try host.contents().privateKeys.count == 1)
            #expect(try run("vault", "put", "token", "--source", "file:\(passcode)", config: right).status == 0)
            #expect(try run("vault", "get", "token", config: right).stdout == "correct horse battery")

            // A wrong PIN, and none, open nothing, and spend no attempt of the passcode.
            let wrongPIN = try file("wrong-pin.properties", pin: host.wrongPIN, passcode: passcode)
            try run("vault", "get", "token", config: wrongPIN).expect(77, stderr: "PIN")
            try run("vault", "get", "token", config: noPIN).expect(77)
            let untouched = try run("status", "--json", config: right).document("Status")
            #expect(untouched["attemptsLeft"].int == 10 && untouched["state"].string == "registeredUnlocked")
            // A wrong passcode spends one, though the token decrypts.
            let spent = try run(
                "status", "--json", config: file("wrong.properties", pin: host.pin, passcode: wrong)
            ).document("Status")
            #expect(spent["attemptsLeft"].int == 9 && spent["state"].string == "registeredLocked", "\(spent)")
            #expect(try run("vault", "get", "token", config: right).stdout == "correct horse battery")

            let left = try run("unregister", "--yes", config: right)
            #expect(left.status == 0 && server.connections.isEmpty, "\(left)")
            // The key is destroyed with the vault.
            #expect(try host.contents().privateKeys.isEmpty && host.leftInTPM().isEmpty)
        }
        await server.close()
    }
}
