import Foundation
import Glibc
import TestSupport
import Testing

/// The command enrols into a token of SoftHSM.
@Suite struct TokenEnrolmentTests {
    private let sandbox: Sandbox
    private let token: SoftToken
    private var variables: [String: String] { token.variables }

    init() throws {
        sandbox = try Sandbox()
        token = try SoftToken(in: sandbox, "host", pin: "tok3n-PIN-59")
    }

    private func configure(_ server: ESTServer, module: String = SoftToken.library) throws -> [String] {
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

    @Test func anIdentityIsEnrolledIntoTheTokenUsedAndDestroyed() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let configuration = try configure(server)
        try certprov(["fetch"] + configuration).expect(stdout: " token ", stderr: "")
        #expect(try token.objects().count == 4)
        // The server knows the client by the key in the token.
        try certprov(["fetch", "--force"] + configuration).expect()
        #expect(try server.requests().last?["operation"] as? String == "simplereenroll")
        #expect(try token.objects().count == 4)
        let listed = try certprov(["list", "--json"] + configuration).expect()
        #expect(try listed.document("IdentityList")["items"].array.first?["key"]["location"].string == "token")
        let exported = try certprov(["fetch", "--out", sandbox.path + "/out", "--export-key"] + configuration)
        #expect(exported.status != 0 && exported.stderr.contains("cannot leave"), "\(exported)")
        try certprov(["delete", "--yes"] + configuration).expect()
        // The issuer's certificate may be others' issuer too.
        #expect(try token.objects().count == 1)
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
        try certprov(["check"] + configuration).expect(status, stdout: "mdm key")
        try certprov(["fetch"] + configuration).expect(status)
    }

    /// At any moment: in the end there are one key and one certificate.
    @Test func killedAtRandomMomentsItLeavesNothingInTheToken() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let (tokens, remote) = try token.serve()
        let configuration = try configure(server, module: try P11KitClient.path())
        let renewal = ["fetch", "--force", "--json"] + configuration
        let start = ContinuousClock.now
        try certprov(renewal, remote).require()
        var kills = KillMoments(TestLength.rounds(8, full: 12, soak: 200), within: ContinuousClock.now - start)
        while kills.areLeft {
            let process = try sandbox.start([BuiltCommand.path] + renewal, with: remote)
            _ = kills.kill(process)
            // p11-kit's server goes on for a client that is gone, and SoftHSM leaves remains of an object that one process
            // destroys while another is still making it.
            let end = ContinuousClock.now + .seconds(600)
            while !tokens.children.isEmpty, .now < end { usleep(10_000) }
            try certprov(["list", "--json"] + configuration, remote).expect(about: "after \(kills.killed) kills")
        }
        #expect(kills.haveLanded, "only \(kills.killed) were killed in time")
        for _ in 0..<2 {
            try certprov(renewal, remote).expect()
        }
        let objects = try token.objects()
        #expect(objects.count == 4, "\(objects)")
        withExtendedLifetime(tokens) {}
    }
}
