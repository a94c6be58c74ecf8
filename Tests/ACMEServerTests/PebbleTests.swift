import ACMEProvider
import CertificateProviding
import Foundation
import Glibc
import PluginHost
import TestSupport
import Testing

/// The command against Debian's `pebble`.
@Suite(
    .timeLimit(.minutes(30)), .enabled(if: TestLength.hasSeconds, "it takes seconds"),
    .enabled(if: Pebble.isInstalled, "pebble is not installed"))
struct PebbleEnrolmentTests {
    private let host: Host
    private let (http, tls): (ReservedPort, ReservedPort)

    init() throws {
        host = try Host()
        (http, tls) = (try ReservedPort(), try ReservedPort())
    }

    private var ports: Pebble.Validation { .ports(http: http.number, tls: tls.number) }

    /// The hook of the page about ACME, for dns-01, behind one that writes down what it is asked for.
    private func hook(_ server: Pebble) throws -> String {
        let page = try String(contentsOfFile: installed("../Documentation/ACME.md"), encoding: .utf8)
        let script = try #require(page.components(separatedBy: "```sh\n").dropFirst().first)
        try host.directory.install(
            "publish",
            try #require(script.components(separatedBy: "```").first).replacing(
                "http://127.0.0.1:8055", with: try #require(server.dnsManagement)
            ).utf8)
        return try host.directory.install(
            "hook",
            """
            #!/bin/sh
            set -eu
            echo "$1 $2" >>'\(host.directory["hook.log"])'
            [ ! -e '\(host.directory["hook.fails"])' ] || { echo "no such zone" >&2; exit 1; }
            exec '\(host.directory["publish"])' "$@"

            """.utf8)
    }

    struct Names: Sendable, CustomTestStringConvertible {
        var identifiers: String
        var challenge: String
        var shown: [String]
        var testDescription: String { "\(challenge), \(identifiers)" }

        static let all = [
            Names(identifiers: "dns:web.example.test", challenge: "http-01", shown: ["DNS:web.example.test"]),
            Names(
                identifiers: "dns:a.example.test, dns:b.example.test, ip:127.0.0.1", challenge: "http-01",
                shown: ["DNS:a.example.test", "DNS:b.example.test", "IP Address:127.0.0.1"]),
            Names(identifiers: "dns:web.example.test", challenge: "http-root", shown: ["DNS:web.example.test"]),
            Names(
                identifiers: "dns:web.example.test,dns:b.example.test", challenge: "tls-alpn-01",
                shown: ["DNS:web.example.test", "DNS:b.example.test"]),
            Names(identifiers: "ip:127.0.0.1", challenge: "tls-alpn-01", shown: ["IP Address:127.0.0.1"]),
            Names(
                identifiers: "dns:web.example.test,dns:*.web.example.test", challenge: "dns-01",
                shown: ["DNS:*.web.example.test", "DNS:web.example.test"]),
        ]
    }

    @Test(
        "Each challenge proves its names to a slow server that refuses half of all nonces, and leaves nothing behind",
        arguments: Names.all)
    func challenges(names: Names) async throws {
        let server = try await Pebble.start(
            .init(
                validation: ports, refusedNonces: 50,
                environment: ["PEBBLE_VA_NOSLEEP": "", "PEBBLE_VA_SLEEPTIME": "2"]))
        var parameters: [String: String] = ["identifiers": names.identifiers, "challenge": names.challenge]
        var web: Subprocess?
        var host = host
        switch names.challenge {
        case "http-01": parameters["http-listen"] = "127.0.0.1:\(http)"
        case "http-root":
            // Other users can read the answers of a process that lets them read none of its files.
            host = try Host(entrance: ["sh", "-c", "umask 077; exec \"$@\"", "sh"])
            try host.directory.make("www")
            web = try Subprocess(
                [
                    "python3", "-m", "http.server", "--bind", "127.0.0.1", "--directory", host.directory["www"],
                    "\(http)",
                ], environment: ["PATH": ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin"])
            // Until it listens.
            try Subprocess.run([
                "curl", "--silent", "--output", "/dev/null", "--retry", "300", "--retry-connrefused", "--retry-delay",
                "1",
                "http://127.0.0.1:\(http)/",
            ])
            parameters.merge(["challenge": "http-01", "http-root": host.directory["www"]]) { $1 }
        case "tls-alpn-01": parameters["tls-listen"] = "\(tls)"
        default: parameters["dns-hook"] = try hook(server)
        }
        try host.configure(server, parameters)
        let text = try host.enrol(try server.root())
        for name in names.shown { #expect(text.contains(name), "\(text)") }
        let first = try host.serial
        try host.enrol(try server.root(), "--force")
        #expect(try host.serial != first)
        if web != nil {
            let left = host.directory.contents().filter { $0.hasPrefix("www/.well-known/acme-challenge/") }
            #expect(left.isEmpty, "\(left)")
            for folder in ["www/.well-known", "www/.well-known/acme-challenge"] {
                let attributes = try FileManager.default.attributesOfItem(atPath: host.directory[folder])
                #expect(attributes[.posixPermissions] as? Int == 0o755)
            }
        }
        if names.challenge == "dns-01" {
            let calls = host.directory.text("hook.log").split(separator: "\n")
            #expect(calls.count { $0.hasPrefix("add ") } == calls.count { $0.hasPrefix("remove ") }, "\(calls)")
            #expect(calls.contains("add _acme-challenge.web.example.test"), "\(calls)")
        }
    }

    @Test("An identity that is written with its key serves, and the stored one connects to it")
    func mutualTLS() async throws {
        let server = try await Pebble.start()
        try host.configure(server, ["identifiers": "dns:web.example.test", "usage": "both", "http-listen": "\(http)"])
        try host.enrol(try server.root(), for: "sslserver", "--export-key")
        _ = try host.judge(try server.root())
        let set = host.directory["out/current"]
        let connected = try host.connectMutually(
            to: "web.example.test", (set + "/certificate.pem", set + "/chain.pem", set + "/key.pem"),
            anchors: host.directory["root.pem"])
        #expect(connected.status == 0 && connected.stdout.contains("200"), "\(connected)")
    }

    @Test("The server is known by a CA that it presents, or by a pin, and by no other one")
    func fingerprintAndPin() async throws {
        let server = try await Pebble.start()
        func fetch(_ changes: [String: String]) throws -> Output {
            var parameters: [String: String?] = [
                "identifiers": "dns:web.example.test", "http-listen": "\(http)", "trust-anchors": nil,
            ]
            for (name, value) in changes { parameters[name] = value }
            try host.configure(server, parameters)
            return try host.certprov("fetch", "--force")
        }
        let chain = try X509Certificate.certificates(pem: server.directory.text("server.pem"))
        let root = try #require(try X509Certificate.certificates(pem: server.directory.text("server-ca.pem")).first)
        // The server does not present its root, and the leaf is not a CA.
        for other in [root, chain[0]] {
            let refused = try fetch(["ca-fingerprint": DisplayText.hexadecimal(other.sha256Fingerprint)])
            #expect(refused.stderr.contains("[serverNotTrusted]") && refused.status != 0, "\(refused)")
        }
        let known = try fetch(["ca-fingerprint": DisplayText.hexadecimal(try #require(chain.last).sha256Fingerprint)])
        #expect(known.status == 0 && chain.count == 2, "\(known)")
        let other = "sha256/" + Data(repeating: 7, count: 32).base64EncodedString()
        let refused = try fetch(["pin": other, "pin-mode": "pin-only"])
        #expect(refused.stderr.contains("[serverNotTrusted]") && refused.status != 0, "\(refused)")
        let pin = try #require(refused.stderr.firstMatch(of: /sha256\/[A-Za-z0-9+\/]{43}=/)).output
        let pinned = try fetch(["pin": String(pin), "pin-mode": "pin-only"])
        #expect(pinned.status == 0, "\(pinned)")
    }

    @Test("A refused name is an error with the server's reason and the parameter to change")
    func refusedOrder() async throws {
        let server = try await Pebble.start(.init(validation: ports, refusedDomains: ["refused.test"]))
        try host.configure(server, ["identifiers": "dns:www.refused.test", "http-listen": "\(http)"])
        let refused = try host.certprov("fetch")
        #expect(refused.status != 0 && refused.stderr.contains("rejectedIdentifier"), "\(refused)")
        #expect(refused.stderr.contains("'identifiers'"), "\(refused)")
        // The next attempt is another order.
        try host.configure(server, ["identifiers": "dns:web.example.test", "http-listen": "\(http)"])
        try host.enrol(try server.root())
    }

    @Test("A proof that fails names the reason, and the next attempt succeeds")
    func failedProof() async throws {
        let server = try await Pebble.start(.init(validation: ports))
        let elsewhere = try ReservedPort()
        try host.configure(server, ["identifiers": "dns:web.example.test", "http-listen": "\(elsewhere)"])
        let failed = try host.certprov("fetch")
        #expect(failed.status != 0 && failed.stderr.contains("web.example.test"), "\(failed)")
        #expect(
            failed.stderr.contains("has not accepted the proof") && failed.stderr.contains("[rejected]"), "\(failed)")
        try host.configure(server, ["identifiers": "dns:web.example.test", "http-listen": "\(http)"])
        try host.enrol(try server.root())
    }

    private static let hasReservedPorts =
        (try? String(contentsOfFile: "/proc/sys/net/ipv4/ip_unprivileged_port_start", encoding: .utf8)).map {
            $0 != "0\n"
        }
        == true

    @Test(
        "Without the right to a port, as in the timer's unit, the status is 78, and not that of a success",
        .enabled(if: geteuid() == 0 && hasReservedPorts, "only root can give capabilities up"))
    func noRightToThePort() async throws {
        let server = try await Pebble.start(.init(validation: ports))
        let host = try Host(entrance: ["setpriv", "--bounding-set=-all", "--inh-caps=-all"])
        for _ in 1...2 {
            try host.configure(server, ["identifiers": "dns:web.example.test", "http-listen": "127.0.0.1:80"])
            let refused = try host.certprov("fetch")
            #expect(refused.status == 78 && refused.stderr.contains("set 'http-root'"), "\(refused)")
        }
        try host.configure(server, ["identifiers": "dns:web.example.test", "http-listen": "127.0.0.1:\(http)"])
        try host.enrol(try server.root())
        #expect(server.log.split(separator: "\n").count { $0.contains("Added order ") } == 1)
    }

    @Test("Revocation tells the server the reason, and deletes the identity")
    func revocation() async throws {
        let server = try await Pebble.start(.init(refusedNonces: 10))
        try host.configure(server, ["identifiers": "dns:web.example.test", "http-listen": "\(http)"])
        try host.enrol(try server.root())
        let serial = try host.serial
        #expect(try server.status(ofSerial: serial).status == "Valid")
        let deleted = try host.certprov("delete", "--yes", "--revoke", "--reason", "4")
        #expect(deleted.status == 0 && deleted.stderr.contains("revoked"), "\(deleted)")
        let status = try server.status(ofSerial: serial)
        #expect(status.status == "Revoked" && status.reason == 4)
        let again = try host.certprov("delete", "--yes", "--revoke")
        #expect(again.status != 0 && again.stderr.contains("No identity is stored"), "\(again)")
    }

    @Test("The provider in a plugin enrols, revokes and closes its account")
    func inAPlugin() async throws {
        let (server, person) = (try await Pebble.start(), NoUserInteraction())
        try host.directory.install(
            "plugins/certprov-plugin-acme", "#!/bin/sh\nexec '\(Host.program("TestPlugin"))' acme\n".utf8)
        let plugins = PluginHost(
            PluginDirectories([host.directory["plugins"]]), logger: ProviderEnvironment.testing().logger)
        let parameters = ProviderParameters(
            [
                "directory": server.directoryURL, "trust-anchors": server.serverCA, "agree-terms": "true",
                "proxy": "none", "identifiers": "dns:web.example.test", "http-listen": "\(http)", "timeout": "60",
            ].mapValues { .init($0) })
        let provider = try #require(try plugins.provider(ProviderID("acme"), parameters)).makeProvider(
            .testing(), parameters)
        let revocation = try #require(provider.revocation)
        #expect(await failure { try await revocation.revokeStoredCertificate(.superseded, person) }?.code == .notFound)
        let identity = try await provider.getCertificate(person)
        // This server has no renewal information.
        #expect(await provider.advice?.refreshAdvice(on: identity) == true)
        #expect(provider.advice?.advice(on: identity) == nil)
        try await revocation.revokeStoredCertificate(.superseded, person)
        let serial = identity.certificate.serialNumberText.replacing(":", with: "")
        let status = try server.status(ofSerial: serial)
        #expect(status.status == "Revoked" && status.reason == 4)
        try await revocation.closeAccount(person)
        try await revocation.closeAccount(person)
        await plugins.shutdown()
    }

    @Test("A closed account is an error, whose next step makes another one")
    func closedAccount() async throws {
        let server = try await Pebble.start()
        try host.configure(server, ["identifiers": "dns:web.example.test", "http-listen": "\(http)"])
        try host.enrol(try server.root())
        // A backup from before, with the account's key.
        try Subprocess.run(["cp", "-a", host.directory["state"], host.directory["backup"]])
        let closed = try host.certprov("delete", "--yes", "--force")
        #expect(closed.status == 0, "\(closed)")
        try host.enrol(try server.root())
        let serial = try host.serial
        try Subprocess.run(["rm", "-r", host.directory["state"]])
        try Subprocess.run(["mv", host.directory["backup"], host.directory["state"]])
        let refused = try host.certprov("fetch", "--force")
        #expect(refused.status != 0 && refused.stderr.contains("certprov delete --force"), "\(refused)")
        // The old certificate is revoked by its own key.
        let next = try host.certprov("delete", "--yes", "--revoke", "--force")
        #expect(next.status == 0 && next.stderr.contains("revoked"), "\(next)")
        try host.enrol(try server.root())
        #expect(try host.serial != serial)
    }

    @Test(
        "The terms are agreed to by their URL or true, and no other way",
        arguments: [
            ("true", nil), ("URL", nil), ("https://ca.example/other", "'agree-terms'"), (nil, "on a terminal"),
        ] as [(String?, String?)])
    func terms(value: String?, error: String?) async throws {
        let server = try await Pebble.start()
        let url = "data:text/plain,Do%20what%20thou%20wilt"
        try host.configure(
            server,
            [
                "identifiers": "dns:web.example.test", "http-listen": "\(http)",
                "agree-terms": value == "URL" ? url : value,
            ])
        let output = try host.certprov("fetch")
        #expect((output.status == 0) == (error == nil), "\(output)")
        if let error { #expect(output.stderr.contains(error) && output.stderr.contains(url), "\(output)") }
    }

    @Test("A person at a terminal is asked about the terms once", arguments: [true, false])
    func termsByPerson(agrees: Bool) async throws {
        let server = try await Pebble.start()
        let environment = ProviderEnvironment.testing()
        let descriptor = ACMEProvider.descriptor
        let provider = try descriptor.makeProvider(
            environment,
            ProviderParameters(
                [
                    "directory": server.directoryURL, "trust-anchors": server.serverCA, "proxy": "none",
                    "identifiers": "dns:web.example.test", "http-listen": "\(http)",
                ].mapValues { .init($0) }))
        let person = Person(confirming: agrees)
        #expect(await failure { try await provider.getCertificate(person) }?.code == (agrees ? nil : .userCancelled))
        #expect(person.timesAsked == 1 && person.questions[0].contains("Do%20what%20thou%20wilt"))
        if agrees {
            _ = try await provider.getCertificate(person)
            #expect(person.timesAsked == 1)
        }
        await provider.shutdown()
    }

    @Test("The contact is the account's, and a changed one is told to the server")
    func contact() async throws {
        let server = try await Pebble.start()
        let names = ["identifiers": "dns:web.example.test", "http-listen": "\(http)"]
        try host.configure(server, names.merging(["contact": "tel:+49-30-1"]) { $1 })
        let refused = try host.certprov("fetch")
        #expect(refused.status != 0 && refused.stderr.contains("check 'contact'"), "\(refused)")
        try host.configure(server, names.merging(["contact": "a@example.test, b@example.test"]) { $1 })
        try host.enrol(try server.root())
        try host.configure(server, names.merging(["contact": "c@example.test"]) { $1 })
        try host.enrol(try server.root(), "--force")
        try host.configure(server, names.merging(["contact": "tel:+49-30-1"]) { $1 })
        let changed = try host.certprov("fetch", "--force")
        #expect(changed.status != 0 && changed.stderr.contains("check 'contact'"), "\(changed)")
    }

    private static let mac = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"
    private static let shortMAC = "AAECAwQFBgcICQoLDA0ODw"

    @Test(
        "An external account needs its identifier and its key; a short key warns",
        arguments: [
            ("kid-1", mac, nil), ("kid-1", mac + "==", nil), ("kid-2", shortMAC, nil),
            ("kid-1", shortMAC, "'eab-key-source'"), ("kid-3", mac, "'eab-kid'"), (nil, nil, "set 'eab-kid'"),
            ("kid-1", "no key!", "not base64url"),
        ] as [(String?, String?, String?)])
    func externalAccounts(kid: String?, key: String?, error: String?) async throws {
        var options = Pebble.Options()
        options.externalAccounts = ["kid-1": Self.mac, "kid-2": Self.shortMAC]
        let server = try await Pebble.start(options)
        try host.directory.write((key ?? "").utf8, to: "eab.key")
        try host.configure(
            server,
            [
                "identifiers": "dns:web.example.test", "http-listen": "\(http)", "eab-kid": kid,
                "eab-key-source": kid.map { _ in "file:\(host.directory["eab.key"])" },
            ])
        let output = try host.certprov("fetch")
        #expect((output.status == 0) == (error == nil), "\(output)")
        if let error { #expect(output.stderr.contains(error), "\(output)") }
        #expect(output.stderr.contains("128 bits") == (key == Self.shortMAC), "\(output)")
        #expect(key.map { output.stderr.contains($0) } != true)
    }

    @Test("The preferred chain is taken by the name of its root; an unknown one warns")
    func preferredChain() async throws {
        let server = try await Pebble.start(.init(chainLength: 3, alternateRoots: 2))
        let names = ["identifiers": "dns:web.example.test", "http-listen": "\(http)"]
        for index in 0...2 {
            let root = try server.root(index)
            let name = try #require(root.subject.split(separator: ",").first { $0.hasPrefix("CN=") }).dropFirst(3)
            try host.configure(server, names.merging(["preferred-chain": String(name)]) { $1 })
            try host.enrol(root, "--force")
        }
        try host.configure(server, names.merging(["preferred-chain": "Other Root"]) { $1 })
        let other = try host.certprov("fetch", "--force")
        #expect(other.status == 0 && other.stderr.contains("no chain to the preferred root"), "\(other)")
    }

    @Test("A server that has lost the account gets a new one with the same key")
    func restart() async throws {
        let server = try await Pebble.start()
        try host.configure(server, ["identifiers": "dns:web.example.test", "http-listen": "\(http)"])
        try host.enrol(try server.root())
        try await server.restart()
        try host.enrol(try server.root(), "--force")
        #expect(try server.status(ofSerial: host.serial).status == "Valid")
    }

    @Test("A server that has lost the order gets another one; a hook that failed was told to remove")
    func lostOrder() async throws {
        let server = try await Pebble.start(.init(validation: ports))
        try host.configure(
            server, ["identifiers": "dns:web.example.test", "challenge": "dns-01", "dns-hook": try hook(server)])
        try host.directory.write([], to: "hook.fails")
        let failed = try host.certprov("fetch")
        #expect(failed.status != 0 && failed.stderr.contains("no such zone"), "\(failed)")
        #expect(failed.stderr.contains("same order"), "\(failed)")
        try FileManager.default.removeItem(atPath: host.directory["hook.fails"])
        try await server.restart()
        let output = try host.certprov("fetch", "--out", host.directory["out"])
        #expect(output.status == 0, "\(output)")
        _ = try host.judge(try server.root())
        let calls = host.directory.text("hook.log").split(separator: "\n")
        #expect(calls.last?.hasPrefix("remove ") == true, "\(calls)")
    }
}

/// The key and the account's key are in each kind of key store.
@Suite(
    .timeLimit(.minutes(30)), .enabled(if: TestLength.hasSeconds, "it takes seconds"),
    .enabled(if: Pebble.isInstalled, "pebble is not installed"))
struct PebbleKeyStoreTests {
    private let http: ReservedPort

    init() throws { http = try ReservedPort() }

    @Test(
        "A key in a token or a plugin's key store is enrolled, used for TLS, renewed and revoked",
        arguments: ["softhsm", "tpm", "plugin"])
    func keyInToken(module: String) async throws {
        let server = try await Pebble.start(.init(validation: .ports(http: http.number, tls: http.number)))
        let token = module == "plugin" ? nil : try Token(module)
        let host = try Host(variables: token?.variables ?? [:])
        var parameters: [String: String?] = ["identifiers": "dns:web.example.test", "http-listen": "\(http)"]
        if let token {
            parameters.merge(["key": token.uri, "key-pin-source": token.pinSource]) { $1 }
            if module == "softhsm" {
                parameters.merge(["account-key": token.uri, "account-key-pin-source": token.pinSource]) { $1 }
            }
        } else {
            try host.directory.install("plugins/certprov-plugin-keys", copying: Host.program("TestPlugin"))
            parameters.merge(["key": "keys:", "account-key": "keys:"]) { $1 }
        }
        try host.configure(server, parameters)
        try host.enrol(try server.root())
        let serial = try host.serial
        let listed = try host.certprov("list")
        #expect(listed.stdout.contains(token == nil ? "keys:" : " token "), "\(listed)")
        try host.enrol(try server.root(), "--force")
        #expect(try host.serial != serial)
        let files = server.directory
        let connected = try host.connectMutually(
            to: "localhost", (files["server.pem"], files["server.pem"], files["server.key"]), anchors: server.serverCA)
        #expect(connected.status == 0 && connected.stdout.contains("200"), "\(connected)")
        let deleted = try host.certprov("delete", "--yes", "--revoke", "--reason", "1", "--force")
        #expect(deleted.status == 0 && deleted.stderr.contains("revoked"), "\(deleted)")
        guard let token, module == "softhsm" else { return }
        let left = try Subprocess(
            [
                "pkcs11-tool", "--module", "/usr/lib/softhsm/libsofthsm2.so", "--token-label", "host", "--login",
                "--pin", token.directory.text("pin").trimmingCharacters(in: .newlines), "-O", "--type", "privkey",
            ], environment: ["PATH": "/usr/bin:/bin"].merging(token.variables) { $1 }, .captured()
        ).wait()
        #expect(left.status == 0 && !left.stdout.contains("Private Key"), "\(left)")
    }
}
