import Foundation
import Glibc
import TestSupport
import Testing

/// The command enrols into a token of SoftHSM.
@Suite struct TokenEnrolmentTests {
    private let pin = "tok3n-PIN-59"
    private let sandbox: Sandbox

    init() throws {
        sandbox = try Sandbox()
        mkdir(sandbox.path + "/tokens", 0o700)
        try sandbox.write("directories.tokendir = \(sandbox.path)/tokens\nlog.level = ERROR\n", to: "softhsm2.conf")
        try sandbox.write(pin + "\n", to: "pin")
        let made = try sandbox.run(
            ["softhsm2-util", "--init-token", "--free", "--label", "host", "--pin", pin, "--so-pin", "12345678"],
            with: variables)
        try #require(made.status == 0, "\(made)")
    }

    private var variables: [String: String] { ["SOFTHSM2_CONF": sandbox.path + "/softhsm2.conf"] }

    private func configure(_ server: ESTServer, module: String = TokenTests.library) throws -> [String] {
        try sandbox.configure(
            server,
            """
            CertificateProvider.mdm.key = pkcs11:token=host?module-path=\(module)
            CertificateProvider.mdm.key-pin-source = file:\(sandbox.path)/pin
            """)
    }

    private func certprov(_ arguments: [String], _ more: [String: String] = [:]) throws -> Output {
        try sandbox.certprov(arguments, with: variables.merging(more) { $1 })
    }

    /// The objects on the token, a line each, as OpenSC's tool sees them.
    private func objects() throws -> [Substring] {
        try listing().stdout.split(separator: "\n").filter { $0.contains(" Object") }
    }

    private func listing() throws -> Output {
        try sandbox.run(
            [
                "pkcs11-tool", "--module", TokenTests.library, "--token-label", "host", "--login", "--pin", pin, "-O",
            ], with: variables)
    }

    @Test func anIdentityIsEnrolledIntoTheTokenUsedAndDestroyed() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let configuration = try configure(server)
        let fetched = try certprov(["fetch"] + configuration)
        #expect(fetched.status == 0 && fetched.stderr.isEmpty && fetched.stdout.contains(" token "), "\(fetched)")
        #expect(try objects().count == 4)
        // The server knows the client by the key in the token.
        let renewed = try certprov(["fetch", "--force"] + configuration)
        #expect(renewed.status == 0, "\(renewed)")
        #expect(try server.requests().last?["operation"] as? String == "simplereenroll")
        #expect(try objects().count == 4)
        let listed = try certprov(["list", "--json"] + configuration)
        #expect(listed.status == 0, "\(listed)")
        #expect(try listed.document("IdentityList")["items"].array.first?["key"]["location"].string == "token")
        let exported = try certprov(["fetch", "--out", sandbox.path + "/out", "--export-key"] + configuration)
        #expect(exported.status != 0 && exported.stderr.contains("cannot leave"), "\(exported)")
        let deleted = try certprov(["delete", "--yes"] + configuration)
        #expect(deleted.status == 0, "\(deleted)")
        // The issuer's certificate may be others' issuer too.
        #expect(try objects().count == 1)
    }

    /// Before the first enrolment: the token is missing, its PIN is not configured, or the wrong one is.
    @Test(arguments: [
        ("pkcs11:token=host", "pin", 0), ("pkcs11:token=other", "pin", 69), ("pkcs11:token=host", nil, 77),
        ("pkcs11:token=host", "wrong", 77),
    ])
    func checkForetellsWhatTheTokenRefuses(token: String, pin: String?, status: Int32) async throws {
        let server = try await ESTServer.start("--auth", "basic")
        try sandbox.write("wrong-PIN\n", to: "wrong")
        let file = try configure(server)[1]
        var text = try String(contentsOfFile: file, encoding: .utf8).replacing("pkcs11:token=host", with: token)
        let source = "CertificateProvider.mdm.key-pin-source = file:\(sandbox.path)/"
        text = text.replacing(source + "pin", with: pin.map { source + $0 } ?? "")
        let configuration = ["--config", try sandbox.write(text.utf8, to: "client.properties")]
        let checked = try certprov(["check"] + configuration)
        #expect(checked.status == status && checked.stdout.contains("mdm key"), "\(checked)")
        let fetched = try certprov(["fetch"] + configuration)
        #expect(fetched.status == status, "\(fetched)")
    }

    /// At any moment: in the end there are one key and one certificate.
    ///
    /// The module is in p11-kit's server: SoftHSM itself does not bear to be killed while it writes.
    @Test func killedAtRandomMomentsItLeavesNothingInTheToken() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let socket = sandbox.path + "/p11-kit"
        let tokens = try Subprocess(
            ["SOFTHSM2_CONF=\(sandbox.path)/softhsm2.conf"]
                + ["p11-kit", "server", "-f", "-n", socket, "-p", TokenTests.library, "pkcs11:token=host"])
        try #require(tokens.readLine() != nil)
        let remote = ["P11_KIT_SERVER_ADDRESS": "unix:path=" + socket]
        let configuration = try configure(server, module: try P11KitClient.path())
        let renewal = ["fetch", "--force", "--json"] + configuration
        let start = ContinuousClock.now
        let first = try certprov(renewal, remote)
        try #require(first.status == 0, "\(first)")
        var kills = KillMoments(TestLength.rounds(8, full: 12, soak: 200), within: ContinuousClock.now - start)
        while kills.areLeft {
            let process = try sandbox.start(
                [BuiltCommand.path] + renewal, with: variables.merging(remote) { $1 })
            _ = kills.kill(process)
            // p11-kit's server goes on for a client that is gone, and SoftHSM leaves remains of an object that one process
            // destroys while another is still making it.
            let end = ContinuousClock.now + .seconds(600)
            while !tokens.children.isEmpty, .now < end { usleep(10_000) }
            let listed = try certprov(["list", "--json"] + configuration, remote)
            #expect(listed.status == 0, "after \(kills.killed) kills: \(listed)")
        }
        #expect(kills.haveLanded, "only \(kills.killed) were killed in time")
        for _ in 0..<2 {
            let last = try certprov(renewal, remote)
            #expect(last.status == 0, "\(last)")
        }
        let left = try objects()
        let listing = try listing()
        #expect(left.count == 4, "\(listing)")
        withExtendedLifetime(tokens) {}
    }
}
