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
