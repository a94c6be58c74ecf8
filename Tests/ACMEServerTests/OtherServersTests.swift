import CertificateProviding
import Foundation
import TestSupport
import Testing

/// The command against OpenBao's PKI and Caddy's `acme_server`. Both look at port 80 and 443, in a network of their own.
@Suite(
    .timeLimit(.minutes(30)), .enabled(if: TestLength.hasSeconds, "it takes seconds"),
    .enabled(if: Network.isPossible, Network.whyNot))
struct OtherServersTests {
    private static let baoProgram = installed("openbao/bin/bao")
    private static let caddyProgram = installed("caddy/bin/caddy")
    private static func has(_ program: String) -> Bool { FileManager.default.isExecutableFile(atPath: program) }

    private let network: Network
    private let folder: TemporaryDirectory
    private let host: Host

    init() throws {
        network = try Network()
        folder = try TemporaryDirectory()
        host = try Host(entrance: network.entrance)
    }

    /// Starts a server in the network, and waits until it answers.
    private func serve(_ arguments: [String], _ variables: [String: String], until url: String) throws -> Subprocess {
        let log = folder["server.log"]
        let server = try Subprocess(
            network.entrance + ["sh", "-c", "exec \"$@\" >'\(log)' 2>&1", "sh"] + arguments,
            environment: ["PATH": "/usr/bin:/bin", "HOME": folder.path].merging(variables) { $1 }, in: folder.path)
        let end = ContinuousClock.now + .seconds(600)
        while (try? network.run("curl", "--silent", "--insecure", "--max-time", "10", url)) == nil {
            try #require(ContinuousClock.now < end && !server.hasEnded, "\(folder.text("server.log"))")
            usleep(50_000)
        }
        return server
    }

    private func root(_ file: String) throws -> X509Certificate {
        try #require(try X509Certificate.certificates(pem: folder.text(file)).last)
    }

    @Test(
        "OpenBao binds the account, certifies clients by a role, renews and revokes",
        .enabled(if: has(baoProgram), "OpenBao is not installed: make .build/openbao/bin/bao"))
    func openBao() throws {
        let base = "https://127.0.0.1:8200"
        try folder.make("tls")
        let server = try serve(
            [
                Self.baoProgram, "server", "-dev-tls", "-dev-tls-cert-dir=tls", "-dev-listen-address=127.0.0.1:8200",
                "-dev-root-token-id=root", "-dev-no-store-token",
            ], [:], until: "\(base)/v1/sys/health")
        defer { server.stop() }
        func api(_ path: String, _ body: String) throws -> String {
            try network.run(
                "curl", "--silent", "--show-error", "--fail-with-body", "--cacert", folder["tls/vault-ca.pem"],
                "--header", "X-Vault-Token: root", "--data", body, "\(base)/v1/\(path)")
        }
        _ = try api("sys/mounts/pki", #"{"type": "pki"}"#)
        _ = try api(
            "sys/mounts/pki/tune",
            #"{"allowed_response_headers": ["Replay-Nonce", "Link", "Location"], "max_lease_ttl": "240h"}"#)
        _ = try api("pki/root/generate/internal", #"{"common_name": "Example CA", "key_type": "ec", "ttl": "24h"}"#)
        _ = try api("pki/config/cluster", #"{"path": "\#(base)/v1/pki"}"#)
        let role =
            #""allow_any_name": true, "enforce_hostnames": false, "key_type": "any", "max_ttl": "1h", "server_flag": false"#
        _ = try api("pki/roles/client", "{\(role), \"client_flag\": true}")
        func enable(_ more: String) throws {
            _ = try api(
                "pki/config/acme",
                #"{"enabled": true, "eab_policy": "always-required", "allowed_roles": ["client"], "default_directory_policy": "role:client"\#(more)}"#
            )
        }
        try enable("")
        struct External: Decodable {
            struct Content: Decodable { let id, key: String }
            let data: Content
        }
        let external = try JSONDecoder().decode(
            External.self, from: Data(try api("pki/roles/client/acme/new-eab", "{}").utf8)
        ).data
        try folder.write(external.key.utf8, to: "eab.key")
        try folder.write(
            try network.run("curl", "--silent", "--cacert", folder["tls/vault-ca.pem"], "\(base)/v1/pki/ca/pem").utf8,
            to: "ca.pem")
        var parameters: [String: String?] = [
            "directory": "\(base)/v1/pki/roles/client/acme/directory", "trust-anchors": folder["tls/vault-ca.pem"],
            "identifiers": "dns:localhost", "proxy": "none",
        ]
        try host.configure(parameters)
        let unbound = try host.certprov("fetch")
        #expect(unbound.status != 0 && unbound.stderr.contains("set 'eab-kid'"), "\(unbound)")
        parameters["eab-kid"] = external.id
        parameters["eab-key-source"] = "file:\(folder["eab.key"])"
        try host.configure(parameters)
        // OpenBao certifies servers only, whatever the role says, until it is told otherwise.
        let wrongUsage = try host.certprov("fetch")
        #expect(wrongUsage.status != 0 && wrongUsage.stderr.contains("client authentication"), "\(wrongUsage)")
        try enable(#", "allow_role_ext_key_usage": true"#)
        let text = try host.enrol(try root("ca.pem"))
        #expect(text.contains("TLS Web Client Authentication") && text.contains("DNS:localhost"), "\(text)")
        let serial = try host.serial
        try host.enrol(try root("ca.pem"), "--force")
        #expect(try host.serial != serial)
        let connected = try host.connectMutually(
            to: "localhost", (folder["tls/vault-cert.pem"], folder["tls/vault-ca.pem"], folder["tls/vault-key.pem"]),
            anchors: folder["tls/vault-ca.pem"])
        #expect(connected.status == 0 && connected.stdout.contains("200"), "\(connected)")
        let reason = try host.certprov("delete", "--yes", "--revoke", "--reason", "4")
        #expect(reason.status != 0 && reason.stderr.contains("leave out the reason"), "\(reason)")
        let revoked = try host.certprov("delete", "--yes", "--revoke", "--force")
        #expect(revoked.status == 0 && revoked.stderr.contains("revoked"), "\(revoked)")
        let list = try network.run("curl", "--silent", "--cacert", folder["tls/vault-ca.pem"], "\(base)/v1/pki/crl/pem")
        try folder.write(list.utf8, to: "crl.pem")
        let shown = try Subprocess.run(["openssl", "crl", "-in", folder["crl.pem"], "-noout", "-text"])
        #expect(String(decoding: shown, as: UTF8.self).contains(try host.serial))
    }

    @Test(
        "Caddy's server certifies by http-01 and tls-alpn-01, renews and revokes",
        .enabled(if: has(caddyProgram), "Caddy is not installed: make .build/caddy/bin/caddy"),
        arguments: ["http-01", "tls-alpn-01"])
    func caddy(challenge: String) throws {
        try folder.make("data")
        try folder.write(
            """
            {"admin": {"disabled": true}, "storage": {"module": "file_system", "root": "\(folder["data"])"},
             "apps": {
               "http": {"http_port": 8080, "https_port": 8443, "servers": {"ca": {
                 "listen": ["127.0.0.1:8443"], "automatic_https": {"disable_redirects": true},
                 "routes": [{"match": [{"host": ["localhost"]}], "terminal": true, "handle": [
                   {"handler": "acme_server", "host": "localhost", "challenges": ["\(challenge)"]}]}]}}},
               "tls": {"automation": {"policies": [{"subjects": ["localhost"], "issuers": [{"module": "internal"}]}]}},
               "pki": {"certificate_authorities": {"local": {"install_trust": false}}}}}
            """.utf8, to: "caddy.json")
        let url = "https://localhost:8443/acme/local/directory"
        let server = try serve(
            [Self.caddyProgram, "run", "--config", folder["caddy.json"]], ["XDG_DATA_HOME": folder["data"]], until: url)
        defer { server.stop() }
        let authority = "data/pki/authorities/local/root.crt"
        try host.configure([
            "directory": url, "trust-anchors": folder[authority], "identifiers": "dns:localhost",
            "challenge": challenge, "proxy": "none",
        ])
        let text = try host.enrol(try root(authority))
        #expect(text.contains("DNS:localhost"), "\(text)")
        let serial = try host.serial
        try host.enrol(try root(authority), "--force")
        #expect(try host.serial != serial)
        let revoked = try host.certprov("delete", "--yes", "--revoke", "--reason", "4")
        #expect(revoked.status == 0 && revoked.stderr.contains("revoked"), "\(revoked)")
    }
}
