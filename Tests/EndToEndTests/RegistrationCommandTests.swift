import CertificateProviding
import Foundation
import Glibc
import Synchronization
import TestSupport
import Testing

/// The command registers an application, uses what it has, and leaves the server again.
@Suite(.enabled(if: TestLength.hasSeconds), .timeLimit(.minutes(60))) struct RegistrationCommandTests {
    private let sandbox: Sandbox
    private let server: PlatformServer
    private let lines: [String]
    private let passcode: String

    init() async throws {
        sandbox = try Sandbox()
        let authority = try TestAuthority()
        server = try await PlatformServer(authority)
        let identity = try authority.issue("client")
        let key = try #require(identity.key.exporter).pkcs8Representation()
        try sandbox.write(key.withUnsafeBytes { Data($0) }, to: "key.der")
        func pem(_ certificates: [X509Certificate]) -> String {
            certificates.map {
                "-----BEGIN CERTIFICATE-----\n"
                    + Data($0.derRepresentation).base64EncodedString(options: .lineLength64Characters)
                    + "\n-----END CERTIFICATE-----\n"
            }.joined()
        }
        try sandbox.write(pem(identity.certificateChain), to: "chain.pem")
        let anchors = try sandbox.write(pem([authority.root]), to: "anchors.pem")
        try sandbox.shell(
            """
            cd $1 && openssl pkey -in key.der -out key.pem && \
            openssl pkcs12 -export -in chain.pem -inkey key.pem -passout pass: -out client.p12
            """, sandbox.path
        ).require()
        passcode = try sandbox.write("correct horse battery", to: "passcode")
        lines = [
            "Host=127.0.0.1", "Port=\(server.port)", "SecurityConfiguration=SSO", "ApplicationId=demo",
            "TrustAnchors=\(anchors)", "CertificateProvider=pkcs12",
            "CertificateProvider.pkcs12.path=\(sandbox.path)/client.p12",
        ]
    }

    /// A property file, with the source of the passcode and more.
    private func configuration(_ more: [String] = [], hasPasscode: Bool = true) throws -> String {
        let all = lines + (hasPasscode ? ["Passcode.source=file:\(passcode)"] : []) + more
        return try sandbox.write(all.joined(separator: "\n") + "\n", to: "\(UUID()).properties")
    }

    private func run(_ arguments: String..., config: String) throws -> Output {
        try sandbox.certprov(arguments + ["--config", config])
    }

    @Test func fromTheRegistrationToTheEnd() async throws {
        let file = try configuration()
        let locked = try configuration(hasPasscode: false)
        #expect(try run("status", config: file).stdout.contains("not registered"))
        #expect(try run("check", config: file).stdout.contains("Not registered yet"))
        try run("check", config: try configuration(["FarmID=a b"])).expect(78, stdout: "'URLSuffix' and 'FarmID'")
        // The passcode is not known: the provider and the server are not asked.
        let silent = try run("register", config: locked)
        #expect(silent.status == 77 && server.log.isEmpty && silent.stderr.contains("set Passcode.source"), "\(silent)")

        let made = try run("register", "--json", config: file).document("Registration")
        let id = try #require(made["connectionID"].string)
        #expect(made["isNew"].bool == true && server.connections == [id: PlatformServer.client])
        let again = try run("register", "--json", config: file).document("Registration")
        #expect(again["isNew"].bool == false && again["connectionID"].string == id)

        try run("check", config: file).expect(stdout: "connection \(id)")
        #expect(try run("check", config: locked).stdout.contains("The vault is locked"))
        let status = try run("status", "--json", config: file).document("Status")
        #expect(status["state"].string == "registeredUnlocked" && status["connectionID"].string == id)
        #expect(status["provider"].string == "pkcs12" && status["attemptsLeft"].int == 10)
        let hidden = try run("status", "--json", config: locked).document("Status")
        #expect(hidden["state"].string == "registeredLocked" && hidden["connectionID"].isNull)
        // The provider's stored identity is in the vault.
        #expect(try run("list", config: file).stdout.contains(" store "))
        for command in ["fetch", "list", "update"] { #expect(try run(command, config: locked).status == 77) }
        #expect(!FileManager.default.fileExists(atPath: sandbox.store + "/identities"))

        let updated = try run("update", "--yes", config: file)
        #expect(updated.status == 0 && server.connections.keys.map(\.self) == [id], "\(updated)")
        #expect(try run("update", config: file).status == 77)

        server.fail("DELETE", .status(403))
        try run("unregister", "--yes", config: file).expect(77, stderr: "[rejected]")
        #expect(try run("status", config: file).stdout.contains(id))
        #expect(try run("unregister", "--yes", config: file).status == 0)
        #expect(server.connections.isEmpty)
        #expect(try run("unregister", "--yes", config: file).stdout.contains("is not registered"))
        await server.close()
    }

    /// With the page's property file, for this server and identity.
    /// A provider's options are too little for a registration.
    @Test func onlyAPropertyFileRegisters() throws {
        for command in ["register", "status", "unregister"] {
            let none = try sandbox.certprov(command)
            #expect(
                none.status == 78 && none.stderr.hasSuffix("Name one with --config. [configurationMissing]\n"),
                "\(none)")
            try sandbox.certprov(
                command, "--provider", "pkcs12", "--set", "path=\(sandbox.path)/client.p12"
            ).expect(78, stderr: "name one with --config.")
        }
        let file = try sandbox.write(
            "CertificateProvider = pkcs12\nCertificateProvider.pkcs12.path = client.p12\n", to: "x.properties")
        try sandbox.certprov("register", "--config", file).expect(78, stderr: "x.properties: ", "set ApplicationId.")
    }

    @Test func theCommandsOfThePageWork() async throws {
        let page = try Page("Documentation/Registration.md")
        let block = try #require(page.text.components(separatedBy: "```").first { $0.hasPrefix("properties\n") })
        let text = block.dropFirst("properties\n".count).replacing("mobile.example.com", with: "127.0.0.1")
            .replacing("8082", with: "\(server.port)").replacing(
                "/etc/myservice/ca.pem", with: "\(sandbox.path)/anchors.pem"
            )
            .replacing("/etc/myservice", with: sandbox.path).replacing(
                "systemd:vault-passcode", with: "file:\(passcode)"
            )
            .replacing("systemd:p12-password", with: "file:\(try sandbox.write("", to: "empty"))")
        let file = try sandbox.write(String(text), to: "page.properties")
        try sandbox.expect(page.steps, after: "echo secret >token.txt", with: ["CERTPROV_CONFIG": file])
        #expect(server.connections.isEmpty)
        await server.close()
    }

    @Test("A script sends requests as the application, and gets status, header fields and body")
    func requestsOfAScript() async throws {
        let file = try configuration()
        try run("request", "GET", "/service", config: file).expect(66, stdout: "", stderr: "certprov register")
        try run("register", config: file).expect()
        let id = try #require(server.connections.keys.first)
        #expect(try run("request", "GET", "/service?$top=1", config: file).stdout == "\(PlatformServer.client) \(id)")
        let posted = try sandbox.shell(
            "head -c 100000 /dev/zero | $CERTPROV request POST /service -i -H 'Content-Type: text/plain' --config $1",
            file)
        posted.expect(
            stdout: "HTTP/1.1 200\r\n", "X-Body: 100000 text/plain\r\n", "\r\n\r\n\(PlatformServer.client) \(id)")
        #expect(server.log.last == "POST \(PlatformServer.client) \(id)")
        server.fail("GET", .status(404), .status(404), .status(503), .redirection("/elsewhere"), .status(403))
        try run("request", "GET", "/none", config: file).expect(0, stdout: "")
        try run("request", "GET", "/none", "--fail", config: file).expect(77, stdout: "", stderr: "the status 404")
        try run("request", "GET", "/none", "--fail", config: file).expect(69, stderr: "the status 503")
        let moved = try run("request", "GET", "/moved", "--json", config: file).document("Response")
        #expect(moved["status"].int == 307 && moved["headers"].array.contains { $0["value"].string == "/elsewhere" })
        #expect(moved["body"].string == "")
        try run("request", "GET", "/closed", config: file).expect(77, stdout: "", stderr: "[rejected]")
        for wrong in [
            ["get", "/"], ["GET", "service"], ["GET", "/a b"], ["GET", "/", "-H", "Host: x"],
            ["GET", "/", "-H", "X-SUP-SC: x"], ["GET", "/", "-H", "x"],
        ] {
            #expect(try sandbox.certprov(["request"] + wrong + ["--config", file]).status == 64, "\(wrong)")
        }
        try sandbox.shell("head -c 33554433 /dev/zero | $CERTPROV request PUT /x --config $1", file).expect(65)
        try sandbox.certprov("request", "GET", "/x", "--config", try configuration(hasPasscode: false)).expect(
            77, stderr: "vaultLocked")
        await server.close()
    }

    @Test("vault put, get, list and delete handle values of a registered application")
    func valuesAreInTheVault() async throws {
        let file = try configuration()
        try run("vault", "list", config: file).expect(66, stderr: "certprov register")
        try run("register", config: file).expect()
        let binary = sandbox.path + "/binary"
        try sandbox.shell(
            "head -c 3000 /dev/urandom >$2 && $CERTPROV vault put token --config $1 <$2 && $CERTPROV vault get token --config $1 | cmp - $2",
            file, binary
        ).expect()
        #expect(try run("vault", "put", "second", "--source", "file:\(passcode)", config: file).status == 0)
        #expect(try run("vault", "list", config: file).stdout == "second\ntoken\n")
        #expect(try run("vault", "delete", "token", config: file).status == 0)
        #expect(try run("vault", "get", "token", config: file).status == 66)
        for name in ["../x", ".x", "a/b", ""] {
            #expect(try run("vault", "put", "--source", "file:\(passcode)", name, config: file).status == 64)
            #expect(try run("vault", "get", name, config: file).status == 64)
            #expect(try run("vault", "delete", name, config: file).status == 64)
        }
        try sandbox.shell("head -c 1000001 /dev/zero | $CERTPROV vault put large --config $1", file).expect(64)
        #expect(try sandbox.shell("grep -rlF 'correct horse' $1", sandbox.store).stdout.isEmpty)
        await server.close()
    }

    @Test("The named key pairs of a registered application are in its vault, which must be unlocked")
    func namedPairsAreInTheVault() async throws {
        let file = try configuration()
        let locked = try configuration(hasPasscode: false)
        // A pair from before the registration goes along.
        #expect(try run("keys", "create", "early", "--type", "p256", config: file).status == 0)
        let early = try run("keys", "export", "early", config: file)
        #expect(try run("register", config: file).status == 0)
        #expect(try run("keys", "export", "early", config: file).stdout == early.stdout)
        #expect(try run("keys", "create", "late", "--type", "ed25519", config: file).status == 0)
        for name in ["early", "late"] {
            #expect(try run("keys", "sign", name, passcode, config: file).status == 0)
        }
        for command in [
            ["create", "x"], ["list"], ["exists", "early"], ["export", "early"], ["sign", "early", passcode],
            ["import", "x", "\(sandbox.path)/key.pem"], ["delete", "early"],
        ] {
            try sandbox.certprov(["keys"] + command + ["--config", locked]).expect(
                77, stdout: "", stderr: "[vaultLocked]")
        }
        // The key of the application's identity.
        try run("keys", "import", "x", "\(sandbox.path)/key.pem", config: file).expect(73, stderr: "identity")
        // Another application, and this host, have their own.
        #expect(try sandbox.certprov("keys", "list").stdout.isEmpty)
        #expect(try run("keys", "delete", "late", config: file).stdout == "true\n")
        #expect(try run("keys", "list", config: file).stdout.split(separator: "\n").count == 2)
        await server.close()
    }

    /// Between commands, only the session's keyring has the key, and only for the time that was asked for.
    @Test func theSessionKeepsTheVaultUnlocked() async throws {
        let file = try configuration()
        let locked = try configuration(hasPasscode: false)
        #expect(try run("register", config: file).status == 0)
        // The kernel's keyring of the user is all that there is without a session.
        let none = try sandbox.run(["setsid", "--wait", BuiltCommand.path, "unlock", "--for", "5m", "--config", file])
        if none.status != 69 { #expect(none.status == 0, "\(none)") }
        let script = """
            $CERTPROV status --config $2 && $CERTPROV unlock --for 5m --config $1 && $CERTPROV status --config $2
            $CERTPROV lock --config $2; $CERTPROV status --config $2
            $CERTPROV unlock --for 1s --config $1; sleep 2.2; $CERTPROV status --config $2
            """
        let session = try sandbox.run(["keyctl", "session", "-", "sh", "-c", script, "sh", file, locked])
        let states = session.stdout.split(separator: "\n").filter { $0.hasPrefix("state:") }.map { line in
            line.split(separator: " ").dropFirst().joined(separator: " ")
        }
        #expect(
            states == ["registered, locked", "registered, unlocked", "registered, locked", "registered, locked"],
            "\(session)")
        for wrong in ["0s", "8", "1w", "-5m", "700000s"] {
            #expect(try run("unlock", "--for=\(wrong)", config: file).status == 64)
        }
        await server.close()
    }

    /// A passcode from a source that is wrong costs one attempt, however often the command runs.
    @Test func aWrongSourceIsTriedOnce() async throws {
        let file = try configuration(["Passcode.max-attempts=3"])
        #expect(try run("register", config: file).status == 0)
        try sandbox.write("another passcode", to: "passcode")
        for _ in 0..<5 { #expect(try run("fetch", config: file).status == 77) }
        let status = try run("status", "--json", config: file).document("Status")
        #expect(status["state"].string == "registeredLocked" && status["attemptsLeft"].int == 2)
        #expect(status["warnings"].array.first?.string?.contains("stays locked") == true)
        try sandbox.write("correct horse battery", to: "passcode")
        #expect(try run("fetch", config: file).status == 0)
        #expect(try run("status", "--json", config: file).document("Status")["attemptsLeft"].int == 3)

        let new = try sandbox.write("tr0ub4dor and three", to: "new")
        #expect(try run("passcode", "--new-source", "file:\(new)", config: file).status == 0)
        #expect(try run("fetch", config: file).status == 77)
        try run("unregister", "--force", "--yes", config: file).expect(stderr: "stays locked")
        // The server was not asked: what it would need was sealed.
        #expect(server.connections.count == 1)
        await server.close()
    }

    /// The password of the source is wrong, then right, then changed at the server: a rejected one is never sent twice.
    @Test func aRejectedPasswordIsNotSentAgain() async throws {
        let password = try sandbox.write("wrong", to: "password")
        let file = try configuration([
            "UserCreationPolicy=automatic", "Registration.username=\(PlatformServer.user.0)",
            "Registration.password-source=file:\(password)",
        ])
        func refusals() -> Int { server.log.count { $0.hasSuffix("refused") } }
        for _ in 0..<3 {
            let refused = try run("register", config: file)
            #expect(refused.status == 77 && refusals() == 1, "\(refused)")
        }
        #expect(try run("register", config: file).stderr.contains("certprov register --ask"))
        let asking = try run("register", "--ask", config: file)
        #expect(asking.status == 77 && asking.stderr.contains("[interactionRequired]") && refusals() == 1, "\(asking)")
        try sandbox.write(PlatformServer.user.1, to: "password")
        #expect(try run("register", config: file).status == 0)

        server.state.withLock { $0.password = "changed" }
        for _ in 0..<2 {
            let refused = try run("unregister", "--yes", config: file)
            #expect(refused.status == 77 && refusals() == 2, "\(refused)")
        }
        #expect(try run("unregister", "--yes", config: file).stderr.contains("certprov password"))
        try run("password", config: file).expect(77, stderr: "source of the secret")
        #expect(try run("password", "--new-source", "nope", config: file).status == 64)
        let new = try sandbox.write("another one", to: "new")
        for _ in 0..<3 {
            let refused = try run("password", "--new-source", "file:\(new)", config: file)
            #expect(refused.status == 77 && refusals() == 3, "\(refused)")
        }
        try sandbox.write("changed", to: "new")
        #expect(try run("password", "--new-source", "file:\(new)", config: file).status == 0)
        #expect(try run("unregister", "--yes", config: file).status == 0 && server.connections.isEmpty)
        await server.close()
    }

    @Test("A vault whose key is damaged or missing is not replaced, and can be destroyed", arguments: ["damaged", nil])
    func aVaultWithoutItsKeyIsNotReplaced(content: String?) async throws {
        let file = try configuration()
        #expect(try run("register", config: file).status == 0)
        let key = "state/certprov/applications/demo/vault/key"
        if let content { try sandbox.write(content, to: key) } else { unlink("\(sandbox.path)/\(key)") }
        for command in [["register"], ["unregister", "--yes"]] {
            try sandbox.certprov(command + ["--config", file]).expect(74, stderr: "with force")
        }
        #expect(server.connections.count == 1)
        try run("unregister", "--force", "--yes", config: file).expect()
        #expect(try run("register", config: file).status == 0)
        #expect(try run("unregister", "--yes", config: file).status == 0)
        await server.close()
    }

    /// Killed at any moment, with answers that are lost: there is one connection, and the vault knows it.
    @Test func killedAtAnyMomentItRegistersOnce() async throws {
        let file = try configuration()
        let start = ContinuousClock.now
        #expect(try run("register", config: file).status == 0)
        var kills = KillMoments(TestLength.rounds(8, soak: 500), within: ContinuousClock.now - start)
        #expect(try run("unregister", "--yes", config: file).status == 0)
        var round = 0
        while kills.areLeft {
            defer { round += 1 }
            let command = round.isMultiple(of: 2) ? ["register"] : ["unregister", "--yes"]
            if Int.random(in: 0..<4) == 0 { server.fail(round.isMultiple(of: 2) ? "POST" : "DELETE", .noAnswer) }
            let process = try sandbox.start([BuiltCommand.path] + command + ["--config", file])
            _ = kills.kill(process)
            let asked = try run("status", "--json", config: file).document("Status")
            #expect(server.connections.count <= 1, "\(server.connections)")
            if let id = asked["connectionID"].string, round.isMultiple(of: 2) {
                #expect(server.connections == [id: PlatformServer.client])
            }
            #expect(try run(round.isMultiple(of: 2) ? "register" : "unregister", "--json", config: file).status != 70)
            if !round.isMultiple(of: 2) {
                server.state.withLock { $0.faults = [:] }
                let end = try run("unregister", "--yes", config: file)
                #expect(end.status == 0 && server.connections.isEmpty, "\(end)")
            } else {
                server.state.withLock { $0.faults = [:] }
                #expect(try run("register", config: file).status == 0)
                #expect(server.connections.count == 1)
            }
        }
        #expect(kills.haveLanded, "only \(kills.killed) were killed in time")
        await server.close()
    }
}
