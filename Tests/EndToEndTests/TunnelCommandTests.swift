import Foundation
import Glibc
import TestSupport
import Testing

/// `certprov tunnel`, in the foreground.
@Suite(.timeLimit(.minutes(20))) struct TunnelCommandTests {
    private let host: TokenHost
    private var sandbox: Sandbox { host.sandbox }
    private var path: String { sandbox.path }

    /// Two CAs with lists, clients of both, and a server's certificate for a key in a token.
    init() throws {
        host = try TokenHost(.softhsm)
        try host.certprov(
            ["keygen", "--subject", "CN=server", "--key-type", "p256", "--out", path + "/server.csr"]
                + host.options(pin: host.pin)
        ).require()
        try sandbox.shell(
            #"""
            set -e; cd "$1"
            cat >ca.cnf <<'END'
            [ca]
            default_ca = ca
            [ca]
            database = $ENV::CA.index
            new_certs_dir = .
            certificate = $ENV::CA.pem
            private_key = $ENV::CA.key
            serial = $ENV::CA.serial
            crlnumber = $ENV::CA.number
            default_md = sha256
            default_days = 30
            default_crl_days = 30
            policy = any
            unique_subject = no
            [any]
            commonName = supplied
            [req]
            distinguished_name = dn
            [dn]
            [leaf]
            keyUsage = critical, digitalSignature
            extendedKeyUsage = clientAuth, serverAuth
            subjectAltName = DNS:localhost
            END
            for CA in one two; do
                export CA
                : >$CA.index; echo 01 >$CA.number; echo $([ $CA = one ] && echo 1000 || echo 2000) >$CA.serial
                openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -keyout $CA.key -out $CA.pem -days 30 -subj /CN=$CA \
                    -addext keyUsage=critical,keyCertSign,cRLSign
                for name in $CA-a $CA-b; do
                    openssl req -new -config ca.cnf -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -keyout $name.key -out $name.csr \
                        -subj /CN=$name
                    openssl ca -config ca.cnf -batch -notext -in $name.csr -out $name.crt -extensions leaf
                    cat $name.crt $name.key >$name.pem
                done
                openssl ca -config ca.cnf -gencrl -out $CA.crl
            done
            cp one.pem trust.pem; cp one.crl lists.pem; cat one.pem two.pem >both.pem
            """#, path
        ).require()
        try issue()
        try configure()
    }

    /// Issues a certificate for the key in the token.
    private func issue() throws {
        try sandbox.shell(
            """
            cd "$1" && CA=one openssl ca -config ca.cnf -batch -notext -in server.csr -out new.pem -extensions leaf && mv new.pem server.pem
            """, path
        ).require()
    }

    private func configure(_ more: String = "Peers.allow = cn:one-a, cn:two-a") throws {
        try sandbox.write(
            """
            CertificateProvider = pem
            CertificateProvider.pem.certificate = \(path)/server.pem
            CertificateProvider.pem.key = pkcs11:token=host?module-name=token
            CertificateProvider.pem.key-pin-source = file:\(host.pin)
            CertificateProvider.pem.usage = both
            TrustAnchors = \(path)/trust.pem
            TrustAnchors.crl = \(path)/lists.pem
            \(more)

            """, to: "tunnel.properties")
    }

    private func arguments(_ mode: String, _ listen: String, _ target: String, _ more: [String] = []) -> [String] {
        ["tunnel", mode, "--config", path + "/tunnel.properties", "--listen", listen, "--target", target] + more
    }

    /// Starts a tunnel, and waits until it is ready. Returns it with the address that its log names.
    private func start(_ arguments: [String]) throws -> (tunnel: Subprocess, port: String) {
        let log = path + "/log-\(UUID().uuidString)"
        let tunnel = try sandbox.start(
            host.entrance + ["/bin/sh", "-c", "exec \"$@\" 2>\(log)", "sh", BuiltCommand.path] + arguments,
            with: host.variables)
        var address: Substring?
        try tunnel.waitUntil {
            let text = (try? String(contentsOfFile: log, encoding: .utf8)) ?? ""
            address = text.firstMatch(of: #/address=(\S+)/#)?.1
            return address != nil
        }
        return (tunnel, String(address?.split(separator: ":").last ?? ""))
    }

    private func python(_ arguments: String...) throws -> Subprocess {
        let script = URL(filePath: #filePath).deletingLastPathComponent().appending(
            path: "../HostServiceTests/tunnel.py"
        ).path
        let process = try Subprocess(["/usr/bin/python3", script] + arguments)
        return process
    }

    @Test(
        "With a key in a token: through a renewal, a change of CA and a revoked peer, 200 open connections go on, and no wrong one is made"
    )
    func rotation() async throws {
        let target = try python("target", path + "/program.sock", "echo")
        try #require(target.readLine() != nil)
        let (tunnel, port) = try start(
            arguments("server", "127.0.0.1:0", "unix:\(path)/program.sock", ["--shutdown-timeout", "60s"]))
        let clients = try python("clients", port, path + "/both.pem")
        try #require(clients.readLine() == "up")
        func ask(_ words: String) throws -> [String] {
            try #require(clients.writeLine(words))
            return try #require(clients.readLine()).split(separator: " ").map(String.init)
        }
        var open = 0
        func connect(_ count: Int, _ name: String) throws -> [String] {
            let answer = try ask("open \(count) \(path)/\(name).pem")
            open += Int(answer[0]) ?? 0
            return answer
        }
        let first = try connect(200, "one-a")
        #expect(first[0] == "200")
        #expect(try connect(3, "one-b") == ["0"] && connect(3, "two-a") == ["0"])
        // A renewal.
        try issue()
        var renewed = first[1]
        try tunnel.waitUntil {
            renewed = try connect(1, "one-a")[1]
            return renewed != first[1]
        }
        #expect(try connect(5, "one-a") == ["5", renewed])
        // A change of CA, in two steps.
        try sandbox.shell(
            "cd $1 && cat one.crl two.crl >new && mv new lists.pem && cat both.pem >new && mv new trust.pem", path
        ).require()
        try tunnel.waitUntil { try connect(1, "two-a")[0] == "1" }
        #expect(try connect(5, "two-a")[0] == "5" && connect(5, "one-a")[0] == "5" && connect(5, "two-b") == ["0"])
        // A peer is revoked, in the lists of the old CA.
        try sandbox.shell(
            """
            cd $1; export CA=one; openssl ca -config ca.cnf -revoke one-a.crt && openssl ca -config ca.cnf -gencrl -out one.crl &&
            cat one.crl two.crl >new && mv new lists.pem
            """, path
        ).require()
        try tunnel.waitUntil { try connect(1, "one-a")[0] == "0" }
        #expect(try connect(5, "one-a") == ["0"] && connect(5, "two-a")[0] == "5")
        #expect(try ask("ping") == ["\(open)"])
        // The end of the tunnel waits for those that are open, and takes no more.
        tunnel.send(SIGTERM)
        try tunnel.waitUntil { try connect(1, "two-a")[0] == "0" }
        #expect(try ask("ping") == ["\(open)"])
        clients.stop()
        #expect(tunnel.wait().status == 0)
    }

    @Test("A tunnel that would be open too far does not start")
    func refused() throws {
        try configure("")
        try host.certprov(arguments("server", "127.0.0.1:0", "127.0.0.1:9")).expect(78, stderr: "Peers.allow = any")
        try host.certprov(arguments("client", "unix:\(path)/a.sock", "localhost:9")).expect(78, stderr: "grant")
        try host.certprov(arguments("client", "127.0.0.1:0", "localhost:9")).expect(78, stderr: "every user")
        try host.certprov(arguments("client", "0.0.0.0:0", "localhost:9", ["--any-local-user"])).expect(
            78, stderr: "loopback")
        try host.certprov(arguments("client", "unix:\(path)/a.sock", "localhost:9", ["--allow", "uid:65534"])).expect(
            78, stderr: "--allow")
        try configure(
            "Peers.allow = any\nServe.tunnel.1.mode = client\nServe.tunnel.1.listen = 127.0.0.1:1\nServe.tunnel.1.target = a:1"
        )
        try host.certprov(["check", "--config", path + "/tunnel.properties"]).expect(78, stdout: "any-local-user")
        try configure("Peers.allow = any\nServe.tunel.1.mode = client")
        for command in ["check", "fetch", "renew"] {
            try host.certprov(
                [command, "--config", path + "/tunnel.properties"]
                    + (command == "fetch" ? ["--out", path + "/out"] : [])
            )
            .expect(78)
        }
    }

    @Test(
        "curl reaches a web server without TLS through both kinds of tunnel, and SIGHUP changes who may, unless the file is wrong"
    )
    func bothKinds() throws {
        try configure("Peers.allow = any\nServe.allow.1 = uid:\(geteuid())")
        let web = try Subprocess(
            ["/usr/bin/python3", "-u", "-m", "http.server", "--bind", "127.0.0.1", "0"], in: path, .merged)
        let line = try #require(web.readLine())
        let port = try #require(line.firstMatch(of: #/port (\d+)/#)?.1)
        let server = try start(arguments("server", "127.0.0.1:0", "127.0.0.1:\(port)"))
        let curl = ["curl", "--silent", "--show-error", "--max-time", "30", "--cacert", path + "/one.pem"]
        try sandbox.run(curl + ["--cert", path + "/one-a.pem", "https://localhost:\(server.port)/one.crl"]).expect(
            stdout: "BEGIN X509 CRL")
        #expect(try sandbox.run(curl + ["https://localhost:\(server.port)/one.crl"]).status != 0)
        let socket = path + "/client.sock"
        let client = try start(arguments("client", "unix:\(socket)", "localhost:\(server.port)"))
        let plain = [
            "curl", "--silent", "--show-error", "--max-time", "30", "--unix-socket", socket, "http://web/one.crl",
        ]
        // The command tries nothing again at its start.
        try host.certprov(arguments("server", "127.0.0.1:\(server.port)", "127.0.0.1:9")).expect(
            69, stderr: "cannot listen at 127.0.0.1:\(server.port)")
        rename(path + "/server.pem", path + "/other.pem")
        let missing = try host.certprov(arguments("server", "127.0.0.1:0", "127.0.0.1:9"))
        #expect(missing.status != 0 && missing.stderr.contains("server.pem cannot be opened"), "\(missing)")
        rename(path + "/other.pem", path + "/server.pem")
        func isAnswered() throws -> Bool { try sandbox.run(plain).stdout.contains("BEGIN X509 CRL") }
        #expect(try isAnswered() && mode(socket) == 0o666)
        try configure("Peers.allow = any\nServe.allow.1 = uid:65534")
        client.tunnel.send(SIGHUP)
        server.tunnel.send(SIGHUP)
        #expect(try isAnswered())
        try configure("Peers.allow = any\nServe.allow.1 = uid:4242")
        client.tunnel.send(SIGHUP)
        try client.tunnel.waitUntil { try !isAnswered() }
        // The server tunnel is not open to all for a moment.
        try configure("")
        server.tunnel.send(SIGHUP)
        try sandbox.run(curl + ["--cert", path + "/one-a.pem", "https://localhost:\(server.port)/one.crl"]).expect(
            stdout: "BEGIN X509 CRL")
        for tunnel in [client.tunnel, server.tunnel] {
            tunnel.send(SIGTERM)
            #expect(tunnel.wait().status == 0)
        }
        #expect(!FileManager.default.fileExists(atPath: socket))
        web.stop()
    }
}
