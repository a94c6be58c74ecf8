import Foundation
import Glibc
import TestSupport
import Testing

/// The provider `pem` with its key in a token and the certificate in a file.
@Suite(.timeLimit(.minutes(20))) struct TokenFileTests {
    /// The certificate is issued again and again for the same key.
    private struct Web {
        let host: TokenHost
        var path: String { host.sandbox.path }
        var certificate: String { path + "/web.pem" }
        var properties: String { path + "/web.properties" }

        /// Makes a key in a token, and a property file that names it.
        init(_ host: TokenHost, keyType: String = "p256") throws {
            self.host = host
            try host.certprov(
                ["keygen", "--subject", "CN=web", "--key-type", keyType, "--out", path + "/web.csr"]
                    + host.options(pin: host.pin)
            ).require()
            try configure(pin: host.pin)
            try issue(1)
        }

        func configure(pin: String) throws {
            try host.sandbox.write(
                """
                CertificateProvider = pem
                CertificateProvider.pem.certificate = \(certificate)
                CertificateProvider.pem.key = pkcs11:token=host?module-name=token
                CertificateProvider.pem.key-pin-source = file:\(pin)
                CertificateProvider.pem.usage = both
                TrustAnchors = \(Fixtures.path("ca.pem"))

                """, to: "web.properties")
        }

        /// Has the fixtures' authority issue the certificate with a serial number, and replaces the file.
        func issue(_ serial: Int) throws {
            try host.sandbox.shell(
                #"""
                set -e; cd "$1"
                printf 'extendedKeyUsage=clientAuth,serverAuth\nsubjectAltName=DNS:localhost\n' >web.ext
                openssl x509 -req -in web.csr -CA "$2/intermediate.pem" -CAkey "$2/intermediate.key" -set_serial "$3" \
                    -days 30 -extfile web.ext -out new.pem
                cat "$2/intermediate.pem" >>new.pem
                mv new.pem web.pem
                """#, path, Fixtures.path(""), "\(serial)"
            ).require()
        }

        func certprov(_ arguments: String...) throws -> Output {
            let end = arguments.firstIndex(of: "--out") ?? arguments.endIndex
            return try host.certprov(arguments[..<end] + ["--config", properties] + arguments[end...])
        }

        /// Whether `fetch` writes what the file has.
        func isFetched() throws -> Bool {
            try certprov("fetch", "--out", path + "/out").expect()
            return try contents(path + "/out/current/chain.pem") == contents(certificate)
        }

        func serve() throws -> ServingProcess {
            // Beside the tests, also where the command is a release.
            let program = URL(filePath: CommandLine.arguments[0]).deletingLastPathComponent()
                .appending(path: "SigningService").path
            return try ServingProcess(host.entrance + [program], configuredBy: properties) {
                try host.sandbox.start($0, with: host.variables)
            }
        }

        /// The serial number that a client of a service sees.
        func served(_ server: ServingProcess) throws -> Int? {
            try server.serialNumber(
                for: ["-cert", Fixtures.path("ec.pem"), "-key", Fixtures.path("ec.key")],
                trustedBy: Fixtures.path("ca.pem")
            ).flatMap { Int($0, radix: 16) }
        }

        func waitUntilServed(_ serial: Int?, _ server: ServingProcess) throws {
            let deadline = ContinuousClock.now + .seconds(600)
            while try served(server) != serial {
                try #require(ContinuousClock.now < deadline, "\(serial.map(String.init) ?? "none") is not served")
                usleep(20_000)
            }
        }
    }

    private static let cases = [
        TokenHost.Case(module: .softhsm, keyType: "p256"), TokenHost.Case(module: .softhsm, keyType: "rsa2048"),
        TokenHost.Case(module: .nss, keyType: "p256"), TokenHost.Case(module: .tpm, keyType: "p256"),
        TokenHost.Case(module: .tabrmd, keyType: "p256"),
    ]

    @Test("A certificate in a file is used with its key in a token, and a renewed one is taken", arguments: cases)
    func theCertificateIsInAFile(_ test: TokenHost.Case) throws {
        let web = try Web(TokenHost(test.module), keyType: test.keyType)
        let options = ["--config", web.properties]
        let listed = try web.certprov("list").expect(stderr: "")
        #expect(listed.stdout.contains("CN=web") && listed.stdout.contains("token"), "\(listed)")
        #expect(try web.isFetched())
        try web.host.connect(trustedBy: Fixtures.path("ca.pem"), options)
        #expect(try web.host.leftInTPM().isEmpty)

        try web.issue(2)
        #expect(try web.isFetched())
        try web.host.connect(trustedBy: Fixtures.path("ca.pem"), options)

        let server = try web.serve()
        try web.waitUntilServed(2, server)
        try web.issue(3)
        try web.waitUntilServed(3, server)
        let end = server.stop()
        #expect(end.status == 0 && !end.stderr.contains("warning") && !end.stderr.contains("error"), "\(end)")
        #expect(try web.host.leftInTPM().isEmpty)
        // Nothing is written to the token.
        #expect(try web.host.contents().kinds == ["private-key", "public-key"])
    }

    @Test("A wrong PIN is sent once", arguments: [TokenHost.Module.softhsm, .nss, .tpm])
    func aWrongPINIsSentOnce(_ module: TokenHost.Module) throws {
        let web = try Web(TokenHost(module, behind: .spy))
        let before = try web.host.calls(of: "C_Login")
        try web.configure(pin: web.host.wrongPIN)
        for _ in 0..<2 {
            try web.certprov("fetch", "--json").expectFailure("pinIncorrect", status: 77)
            for command in ["list", "check"] { #expect(try web.certprov(command).status != 0) }
            #expect(throws: Subprocess.Failure.self) { try web.serve() }
            #expect(try web.host.calls(of: "C_Login") == before + 1)
        }
        try web.configure(pin: web.host.pin)
        #expect(try web.isFetched())
        // A service that uses the identity, and whose PIN is another one after its restart.
        try web.configure(pin: web.host.wrongPIN)
        let made = try web.host.calls(of: "C_Login")
        #expect(throws: Subprocess.Failure.self) { try web.serve() }
        #expect(try web.certprov("renew").status == 77)
        #expect(try web.host.calls(of: "C_Login") == made)
    }

    @Test("A token that goes away and comes back is used again, with the certificate that the file has by then")
    func theTokenGoesAway() throws {
        let web = try Web(TokenHost(.softhsm))
        #expect(try web.isFetched())
        let server = try web.serve()
        try web.waitUntilServed(1, server)
        let (token, away) = (web.path + "/token/tokens", web.path + "/token/away")
        try #require(rename(token, away) == 0)
        try web.waitUntilServed(nil, server)
        for command in ["fetch", "renew", "check"] {
            try web.certprov(command).expect(69, about: command)
        }
        try web.issue(2)
        #expect(try web.served(server) == nil)
        try #require(rename(away, token) == 0)
        try web.waitUntilServed(2, server)
        #expect(try web.isFetched())
        #expect(server.stop().status == 0)
    }
}
