import Foundation
import Glibc
import TestSupport
import Testing

/// `certprov serve`: the identities of several property files in one process.
@Suite struct ServeTests {
    private let sandbox: Sandbox
    private var directory: String { sandbox.path + "/etc" }
    private var variables: [String: String] { ["RUNTIME_DIRECTORY": sandbox.path + "/run"] }
    private var socket: String { sandbox.path + "/run/serve.sock" }
    private var log: String { sandbox.path + "/log" }
    private var logged: String { (try? String(contentsOfFile: log, encoding: .utf8)) ?? "" }

    init() throws {
        sandbox = try Sandbox()
        for name in ["etc", "run", "out"] { mkdir("\(sandbox.path)/\(name)", 0o700) }
    }

    /// Puts a pair into `NAME.crt` and `NAME.key`.
    private func issue(_ name: String, days: Int = 30) throws {
        try sandbox.shell(
            """
            cd "$1" && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days $3 -subj "/CN=$2" \\
                -keyout new.key -out new.crt 2>/dev/null && chmod 600 new.key && mv new.key $2.key && mv new.crt $2.crt
            """, sandbox.path, name, "\(days)"
        ).require()
    }

    /// Writes the property file of a pair.
    private func configure(_ name: String, as file: String? = nil, _ more: String...) throws {
        let lines =
            [
                "CertificateProvider = pem", "CertificateProvider.pem.certificate = \(sandbox.path)/\(name).crt",
                "CertificateProvider.pem.key = \(sandbox.path)/\(name).key",
            ] + more
        try sandbox.write(lines.joined(separator: "\n"), to: "etc/\(file ?? name).properties")
    }

    private func serve(
        _ options: [String] = [], with more: [String: String] = [:], through entrance: [String] = []
    ) throws -> Subprocess {
        let options = options.isEmpty ? ["--directory", directory] : options
        let service = try sandbox.start(
            ["sh", "-c", "exec \"$@\" 2>>\(log)", "sh"] + entrance + [BuiltCommand.path, "serve"] + options,
            with: variables.merging(more) { $1 })
        try service.waitUntil { RequestsServeTests.takesConnections(socket) }
        return service
    }

    private func certprov(_ arguments: String...) throws -> Output {
        try sandbox.certprov(arguments, with: variables)
    }

    /// The state of each identity, and the code of its first error.
    private func states() throws -> [String: String] {
        let status = try JSON(parsing: certprov("serve", "status", "--json").stdout)
        return Dictionary(
            uniqueKeysWithValues: status["items"].array.map { item in
                let code = item["errors"][0]["code"].string
                return (item["name"].string ?? "", (item["state"].string ?? "") + (code.map { " \($0)" } ?? ""))
            })
    }

    private func end(_ service: Subprocess, _ signal: Int32 = SIGTERM) -> Output {
        service.send(signal)
        return service.wait()
    }

    @Test("A broken identity stands beside others, which are renewed with their files and programs")
    func oneIsBroken() throws {
        try issue("web")
        try sandbox.install("#!/bin/sh\necho \"$1\" >>\(sandbox.path)/told\n", to: "tell")
        try configure(
            "web", "Files.directory = \(sandbox.path)/out", "Files.key = true", "Files.mode = 0640",
            "Files.reload = \(sandbox.path)/tell")
        try configure("mail")
        let service = try serve()
        try service.waitUntil { try states() == ["web": "ready", "mail": "waits fileNotFound"] }
        let status = try certprov("serve", "status")
        status.expect(
            66, stdout: "web       ready  pem       CN=web", "mail: pem: \(sandbox.path)/mail.crt cannot be opened")
        let document = try certprov("serve", "status", "--json").document("ServiceStatus")
        #expect(document["process"].int == Int(service.pid))
        #expect(document["items"][0]["expires"].isNull && document["items"][0]["nextAttempt"].string != nil)

        func told() -> Int {
            (try? String(contentsOfFile: sandbox.path + "/told", encoding: .utf8))?.split(separator: "\n").count ?? 0
        }
        try service.waitUntil { told() == 1 }
        #expect(mode(sandbox.path + "/out/current/key.pem") == 0o640)
        try issue("web", days: 60)
        try service.waitUntil { told() == 2 }
        let certificate = try String(contentsOfFile: sandbox.path + "/web.crt", encoding: .utf8)
        #expect(
            try String(contentsOfFile: sandbox.path + "/out/current/certificate.pem", encoding: .utf8) == certificate)

        // The missing pair is tried again, at once after SIGHUP.
        try issue("mail")
        service.send(SIGHUP)
        try service.waitUntil { try states() == ["web": "ready", "mail": "ready"] }
        try certprov("serve", "status").expect(0)
        let output = end(service)
        #expect(output.status == 0 && output.stdout.isEmpty, "\(output)")
        #expect(logged.contains("code=fileNotFound identity=mail"), "\(logged)")
        #expect(!FileManager.default.fileExists(atPath: socket))
        try certprov("serve", "status").expect(69, stderr: "systemctl start certprov-serve")
    }

    @Test("SIGHUP takes property files that are new or gone, and a wrong one leaves the last good state")
    func rereading() throws {
        for name in ["web", "mail", "late"] { try issue(name) }
        try configure("web", "Files.directory = \(sandbox.path)/out")
        try configure("mail")
        let service = try serve()
        try service.waitUntil { try states() == ["web": "ready", "mail": "ready"] }
        try configure("web", "Files.directory = \(sandbox.path)/out", "Files.mode = 0777")
        try configure("late")
        unlink(directory + "/mail.properties")
        service.send(SIGHUP)
        try service.waitUntil { try states() == ["web": "ready configurationInvalid", "late": "ready"] }
        try certprov("serve", "status").expect(
            78, stdout: "\(directory)/web.properties:5: The key 'Files.mode' must be 0600")
        try configure("web", "Files.directory = \(sandbox.path)/out")
        chmod(directory + "/web.properties", 0o666)
        service.send(SIGHUP)
        try service.waitUntil {
            try certprov("serve", "status").stdout.contains("chmod go-w \(directory)/web.properties")
        }
        // None at all is a mistake, too.
        for name in ["web", "late"] { rename("\(directory)/\(name).properties", "\(sandbox.path)/\(name)") }
        service.send(SIGHUP)
        try service.waitUntil { logged.contains("\(directory) has no property file") }
        #expect(try states() == ["web": "ready configurationInvalid", "late": "ready"])
        try certprov("serve", "status").expect(78, stdout: "the service: \(directory) has no property file")
        for name in ["web", "late"] { rename("\(sandbox.path)/\(name)", "\(directory)/\(name).properties") }
        chmod(directory + "/web.properties", 0o600)
        service.send(SIGHUP)
        try service.waitUntil { try states() == ["web": "ready", "late": "ready"] }
        try certprov("serve", "status").expect(0)
        #expect(end(service, SIGINT).status == 0)
    }

    /// A server that takes a connection, and says nothing. Its first line is the port.
    private func hangingServer() throws -> Subprocess {
        try Subprocess([
            "/usr/bin/python3", "-c",
            """
            import signal, socket
            listener = socket.create_server(("127.0.0.1", 0))
            print(listener.getsockname()[1], flush=True)
            connection = listener.accept()
            print("asked", flush=True)
            signal.pause()
            """,
        ])
    }

    private func configure(asking server: Subprocess) throws {
        let port = try #require(server.readLine())
        try sandbox.write("x", to: "password")
        let lines = [
            "CertificateProvider = mdm", "CertificateProvider.mdm.protocol = est",
            "CertificateProvider.mdm.url = https://127.0.0.1:\(port)/",
            "CertificateProvider.mdm.trust-anchors = \(sandbox.path)/web.crt",
            "CertificateProvider.mdm.subject = CN=slow", "CertificateProvider.mdm.username = u",
            "CertificateProvider.mdm.password-source = file:\(sandbox.path)/password",
        ]
        try sandbox.write(lines.joined(separator: "\n"), to: "etc/slow.properties")
        chmod(sandbox.path + "/password", 0o600)
    }

    @Test("SIGHUP ends an identity whose server hangs, and keeps no other one waiting; a second SIGTERM waits for none")
    func hangingIdentityIsGone() throws {
        let server = try hangingServer()
        for name in ["web", "late"] { try issue(name) }
        try configure("web")
        try configure(asking: server)
        let service = try serve()
        try service.waitUntil { try states() == ["web": "ready", "slow": "begins"] }
        try #require(server.readLine() == "asked")
        unlink(directory + "/slow.properties")
        try configure("late")
        service.send(SIGHUP)
        // The server has not answered, and its limit of time is a minute.
        try service.waitUntil { try states() == ["web": "ready", "late": "ready"] }
        #expect(!logged.contains("timedOut"), "\(logged)")
        // The end waits for a server that hangs, unless a second signal comes.
        server.kill()
        let other = try hangingServer()
        try configure(asking: other)
        service.send(SIGHUP)
        try #require(other.readLine() == "asked")
        service.send(SIGTERM)
        try service.waitUntil { try states()["web"] == "ended" }
        #expect(end(service).status == 0)
        #expect(logged.contains("an attempt in progress") && !logged.contains("timedOut"), "\(logged)")
    }

    @Test("A reload takes no entry of the store that another identity has")
    func entryOfAnother() throws {
        _ = try sandbox.configure(to: "etc/one.properties")
        _ = try sandbox.configure(pkcs12: Fixtures.path("rsa.p12"), to: "etc/two.properties")
        let service = try serve()
        try service.waitUntil { try states() == ["one": "ready", "two": "ready"] }
        let before = try JSON(parsing: certprov("serve", "status", "--json").stdout)["items"][1]["subject"].string
        _ = try sandbox.configure(to: "etc/two.properties")
        service.send(SIGHUP)
        try service.waitUntil { try states() == ["one": "ready", "two": "ready configurationInvalid"] }
        let status = try certprov("serve", "status", "--json").expect(78)
        #expect(status.stdout.contains("'one' has the same entry"), "\(status)")
        #expect(try JSON(parsing: status.stdout)["items"][1]["subject"].string == before)
        _ = try sandbox.configure(pkcs12: Fixtures.path("rsa.p12"), to: "etc/two.properties")
        service.send(SIGHUP)
        try service.waitUntil { try states() == ["one": "ready", "two": "ready"] }
        // A new one gets it when the other is gone.
        _ = try sandbox.configure(to: "etc/zero.properties")
        service.send(SIGHUP)
        try service.waitUntil { try states()["zero"] == "waits configurationInvalid" }
        unlink(directory + "/one.properties")
        service.send(SIGHUP)
        try service.waitUntil { try states() == ["two": "ready", "zero": "ready"] }
        #expect(end(service).status == 0)
    }

    @Test("Files that must not be read are refused, each by itself")
    func refusedFiles() throws {
        try issue("web")
        try configure("web")
        try configure("web", as: "Web Server")
        try configure("web", as: "shared")
        chmod(directory + "/shared.properties", 0o664)
        symlink("web.properties", directory + "/zweb.properties")
        try configure("web", as: "typo", "Files.directori = /x")
        let service = try serve()
        try service.waitUntil {
            try states() == [
                "Web Server": "waits configurationInvalid", "shared": "waits configurationInvalid", "web": "ready",
                "zweb": "waits configurationInvalid", "typo": "waits configurationInvalid",
            ]
        }
        try certprov("serve", "status").expect(
            78, stdout: "rename the file", "chmod go-w", "is the same file",
            "typo.properties:4: The key 'Files.directori' is unknown")
        #expect(end(service).status == 0)
        unlink(directory + "/web.properties")
        unlink(directory + "/zweb.properties")
        // With none that can be read, the start says why.
        try sandbox.certprov("serve", "--directory", directory, with: variables).expect(78, stderr: "rename the file")
        try certprov("serve", "--directory", "/nowhere").expect(78, stderr: "--directory")
        try certprov("serve", "--provider", "pem").expect(64, stderr: "--config")
        try certprov("serve", "--config", "x", "--directory", "y").expect(64, stderr: "exclude each other")
    }

    @Test("Of two identities with one entry of the store, the second is refused, and gets it when the first is gone")
    func oneEntry() throws {
        mkdir(sandbox.path + "/etc", 0o700)
        for name in ["one", "two"] { _ = try sandbox.configure(to: "etc/\(name).properties") }
        let service = try serve()
        try service.waitUntil {
            try Set(states().values) == ["ready", "waits configurationInvalid"]
        }
        let status = try certprov("serve", "status").expect(78, stdout: "has the same entry in the store")
        let first = try #require(try states().first { $0.value == "ready" }?.key)
        unlink("\(directory)/\(first).properties")
        service.send(SIGHUP)
        try service.waitUntil { try states() == [first == "one" ? "two" : "one": "ready"] }
        #expect(end(service).status == 0, "\(status)")
    }

    @Test("The service's own file names the property files and the file of metrics, and nothing else")
    func ownFile() throws {
        try issue("web")
        try issue("mail")
        try configure("web")
        try configure("mail")
        let own = "Serve.identities = \(directory)/web.properties\nServe.metrics-file = \(sandbox.path)/certprov.prom\n"
        try sandbox.write(own, to: "etc/serve.properties")
        let service = try serve(with: ["WATCHDOG_USEC": "300000"])
        try service.waitUntil { FileManager.default.fileExists(atPath: sandbox.path + "/certprov.prom") }
        try service.waitUntil { try states() == ["web": "ready"] }
        #expect(mode(sandbox.path + "/certprov.prom") == 0o644)
        let metrics = try certprov("metrics").stdout
        #expect(metrics.contains(#"certprov_certificate_expiration_timestamp_seconds{identity="web",provider="pem"} "#))
        #expect(metrics.contains("# TYPE certprov_identity_ready gauge\ncertprov_identity_ready{identity=\"web\"} 1\n"))
        try certprov("metrics", "--json").expect(64, stderr: "serve status --json")
        // The file is replaced whole, or stays.
        let written = try String(contentsOfFile: sandbox.path + "/certprov.prom", encoding: .utf8)
        mkdir(sandbox.path + "/.certprov.prom.new", 0o755)
        try service.waitUntil { try certprov("serve", "status").stdout.contains("certprov.prom cannot be created") }
        #expect(try String(contentsOfFile: sandbox.path + "/certprov.prom", encoding: .utf8) == written)
        rmdir(sandbox.path + "/.certprov.prom.new")
        // A mistake in it leaves all as it is.
        try sandbox.write(own + "Files.directory = /x\n", to: "etc/serve.properties")
        service.send(SIGHUP)
        try service.waitUntil { logged.contains("serve.properties:3: The key 'Files.directory' is unknown here") }
        #expect(try states() == ["web": "ready"])
        #expect(end(service).status == 0)
        try certprov("serve", "--directory", directory).expect(78, stderr: "serve.properties:3")
        // Without the service, the store says what there is; a file of an identity can be named by itself.
        try certprov("metrics", "--config", directory + "/mail.properties").expect(
            stdout: "certprov_identity_errors{identity=\"mail\"} 0\n")
        let one = try serve(["--config", directory + "/mail.properties"])
        try one.waitUntil { try states() == ["mail": "ready"] }
        try certprov("serve", "--config", directory + "/mail.properties").expect(73, stderr: "Another process listens")
        #expect(end(one).status == 0)
    }

    @Test("systemd is told of readiness, of the state, and that the service lives")
    func serviceManager() throws {
        let manager = try Subprocess([
            "/usr/bin/python3", "-c",
            """
            import socket
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            listener.bind("\(sandbox.path)/notify")
            print("bound", flush=True)
            while True: print(listener.recv(1000).decode().replace("\\n", " "), flush=True)
            """,
        ])
        try #require(manager.readLine() == "bound")
        try issue("web")
        try configure("web")
        let service = try serve(with: ["NOTIFY_SOCKET": sandbox.path + "/notify", "WATCHDOG_USEC": "300000"])
        var lines: [String] = []
        func wait(for text: String) throws {
            while lines.last?.contains(text) != true { lines.append(try #require(manager.readLine(), "\(lines)")) }
        }
        try wait(for: "READY=1 STATUS=1 of 1 identities ready")
        for _ in 0..<3 {
            try wait(for: "WATCHDOG=1")
            lines.append("")
        }
        service.send(SIGHUP)
        try wait(for: "RELOADING=1 MONOTONIC_USEC=")
        try wait(for: "READY=1")
        service.send(SIGTERM)
        try wait(for: "STOPPING=1")
        #expect(service.wait().status == 0)
    }

    @Test("The status socket is for the service's user and root, and a killed service leaves nothing in the way")
    func statusSocket() throws {
        try issue("web")
        try configure("web")
        for _ in 0..<20 {
            let service = try serve()
            try service.waitUntil { try states() == ["web": "ready"] }
            service.kill()
            #expect(service.wait().signal == SIGKILL)
        }
        let service = try serve()
        #expect(mode(socket) == 0o600)
        if geteuid() == 0 {
            chmod(sandbox.path, 0o755)
            chmod(sandbox.path + "/run", 0o755)
            try sandbox.run(
                ["setpriv", "--reuid=65533", "--regid=65533", "--clear-groups", BuiltCommand.path, "serve", "status"],
                with: variables
            ).expect(77, stderr: "for the user of the service, and root")
        }
        try sandbox.run([
            "/usr/bin/python3", "-c",
            """
            import socket, sys
            for question in [b"", b"x" * 100, b"status\\n", b"\\xff"]:
                client = socket.socket(socket.AF_UNIX)
                client.connect(sys.argv[1])
                client.sendall(question)
                client.shutdown(socket.SHUT_WR)
                assert client.recv(10) == b"", question
            """, socket,
        ]).expect()
        try service.waitUntil { try states() == ["web": "ready"] }
        #expect(end(service).status == 0)
    }

    @Test(
        "Without CAP_SYS_PTRACE, a user's grant matches only callers of the service's own user, and the start says so",
        .enabled(if: geteuid() == 0))
    func noCapability() throws {
        try issue("web")
        try configure("web", "Serve.allow.1 = uid:65533", "Serve.allow.2 = uid:0")
        let service = try serve(through: ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"])
        try service.waitUntil { try states() == ["web": "ready"] }
        #expect(logged.contains("CAP_SYS_PTRACE"), "\(logged)")
        let other = try Subprocess(["setpriv", "--reuid=65533", "--regid=65533", "--clear-groups", "/bin/cat"])
        try #require(other.writeLine("up") && other.readLine() == "up")
        try certprov("serve", "explain", "\(other.pid)").expect(
            stdout: "web: not granted", "uid:65533): its pid namespace cannot be seen, which takes CAP_SYS_PTRACE")
        let own = try Subprocess(["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace", "/bin/cat"])
        try #require(own.writeLine("up") && own.readLine() == "up")
        try certprov("serve", "explain", "\(own.pid)").expect(stdout: "web: granted", "uid:0): matches")
        for process in [other, own] { process.stop() }
        #expect(end(service).status == 0)
    }

    @Test("check warns of a grant to a unit that runs programs of its users, unless a user stands beside it")
    func grantsToManyUsers() throws {
        try issue("web")
        try configure(
            "web", "Serve.allow.1 = unit:ssh@1.service", "Serve.allow.2 = unit:cron.service user:root",
            "Serve.allow.3 = cgroup:/system.slice/docker.service/a", "Serve.allow.4 = unit:nginx.service",
            "Serve.allow.5 = unit:fcgiwrap.service group:root")
        let text = try certprov("check", "--config", directory + "/web.properties").stdout
        for number in 1...5 {
            let isWarned = text.split(separator: "\n").contains {
                $0.contains("Serve.allow.\(number) (") && $0.contains("is a grant to every user")
            }
            #expect(isWarned == [1, 3, 5].contains(number), "\(number): \(text)")
        }
    }

    /// Issues a pair by a CA of the test's own, `ca.pem`.
    private func issueByCA(_ name: String) throws {
        try sandbox.shell(
            """
            cd "$1" && key="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc" &&
            { [ -f ca.pem ] || openssl req -x509 $key -days 30 -subj /CN=CA -keyout ca.key -out ca.pem 2>/dev/null; } &&
            openssl req $key -subj "/CN=$2" -addext "subjectAltName=DNS:$2" -keyout $2.key -out $2.csr 2>/dev/null &&
            openssl x509 -req -in $2.csr -copy_extensions copy -CA ca.pem -CAkey ca.key -days 20 -out $2.crt 2>/dev/null &&
            chmod 600 $2.key
            """, sandbox.path, name
        ).require()
    }

    private func ask(_ socket: String) throws -> String {
        try sandbox.run(["curl", "--silent", "--max-time", "60", "--unix-socket", socket, "http://web/answer"]).stdout
    }

    @Test("Tunnels of several identities follow their property files; one whose address is taken is tried again")
    func tunnels() throws {
        for name in ["web", "caller"] { try issueByCA(name) }
        try sandbox.write("the answer", to: "answer")
        let program = try Subprocess([
            "/usr/bin/python3", "-c",
            """
            import http.server, os, socket
            os.chdir("\(sandbox.path)")
            class Server(http.server.ThreadingHTTPServer):
                address_family = socket.AF_UNIX
                def server_bind(self): self.socket.bind(self.server_address)
            class Handler(http.server.SimpleHTTPRequestHandler):
                def address_string(self): return "peer"
                def log_message(self, *rest): pass
            server = Server("\(sandbox.path)/program.sock", Handler)
            print("listens", flush=True)
            server.serve_forever()
            """,
        ])
        try #require(program.readLine() == "listens")
        // The kernel chooses the port of a socket that is open for now.
        let taken = try Subprocess([
            "/usr/bin/python3", "-c",
            """
            import socket, sys
            listener = socket.socket()
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            print(listener.getsockname()[1], flush=True)
            sys.stdin.read()
            """,
        ])
        let port = try #require(taken.readLine())
        func configureAll(_ peers: String) throws {
            try configure(
                "web", "TrustAnchors = \(sandbox.path)/ca.pem", "Peers.allow = \(peers)",
                "Serve.tunnel.1.mode = server",
                "Serve.tunnel.1.listen = 127.0.0.1:\(port)", "Serve.tunnel.1.target = unix:\(sandbox.path)/program.sock"
            )
        }
        try configureAll("dns:caller")
        try configure(
            "caller", "TrustAnchors = \(sandbox.path)/ca.pem", "Serve.allow.1 = uid:\(geteuid())",
            "Serve.tunnel.1.mode = client", "Serve.tunnel.1.listen = unix:\(sandbox.path)/run/web.sock",
            "Serve.tunnel.1.target = 127.0.0.1:\(port)", "Serve.tunnel.1.server-name = web")
        let service = try serve()
        try service.waitUntil { try states() == ["caller": "ready", "web": "ready unavailable"] }
        #expect(logged.contains("a tunnel does not listen"), "\(logged)")
        taken.stop()
        try service.waitUntil { try states() == ["caller": "ready", "web": "ready"] }
        let socket = sandbox.path + "/run/web.sock"
        #expect(try ask(socket) == "the answer")
        try certprov("serve", "status").expect(
            stdout: "web: server tunnel 127.0.0.1:\(port) to unix:\(sandbox.path)/program.sock",
            "caller: client tunnel unix:\(socket)")
        // By its own process, which it knows.
        try certprov("serve", "explain", "\(getpid())").expect(
            stdout: "process \(getpid()) user \(geteuid())",
            "caller: granted\n    Serve.allow.1 (uid:\(geteuid())): matches",
            "web: not granted\n    it has no grant")
        let unknown = try certprov("serve", "explain", "--json", "1").document("Caller")
        #expect(unknown["items"][1]["granted"].bool == false)
        try certprov("serve", "explain", "4194305").expect(66, stderr: "no process 4194305")
        // A renewal, and another peer.
        try issueByCA("caller")
        try service.waitUntil { logged.contains("identity renewed") }
        #expect(try ask(socket) == "the answer")
        try configureAll("dns:other")
        service.send(SIGHUP)
        try service.waitUntil { try ask(socket).isEmpty }
        try configureAll("dns:caller")
        let web = try String(contentsOfFile: directory + "/web.properties", encoding: .utf8)
        try sandbox.write(web.replacing("Peers.allow = dns:caller\n", with: ""), to: "etc/web.properties")
        service.send(SIGHUP)
        try service.waitUntil { try states()["web"] == "ready configurationInvalid" }
        #expect(try certprov("serve", "status").stdout.contains("which needs Peers.allow"))
        try sandbox.write(web, to: "etc/web.properties")
        service.send(SIGHUP)
        try service.waitUntil { try states()["web"] == "ready" && ask(socket) == "the answer" }
        // Another tunnel at the same address waits for no second attempt.
        try sandbox.write(web.replacing("tunnel.1.", with: "tunnel.2."), to: "etc/web.properties")
        service.send(SIGHUP)
        try service.waitUntil { try logged.contains("tunnel=2") && ask(socket) == "the answer" }
        #expect(logged.split(separator: "a tunnel does not listen").count == 2, "\(logged)")
        #expect(end(service).status == 0)
        #expect(!FileManager.default.fileExists(atPath: socket))
    }
}
