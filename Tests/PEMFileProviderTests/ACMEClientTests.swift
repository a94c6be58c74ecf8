import CertificateProviding
import CertprovKit
import Foundation
import Glibc
import PEMFileProvider
import TestSupport
import Testing

/// ACME clients write their files, against a server on this host, and a running service reads them.
@Suite(
    .timeLimit(.minutes(20)), .enabled(if: TestLength.hasSeconds, "it takes seconds"),
    .enabled(if: Pebble.isInstalled, "pebble is not installed"))
struct ACMEClientTests {
    /// A client with its commands. `SERVER` is the directory's URL, `CA` the file of the server's authority.
    struct Client: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var issue: String
        var renew: String
        /// The places that are read, relative to the directory where the commands run. The first one is the service's.
        var certificates: [String]
        /// Whether a renewal makes a new key.
        var renewsKey = true
        var needsRoot = false

        static let name = "web.example.test"
        private static let certbot =
            "certbot --non-interactive --config-dir etc --work-dir lib --logs-dir log"
        private static let lego =
            "lego --path lego --server $SERVER --accept-tos --email a@example.test --domains \(name) --http --http.port 127.0.0.1:0"
        private static let dehydrated = "dehydrated --config dehydrated.conf --cron --domain \(name)"
        // It knows no authority but those of the host.
        private static let uacme =
            "unshare --mount sh -c 'mount --make-rprivate / && mount --bind \"$CA\" /etc/ssl/certs/ca-certificates.crt && exec \"$@\"' "
            + "uacme uacme --acme-url $SERVER --confdir uacme --yes --hook /bin/true"

        static let all = [
            Client(
                testDescription: "certbot",
                issue: "\(certbot) certonly --agree-tos --register-unsafely-without-email --server $SERVER --manual "
                    + "--preferred-challenges http --manual-auth-hook /bin/true --domain \(name)",
                renew: "\(certbot) renew --force-renewal --no-random-sleep-on-renew",
                certificates: ["etc/live/\(name)", "etc/live/\(name)/fullchain.pem"]),
            Client(
                testDescription: "lego", issue: "\(lego) run",
                renew: "\(lego) renew --days 4000 --no-random-sleep",
                certificates: ["lego/certificates", "lego/certificates/\(name).crt"]),
            Client(
                testDescription: "uacme", issue: "\(uacme) new && \(uacme) issue \(name)",
                // It names the certificate of before by the second, and fails where that is there.
                renew: "rm -f uacme/\(name)/cert-*.pem && \(uacme) --force issue \(name)",
                certificates: ["uacme/\(name)", "uacme/\(name)/cert.pem"], renewsKey: false, needsRoot: true),
            Client(
                testDescription: "dehydrated",
                issue: """
                    mkdir well-known
                    printf '%s\\n' "CA=$SERVER" "BASEDIR=$PWD" "WELLKNOWN=$PWD/well-known" >dehydrated.conf
                    dehydrated --config dehydrated.conf --register --accept-terms && \(dehydrated)
                    """, renew: "\(dehydrated) --force",
                certificates: ["certs/\(name)", "certs/\(name)/fullchain.pem"]),
        ]
    }

    private let directory: TemporaryDirectory
    private let log = TestLog()

    init() throws { directory = try TemporaryDirectory() }

    private func run(_ commands: String, _ server: Pebble) async throws {
        try directory.make("home")
        let output = try Subprocess(
            ["/bin/sh", "-c", commands],
            environment: [
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": directory["home"], "SERVER": server.directoryURL,
                "CA": server.serverCA, "REQUESTS_CA_BUNDLE": server.serverCA, "CURL_CA_BUNDLE": server.serverCA,
                "LEGO_CA_CERTIFICATES": server.serverCA,
            ], in: directory.path, .captured(), seconds: 600)
        while !output.hasEnded { try await Task.sleep(for: .milliseconds(5)) }
        let end = output.wait()
        try #require(end.status == 0, "\(end)\n\(server.log)")
    }

    @Test("A service uses the files of an ACME client, and takes each renewal", arguments: Client.all)
    func renewals(client: Client) async throws {
        guard !client.needsRoot || geteuid() == 0 else { return }
        let server = try await Pebble.start()
        let root = try server.root()
        try await run(client.issue, server)
        for place in client.certificates {
            let provider = try PEMFileProvider.testing(["certificate": directory[place], "usage": "server"])
            let identity = try await provider.fetch()
            #expect(identity.certificateChain.count == 2 && identity.trust == nil, "\(place)")
            #expect(identity.certificateChain.last?.issuerDER == root.subjectDER)
        }
        let lines = [
            "CertificateProvider = pem", "CertificateProvider.pem.certificate = \(directory[client.certificates[0]])",
            "CertificateProvider.pem.usage = server",
        ]
        try await withService(lines, in: directory, log) { _, credentials in
            for _ in 0..<TestLength.rounds(1, full: 2, soak: 2) {
                let identity = credentials.current.identity
                try await run(client.renew, server)
                try await eventually { credentials.current.identity.certificate != identity.certificate }
                #expect((credentials.current.identity.key.publicKey != identity.key.publicKey) == client.renewsKey)
            }
        }
        #expect(log.warnings.isEmpty, "\(log.warnings)")
    }
}

/// The ACME server of the tests.
@Suite(
    .timeLimit(.minutes(20)), .enabled(if: TestLength.hasSeconds, "it takes seconds"),
    .enabled(if: Pebble.isInstalled, "pebble is not installed"))
struct PebbleTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    /// Runs lego for a domain.
    private func lego(
        _ server: Pebble, _ domain: String, challenge: [String] = ["--http", "--http.port", "127.0.0.1:0"],
        _ options: String...
    ) throws -> Output {
        let arguments =
            ["lego", "--path", directory.path, "--server", server.directoryURL, "--accept-tos", "--email", "a@b.test"]
            + ["--domains", domain] + challenge + options + ["run"]
        return try Subprocess(
            arguments,
            environment: [
                "PATH": "/usr/bin:/bin", "HOME": directory.path, "LEGO_CA_CERTIFICATES": server.serverCA,
            ],
            .captured(), seconds: 600
        ).wait()
    }

    @Test("Nonces and domains are refused, and accounts must be bound, as the options say")
    func refusals() async throws {
        var options = Pebble.Options(refusedNonces: 30, refusedDomains: ["refused.test"], seconds: 3600)
        options.externalAccounts = ["kid-1": "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"]
        let server = try await Pebble.start(options)
        let unbound = try lego(server, "web.example.test")
        #expect(unbound.status != 0 && unbound.stderr.contains("External Account Binding"), "\(unbound)")
        let mac = try #require(options.externalAccounts["kid-1"])
        let bound = try lego(server, "web.example.test", "--eab", "--kid", "kid-1", "--hmac", mac)
        #expect(bound.status == 0, "\(bound)\n\(server.log)")
        let refused = try lego(server, "www.refused.test", "--eab", "--kid", "kid-1", "--hmac", mac)
        #expect(refused.status != 0 && refused.stderr.contains("rejectedIdentifier"), "\(refused)")
        server.stop()
        #expect(try lego(server, "other.example.test").status != 0)
    }

    @Test("The server connects to the ports that it is given, and a client without an answer there fails")
    func validation() async throws {
        let (http, tls) = (try ReservedPort(), try ReservedPort())
        let server = try await Pebble.start(.init(validation: .ports(http: http.number, tls: tls.number)))
        for (domain, options) in [
            ("http.example.test", ["--http", "--http.port", "127.0.0.1:\(http)"]),
            ("tls.example.test", ["--tls", "--tls.port", "127.0.0.1:\(tls)"]),
        ] {
            let output = try lego(server, domain, challenge: options)
            #expect(output.status == 0, "\(output)\n\(server.log)")
        }
        let elsewhere = try lego(server, "none.example.test")
        #expect(elsewhere.status != 0 && elsewhere.stderr.contains("urn:ietf:params:acme:error:"), "\(elsewhere)")
    }
}
