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
        let fetched = try sandbox.certprov(["fetch", "--out", out, "--export-key"] + configuration)
        #expect(fetched.status == 0 && fetched.stderr.isEmpty, "\(fetched)")
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
        let listed = try sandbox.certprov(["list", "--json"] + configuration)
        #expect(listed.status == 0 && listed.stdout.contains("CN=host,O=Example"), "\(listed)")
        #expect(server.issued == 1)
    }

    @Test("The servers of the page start, and the commands of the page enrol with them")
    func theServersOfThePageEnrol() throws {
        let page = try Page("Documentation/Enrolment.md")
        let servers = page.blocks("sh")
        try #require(servers.count == 2 && page.transcripts.count == 2)
        let made = try sandbox.shell(#"cd "$HOME" && ln -s "$1" Tests"#, Page.root.appending(path: "Tests").path)
        try #require(made.status == 0, "\(made)")
        for (server, transcript) in zip(servers, page.transcripts) {
            // Any free port.
            let command = server.replacing(" --port 8443", with: "").replacing("Tests/", with: "exec Tests/")
            let process = try Subprocess(["/bin/sh", "-c", command], in: sandbox.path + "/home")
            let line = try #require(process.readLine())
            let ready = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
            let port = try #require(ready?["port"] as? Int)
            for step in transcript.steps {
                let command = step.command.replacing("8443", with: "\(port)")
                let output = try sandbox.shell(#"cd "$HOME"; PATH="${CERTPROV%/*}:$PATH"; "# + command)
                #expect(output.status == 0, "\(command)\n\(output)")
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
        let output = try sandbox.certprov(
            ["plugin", "verify", sandbox.path + "/plugins/certprov-plugin-mdm"] + parameters.flatMap { ["--set", $0] })
        #expect(output.status == 0 && output.stdout.contains(" passed, 0 failed, "), "\(output)")
        #expect(server.issued > 3)
    }

    @Test func anIdentityIsFetchedWithAToken() async throws {
        let server = try await ESTServer.start("--auth", "oauth")
        let secret = try sandbox.write("estsecret".utf8, to: "secret")
        let file = try sandbox.write(
            """
            CertificateProvider = mdm
            CertificateProvider.mdm.protocol = est
            CertificateProvider.mdm.url = https://localhost:\(server.port)
            CertificateProvider.mdm.trust-anchors = \(server.directory["ca.pem"])
            CertificateProvider.mdm.token-url = https://localhost:\(server.port)/token
            CertificateProvider.mdm.client-id = estclient
            CertificateProvider.mdm.client-secret-source = file:\(secret)
            CertificateProvider.mdm.subject = CN=host,O=Example
            """.utf8, to: "client.properties")
        let fetched = try sandbox.certprov(["fetch", "--config", file])
        #expect(fetched.status == 0 && fetched.stdout.contains("CN=host,O=Example"), "\(fetched)")
        #expect(server.issued == 1)
        try sandbox.write("another".utf8, to: "secret")
        let refused = try sandbox.certprov(["fetch", "--force", "--config", file])
        #expect(refused.status == 77 && refused.stderr.contains("invalid_client"), "\(refused)")
        #expect(!refused.stderr.contains("another"))
    }

    @Test func aRenewalWithoutARefusedCertificateIsSaid() async throws {
        let server = try await ESTServer.start(
            "--auth", "basic", "--refuse-clients", "unknown-ca", "--tls", "1.2")
        let configuration = try sandbox.configure(server)
        #expect(try sandbox.certprov(["fetch"] + configuration).status == 0)
        let text = "the current certificate was shown"
        let fetched = try sandbox.certprov(["fetch", "--force"] + configuration)
        #expect(fetched.status == 0 && fetched.stderr.contains(text), "\(fetched)")
        #expect(fetched.stderr.contains("alert unknown_ca"), "\(fetched)")
        let document = try sandbox.certprov(["fetch", "--force", "--json"] + configuration)
        #expect(document.status == 0 && document.stdout.contains(text) && document.stderr.isEmpty, "\(document)")
        #expect(server.issued == 3)
    }

    @Test func eachTroubleHasItsStatus() async throws {
        let server = try await ESTServer.start("--auth", "basic", "--pending", "9", "--retry-after", "3600")
        let configuration = try sandbox.configure(server)
        let pending = try sandbox.certprov(["fetch"] + configuration)
        #expect(pending.status == 75 && pending.stderr.contains("has not decided"), "\(pending)")
        let password = try sandbox.write("wrong".utf8, to: "password")
        let wrong = try sandbox.certprov(["fetch"] + configuration)
        #expect(wrong.status == 77 && wrong.stderr.contains("401"), "\(wrong)")
        #expect(!wrong.stderr.contains("wrong\""), "\(password)")
    }
}
