import CertificateProviding
import Foundation
import TestSupport
import Testing

/// The command enrols with a server in another process.
@Suite struct EnrolmentTests {
    private let sandbox: Sandbox

    init() throws { sandbox = try Sandbox() }

    @Test func anIdentityIsFetchedAndWorks() async throws {
        let server = try await ESTServer.start("--auth", "digest")
        let configuration = try sandbox.configure(server)
        let out = sandbox.path + "/out"
        try sandbox.certprov(["fetch", "--out", out, "--export-key"] + configuration).expect(stderr: "")
        try Subprocess.run([
            "openssl", "verify", "-purpose", "sslclient", "-CAfile", server.directory["ca.pem"], "-untrusted",
            out + "/current/chain.pem", out + "/current/certificate.pem",
        ])
        // The server knows a client by the fetched certificate.
        try Subprocess.run([
            "curl", "--silent", "--fail", "--cacert", server.directory["ca.pem"], "--cert",
            out + "/current/identity.pem",
            "https://localhost:\(server.port)/.well-known/est/cacerts",
        ])
        #expect(try #require(try server.requests().last?["client_certificate"] as? [String: Any])["serial"] != nil)
        try sandbox.certprov(["list", "--json"] + configuration).expect(stdout: "CN=host,O=Example")
        #expect(server.issued == 1)
    }

    @Test("fetch --force that the files, or the place of the key, would refuse asks no server")
    func aRefusalBeforeTheServer() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let configuration = try sandbox.configure(server)
        func fetch(_ options: String...) throws -> Output {
            try sandbox.certprov(["fetch", "--force", "--out", sandbox.path + "/out"] + options + configuration)
        }
        try fetch("--export-key").expect()
        try fetch().expect(73, stderr: "would be without a private key")
        #expect(server.issued == 1)
        try fetch("--export-key").expect()
        #expect(server.issued == 2)
        _ = try sandbox.configure(server, "CertificateProvider.mdm.key = pkcs11:token=none")
        try fetch("--export-key").expect(65, stderr: "will stay in its key store")
        #expect(server.issued == 2)
    }

    @Test("check tries the server with its CA, by the proxy that counts")
    func theServerIsTried() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let configuration = try sandbox.configure(server)
        func item(_ more: [String: String] = [:], _ options: [String] = []) throws -> JSON {
            let output = try sandbox.certprov(["check", "--json"] + configuration + options, with: more)
            return try #require(
                try output.document("CheckReport")["items"].array.first {
                    $0["what"].string?.hasPrefix("mdm url ") == true
                }, "\(output)")
        }
        #expect(try item()["detail"].string == "reachable, and trusted")
        let other = try sandbox.write(try TestAuthority("Other").root.pemRepresentation, to: "other.pem")
        #expect(
            try item([:], ["--provider", "mdm", "--set", "trust-anchors=\(other)"])["code"].string == "serverNotTrusted"
        )
        // This host itself is never reached through the proxy of a variable.
        let dead = ["https_proxy": "http://127.0.0.1:1"]
        #expect(try item(dead)["severity"].string == "ok")
        let behind = try item(dead, ["--provider", "mdm", "--set", "url=https://est.example/"])
        #expect(behind["code"].string == "unavailable", "\(behind)")
        #expect(behind["detail"].string?.contains("https_proxy") == true, "\(behind)")
    }

    @Test("check outside of the unit that has a credential warns, where a valid identity rests in the store")
    func aCredentialOfTheUnit() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let configuration = try sandbox.configure(server)
        let file = try #require(configuration.last)
        let text = try String(contentsOfFile: file, encoding: .utf8).replacing(
            "file:\(sandbox.path)/password", with: "systemd:password")
        let inUnit = try sandbox.write(text, to: "unit.properties")
        try sandbox.certprov("check", "--config", inUnit).expect(78, stdout: "error    mdm password-source")
        try sandbox.certprov(["fetch"] + configuration).expect()
        try sandbox.certprov("check", "--config", inUnit).expect(stdout: "warning  mdm password-source")
    }

    @Test("check reads the directory of ACME: another page is not one")
    func theDirectoryIsRead() throws {
        let port = try ReservedPort()
        try FileManager.default.createDirectory(atPath: sandbox.path + "/www", withIntermediateDirectories: false)
        try sandbox.write(#"{"newNonce":"/n","newAccount":"/a","newOrder":"/o"}"#, to: "www/directory")
        try sandbox.write("Welcome.", to: "www/page")
        let server = try Subprocess(
            [
                "python3", "-u", "-m", "http.server", "--bind", "127.0.0.1", "--directory", sandbox.path + "/www",
                "\(port)",
            ],
            environment: ["PATH": "/usr/bin:/bin"])
        defer { server.stop() }
        try #require(server.readLine()?.hasPrefix("Serving HTTP") == true)
        for (path, code) in [
            ("directory", nil), ("page", "configurationInvalid"), ("nothing", "configurationInvalid"),
        ] as [(String, String?)] {
            let output = try sandbox.certprov(
                ["check", "--json", "--provider", "acme"]
                    + ["directory=http://127.0.0.1:\(port)/\(path)", "identifiers=dns:host.example", "challenge=none"]
                    .flatMap { ["--set", $0] })
            let items = try output.document("CheckReport")["items"].array
            let item = try #require(
                items.first { $0["what"].string?.hasPrefix("acme directory ") == true }, "\(output)")
            #expect(item["code"].string == code, "\(output)")
        }
    }

    @Test("The servers of the page start, and the commands of the page enrol with them")
    func theServersOfThePageEnrol() throws {
        let page = try Page("Documentation/Enrolment.md")
        let servers = page.blocks("sh")
        try #require(servers.count == 2 && page.transcripts.count == 2)
        try sandbox.shell(#"cd "$HOME" && ln -s "$1" Tests"#, Page.root.appending(path: "Tests").path).require()
        for (server, transcript) in zip(servers, page.transcripts) {
            // Any free port.
            let command = server.replacing(" --port 8443", with: "").replacing("Tests/", with: "exec Tests/")
            let process = try Subprocess(["/bin/sh", "-c", command], in: sandbox.path + "/home")
            let line = try #require(process.readLine())
            let ready = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
            let port = try #require(ready?["port"] as? Int)
            for step in transcript.steps {
                let command = step.command.replacing("8443", with: "\(port)")
                try sandbox.shell(#"cd "$HOME"; PATH="${CERTPROV%/*}:$PATH"; "# + command).expect(about: command)
            }
            process.stop()
        }
    }

    /// The provider, as it is in a plugin.
    @Test(.enabled(if: BuiltCommand.isPlugged)) func thePluginKeepsTheContracts() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        try sandbox.write(ESTServer.password.utf8, to: "password")
        let parameters = [
            "protocol=est", "url=https://localhost:\(server.port)", "trust-anchors=\(server.directory["ca.pem"])",
            "username=\(ESTServer.user)", "password-source=file:\(sandbox.path)/password", "subject=CN=host,O=Example",
        ]
        try sandbox.certprov(
            ["plugin", "verify", sandbox.path + "/plugins/certprov-plugin-mdm"] + parameters.flatMap { ["--set", $0] }
        ).expect(stdout: " passed, 0 failed, ")
        #expect(server.issued > 3)
    }

    @Test func anIdentityIsFetchedWithAToken() async throws {
        let server = try await ESTServer.start("--auth", "oauth")
        let file = try sandbox.configureOAuth(server)
        try sandbox.certprov(["fetch", "--config", file]).expect(stdout: "CN=host,O=Example")
        #expect(server.issued == 1)
        try sandbox.write("another".utf8, to: "secret")
        let refused = try sandbox.certprov(["fetch", "--force", "--config", file]).expect(77, stderr: "invalid_client")
        #expect(!refused.stderr.contains("another"))
    }

    @Test func aRenewalWithoutARefusedCertificateIsSaid() async throws {
        let server = try await ESTServer.start(
            "--auth", "basic", "--refuse-clients", "unknown-ca", "--tls", "1.2")
        let configuration = try sandbox.configure(server)
        #expect(try sandbox.certprov(["fetch"] + configuration).status == 0)
        let text = "the current certificate was shown"
        let fetched = try sandbox.certprov(["fetch", "--force"] + configuration).expect(stderr: text)
        #expect(fetched.stderr.contains("alert unknown_ca"), "\(fetched)")
        try sandbox.certprov(["fetch", "--force", "--json"] + configuration).expect(stdout: text, stderr: "")
        #expect(server.issued == 3)
    }

    @Test func eachTroubleHasItsStatus() async throws {
        let server = try await ESTServer.start("--auth", "basic", "--pending", "9", "--retry-after", "3600")
        let configuration = try sandbox.configure(server)
        try sandbox.certprov(["fetch"] + configuration).expect(75, stderr: "has not decided")
        let password = try sandbox.write("wrong".utf8, to: "password")
        let wrong = try sandbox.certprov(["fetch"] + configuration).expect(77, stderr: "401")
        #expect(!wrong.stderr.contains("wrong\""), "\(password)")
    }
}
