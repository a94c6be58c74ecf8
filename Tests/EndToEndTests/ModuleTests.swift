import Foundation
import Glibc
import TestSupport
import Testing

/// The command with every PKCS#11 module that Documentation/Features.md names: a key from its making to its end.
@Suite(.timeLimit(.minutes(20))) struct ModuleTests {
    @Test(arguments: TokenHost.Case.all) func aKeyIsMadeUsedAndDestroyedByHand(_ test: TokenHost.Case) throws {
        try liveByHand(test)
    }

    @Test(.enabled(if: TokenHost.runsOpencryptoki, TokenHost.whyNoOpencryptoki))
    func aKeyIsMadeUsedAndDestroyedByHandOnOpencryptoki() throws { try liveByHand(.opencryptoki) }

    @Test(arguments: TokenHost.Case.all)
    func anIdentityIsEnrolledRenewedAndDestroyed(_ test: TokenHost.Case) async throws { try await enrol(test) }

    @Test(.enabled(if: TokenHost.runsOpencryptoki, TokenHost.whyNoOpencryptoki))
    func anIdentityIsEnrolledRenewedAndDestroyedOnOpencryptoki() async throws { try await enrol(.opencryptoki) }

    /// Also where nothing else in the process has loaded p11-kit's configuration.
    @Test func aPathAndAConfiguredNameMayMeanOneModule() throws {
        let host = try TokenHost(.softhsm)
        let options = host.options(pin: host.pin) + ["--set", "module-path=\(SoftToken.library)"]
        try host.certprov(["list"] + options).expect()
    }

    /// Key, request, certificate beside the key, mutual TLS, deletion.
    private func liveByHand(_ test: TokenHost.Case) throws {
        let host = try TokenHost(test.module)
        let (options, request) = (host.options(pin: host.pin), host.sandbox.path + "/client.csr")
        let made = try host.certprov(
            ["keygen", "--subject", "CN=client,O=Example", "--key-type", test.keyType, "--out", request] + options)
        try #require(made.status == 0 && made.stderr.isEmpty, "\(made)")
        #expect(try host.leftInTPM().isEmpty)
        try host.sandbox.run(["openssl", "req", "-verify", "-noout", "-in", request]).expect()
        let fresh = try host.contents()
        #expect(fresh.kinds == ["private-key", "public-key"] && fresh.ids.count == 1, "\(fresh)")
        // The TPM has room for three sessions, which only the command itself makes here.
        for _ in 0..<4 {
            try host.certprov(["list"] + options).require()
        }
        let abilities = try #require(fresh.privateKeys.first).dropFirst(2)
        // tpm2-pkcs11 makes no key that may not decrypt.
        #expect(Set(abilities) == Set(["sign", "sensitive"] + (test.module.isTPM ? ["decrypt"] : [])), "\(fresh)")

        let chain = try host.sandbox.issue(request, to: "client.pem", serial: 91)
        try host.certprov(["store-certificate", chain] + options).expect(stdout: "CN=client,O=Example")
        #expect(try host.leftInTPM().isEmpty)
        #expect(try host.contents().kinds == ["certificate", "certificate", "private-key", "public-key"])
        try host.connect(trustedBy: Fixtures.path("ca.pem"), options)

        try host.certprov(["delete", "--yes", "--set", "delete-objects=true"] + options).expect()
        #expect(try host.leftInTPM().isEmpty)

        // A key whose request cannot be written is destroyed again.
        try host.certprov(
            ["keygen", "--subject", "CN=client", "--key-type", test.keyType, "--out", "/proc/client.csr"] + options
        ).expect(73)
        #expect(try host.leftInTPM().isEmpty)
        // The issuer's certificate may be others' issuer too.
        #expect(try host.contents().kinds == ["certificate"])
    }

    /// Enrolment, mutual TLS, a renewal that fails, one that does not, deletion.
    private func enrol(_ test: TokenHost.Case) async throws {
        let host = try TokenHost(test.module)
        let server = try await ESTServer.start("--auth", "basic")
        let configuration = try configure(host, server, test.keyType)
        let authority = server.directory["ca.pem"]
        let fetched = try host.certprov(["fetch"] + configuration)
        try #require(fetched.status == 0 && fetched.stdout.contains(" token "), "\(fetched)")
        let first = try host.contents()
        #expect(first.kinds == ["certificate", "certificate", "private-key", "public-key"], "\(first)")
        try host.connect(trustedBy: authority, configuration)

        // The server's certificate is for another key: the new one goes, and the old one is used.
        let failing = try configure(host, server, test.keyType, label: "/fault-other-key")
        let failed = try host.certprov(["fetch", "--force"] + failing)
        #expect(failed.status != 0, "\(failed)")
        #expect(try host.leftInTPM().isEmpty)
        #expect(try host.contents().ids == first.ids)
        try host.connect(trustedBy: authority, configuration)

        try host.certprov(["fetch", "--force"] + configuration).expect()
        #expect(try host.leftInTPM().isEmpty)
        // The server knows the client by the old key, which is there until the new certificate is.
        #expect(try server.requests().last?["operation"] as? String == "simplereenroll")
        let second = try host.contents()
        #expect(second.kinds == first.kinds && second.privateKeys != first.privateKeys, "\(second)")
        try host.connect(trustedBy: authority, configuration)

        try host.certprov(["delete", "--yes"] + configuration).expect()
        #expect(try host.leftInTPM().isEmpty)
        #expect(try host.contents().kinds == ["certificate"])
    }

    @Test(
        "A renewal by password, after the server has refused the certificate, leaves nothing in a TPM",
        arguments: [("unknown-ca", "p256"), ("close-notify", "rsa2048")])
    func aRenewalByPasswordLeavesNothing(refusal: String, keyType: String) async throws {
        let host = try TokenHost(.tpm)
        let server = try await ESTServer.start("--auth", "basic", "--refuse-clients", refusal)
        let configuration = try configure(host, server, keyType)
        try host.certprov(["fetch"] + configuration).expect()
        #expect(try host.leftInTPM().isEmpty)
        for _ in 0..<3 {
            try host.certprov(["fetch", "--force"] + configuration).expect()
            #expect(try host.leftInTPM() == [])
        }
        #expect(try host.contents().kinds == ["certificate", "certificate", "private-key", "public-key"])
    }

    private func configure(
        _ host: TokenHost, _ server: ESTServer, _ keyType: String, label: String = ""
    ) throws -> [String] {
        try host.sandbox.configure(
            server, label: label,
            """
            CertificateProvider.mdm.key = pkcs11:token=host?module-name=token
            CertificateProvider.mdm.key-type = \(keyType)
            CertificateProvider.mdm.key-pin-source = file:\(host.pin)

            """)
    }
}

extension TokenHost {
    /// Makes a handshake in each version of TLS with a server that demands a certificate.
    func connect(trustedBy authority: String, _ options: [String]) throws {
        for (version, name) in [("-tls1_2", "TLS 1.2"), ("-tls1_3", "TLS 1.3")] {
            let server = try TLSServer(in: sandbox, ["-Verify", "3", "-CAfile", authority, version])
            let output = try certprov(
                ["connect", "localhost:\(server.port)", "--trust-anchors", server.certificate, "--json"] + options
            ).expect()
            let document = try output.document("Connection")
            #expect(document["tlsVersion"].string == name)
            #expect(document["identity"]["key"]["location"].string == "token")
            #expect(["completed", "unopposed"].contains(document["clientAuthentication"].string))
        }
    }
}

/// OpenSSL's server on a free port, for as long as this object lives.
final class TLSServer: Sendable {
    let port: String
    /// The file with its certificate, for localhost.
    let certificate: String
    private let process: Subprocess

    convenience init(in sandbox: Sandbox, _ options: [String]) throws {
        let script = """
            [ -f server.pem ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc \\
                -keyout server.key -out server.pem -days 2 -subj /CN=localhost \\
                -addext subjectAltName=DNS:localhost 2>errors || exit
            exec openssl s_server -accept 127.0.0.1:0 -cert server.pem -key server.key -www \\
                -verify_return_error "$@"
            """
        try self.init(in: sandbox, command: ["/bin/sh", "-c", script, "sh"] + options)
    }

    /// - Parameter command: A server that says at which port it accepts connections.
    init(in sandbox: Sandbox, command: [String]) throws {
        certificate = sandbox.path + "/server.pem"
        let log = sandbox.path + "/server.log"
        // The log of a server before this one names another port.
        unlink(log)
        let process = try sandbox.start(
            ["/bin/sh", "-c", #"cd "$1" && shift && exec "$@" >server.log 2>&1"#, "sh", sandbox.path] + command)
        self.process = process
        var port: Substring?
        while port == nil, !process.hasEnded {
            usleep(2000)
            let text = (try? String(contentsOfFile: log, encoding: .utf8)) ?? ""
            let lines = text.split(separator: "\n", omittingEmptySubsequences: false).dropLast()
            port = lines.first { $0.hasPrefix("ACCEPT") }?.split(separator: ":").last
        }
        guard let port else {
            throw Subprocess.Failure(description: "the server does not start: \(process.wait())")
        }
        self.port = String(port)
    }

    deinit {
        process.kill()
        _ = process.wait()
    }
}
