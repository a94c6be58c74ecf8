import Foundation
import Glibc
import TestSupport
import Testing

/// `requests serve`, and applications at its socket.
@Suite struct RequestsServeTests {
    private let sandbox: Sandbox
    private var socket: String { sandbox.path + "/run/certprov/requests.sock" }
    private var variables: [String: String] {
        ["XDG_RUNTIME_DIR": sandbox.path + "/run", "CERTPROV_CONFIG": sandbox.path + "/client.properties"]
    }
    private var pending: String { sandbox.store + "/requests/pending" }

    init() throws {
        sandbox = try Sandbox()
        mkdir(sandbox.path + "/run", 0o700)
        try sandbox.write("the key of the application", to: "key")
        try configure()
    }

    private func configure(_ more: String = "Signing.prompt = queue") throws {
        _ = try sandbox.configure(
            "Signing.client.1.name = Application", "Signing.client.1.key-source = file:\(sandbox.path)/key",
            "Signing.client.1.operations = sign-challenge", "Signing.client.1.return-schemes = caller", more,
            to: "client.properties")
    }

    /// Starts a signer, and waits until its socket is there.
    private func serve(
        through program: [String] = [], _ options: [String] = [], with more: [String: String] = [:]
    ) throws -> Subprocess {
        let signer = try sandbox.start(
            program + [BuiltCommand.path, "requests", "serve"] + options, with: variables.merging(more) { $1 })
        try signer.waitUntil { Self.takesConnections(socket) }
        return signer
    }

    /// Whether a process listens at a socket. Its file is there before that; the kernel's list has a flag (proc_pid_net(5)).
    static func takesConnections(_ socket: String) -> Bool {
        // Foundation would read the first page alone.
        guard let file = fopen("/proc/net/unix", "r") else { return false }
        defer { fclose(file) }
        var (bytes, page): ([UInt8], [UInt8]) = ([], Array(repeating: 0, count: 4096))
        while case let count = fread(&page, 1, page.count, file), count > 0 { bytes += page[..<count] }
        return String(decoding: bytes, as: UTF8.self).split(separator: "\n").contains {
            $0.hasSuffix(" " + socket) && $0.contains(" 00010000 ")
        }
    }

    private static let functions = """
        import base64, hashlib, hmac, os, socket, sys, urllib.parse
        def request(challenge, scheme="sima"):
            mac = hmac.new(b"the key of the application", hashlib.sha256(challenge).digest(), hashlib.sha256).digest()
            items = {
                "scheme": scheme, "challenge": base64.b64encode(challenge), "service-name": "Service", "client-id": "1",
                "signature": base64.b64encode(mac), "request-id": "request 1",
                "service-logo": b"data:image/gif;base64," + base64.b64encode(b"GIF89a"),
            }
            return b"sima://sign-challenge?" + urllib.parse.urlencode(items, quote_via=urllib.parse.quote).encode()
        def open():
            client = socket.socket(socket.AF_UNIX)
            client.connect(sys.argv[1])
            return client
        def finish(client):
            client.shutdown(socket.SHUT_WR)
            reply = b""
            while part := client.recv(1 << 16): reply += part
            return reply
        def exchange(request):
            client = open()
            client.sendall(request)
            return finish(client)

        """

    /// Runs a script of Python that has `open()`, which connects, `exchange(bytes)`, and `request(challenge)`, an authentic URL.
    private func application(_ script: String, at path: String? = nil) throws -> String {
        let output = try sandbox.run([
            "sh", "-c", "ulimit -n 4096; exec \"$@\"", "sh", "/usr/bin/python3", "-c",
            """
            \(Self.functions)
            \(script)
            """, path ?? socket,
        ])
        guard output.status == 0 else { throw Subprocess.Failure(description: "\(output)") }
        return output.stdout
    }

    /// One request, and whether its reply is a refusal.
    private func isAnswered(at path: String? = nil) throws -> Bool {
        let reply = try application(#"print(exchange(b"sima://sign-challenge?challenge=AA==").decode())"#, at: path)
        return reply.hasPrefix("sima://sign-challenge?status=error&message=")
    }

    @Test(
        "A signer says that it is ready, answers, logs a line without data, and takes its socket away",
        arguments: [SIGTERM, SIGINT])
    func servesUntilASignal(signal: Int32) throws {
        let manager = try Subprocess([
            "/usr/bin/python3", "-c",
            """
            import socket
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            listener.bind("\(sandbox.path)/notify")
            print("ready", flush=True)
            while True: print(listener.recv(100).decode(), flush=True)
            """,
        ])
        try #require(manager.readLine() == "ready")
        let signer = try serve(with: ["NOTIFY_SOCKET": sandbox.path + "/notify"])
        #expect(manager.readLine() == "READY=1")
        #expect(mode(socket) == 0o600 && mode(sandbox.path + "/run/certprov") == 0o700)
        #expect(try isAnswered())
        signer.send(signal)
        let output = signer.wait()
        #expect(output.signal == signal && output.stdout.isEmpty, "\(output)")
        let lines = output.stderr.split(separator: "\n")
        #expect(lines.count == 1 && lines[0].contains("empty-service") && !lines[0].contains("AA=="), "\(output)")
        #expect(!FileManager.default.fileExists(atPath: socket))
    }

    @Test("A second signer is told of the first, and replaces the socket of one that was killed")
    func aKilledSigner() throws {
        let first = try serve()
        try sandbox.certprov("requests", "serve", with: variables).expect(73, stderr: "--socket")
        #expect(try isAnswered())
        first.kill()
        #expect(first.wait().signal == SIGKILL)
        let third = try serve()
        try third.waitUntil { (try? isAnswered()) == true }
    }

    @Test("Without a runtime directory a signer needs --socket")
    func noRuntimeDirectory() throws {
        for directory in [nil, "relative"] {
            try sandbox.certprov(
                "requests", "serve", with: directory.map { ["XDG_RUNTIME_DIR": $0] } ?? [:]
            ).expect(78, stderr: "--socket")
        }
        #expect(chmod(sandbox.path + "/run", 0o700) == 0)
        mkdir(sandbox.path + "/run/certprov", 0o777)
        #expect(chmod(sandbox.path + "/run/certprov", 0o777) == 0)
        try sandbox.certprov("requests", "serve", with: variables).expect(78, stderr: "chmod go-w")
    }

    @Test("systemd passes the socket, and keeps it")
    func socketActivation() throws {
        let path = sandbox.path + "/passed"
        // It passes few variables of its own accord.
        let passed = sandbox.environment.merging(variables) { $1 }.map { "--setenv=\($0.key)=\($0.value)" }
        let signer = try sandbox.start(
            ["systemd-socket-activate", "--listen=\(path)"] + passed + [BuiltCommand.path, "requests", "serve"])
        try signer.waitUntil { FileManager.default.fileExists(atPath: path) }
        try signer.waitUntil { (try? isAnswered(at: path)) == true }
        signer.send(SIGTERM)
        #expect(signer.wait().signal == SIGTERM)
        #expect(FileManager.default.fileExists(atPath: path))
    }

    @Test("A socket of another kind that systemd passes is refused")
    func anotherKindIsPassed() throws {
        let path = sandbox.path + "/passed"
        let signer = try sandbox.start(
            ["systemd-socket-activate", "--datagram", "--listen=\(path)", BuiltCommand.path, "requests", "serve"])
        try signer.waitUntil { FileManager.default.fileExists(atPath: path) }
        try sandbox.run([
            "/usr/bin/python3", "-c",
            "import socket, sys; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', sys.argv[1])", path,
        ]).expect()
        let output = signer.wait()
        #expect(output.status == 78 && output.stderr.contains("ListenStream="), "\(output)")
    }

    @Test("Without free descriptors a signer waits, and does not spin")
    func noDescriptors() throws {
        guard (try? Subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"])) != nil else {
            print("NOT TESTED: a signer without free descriptors, since strace may not trace here")
            return
        }
        let trace = sandbox.path + "/trace"
        let signer = try serve(
            through: [
                "sh", "-c", "ulimit -n 40; exec \"$@\"", "sh", "strace", "-f", "-qq", "-ttt", "-e", "trace=accept4",
                "-o", trace,
            ])
        let applications = try Subprocess([
            "/usr/bin/python3", "-c",
            """
            import socket, sys
            clients = [socket.socket(socket.AF_UNIX) for _ in range(60)]
            for client in clients: client.connect("\(socket)")
            print("connected", flush=True)
            sys.stdin.read()
            """,
        ])
        try #require(applications.readLine() == "connected")
        func failures() throws -> [Double] {
            try String(contentsOfFile: trace, encoding: .utf8).split(separator: "\n").filter {
                $0.contains("EMFILE")
            }.compactMap { Double($0.split(separator: " ", omittingEmptySubsequences: true)[1]) }
        }
        try signer.waitUntil { try failures().count >= 3 }
        let times = try failures()
        for (first, second) in zip(times, times.dropFirst()) { #expect(second - first > 0.9, "\(times)") }
        applications.closeInput()
        #expect(try isAnswered())
    }

    @Test("Memory does not grow with the number of documents that arrive at once")
    func memoryIsFlat() throws {
        let signer = try serve()
        let request = #"b"sima://sign-pdf?document=" + b"A" * (4 << 20)"#
        _ = try application("exchange(\(request))")
        let before = try #require(signer.peakMemory)
        let replies = try application(
            """
            import threading
            replies = []
            def one(request): replies.append(exchange(request))
            large = \(request)
            threads = [threading.Thread(target=one, args=(large,)) for _ in range(24)]
            threads += [threading.Thread(target=one, args=(b"sima://sign-challenge?challenge=AA==",)) for _ in range(976)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            print(sum(reply.startswith(b"sima://sign-") for reply in replies))
            """)
        #expect(replies == "1000\n")
        let after = try #require(signer.peakMemory)
        // One has what it had before, and each of the others a mebibyte. Each document more than that would be 3 MiB more at least.
        #expect(after - before < 48 << 10, "\(before) and \(after) KiB")
    }

    @Test("A request whose application goes does not wait for a person any more")
    func theApplicationGoes() throws {
        let signer = try serve()
        let application = try Subprocess([
            "/usr/bin/python3", "-c",
            Self.functions + "client = open(); client.sendall(request(os.urandom(32))); finish(client)",
            socket,
        ])
        func waiting() throws -> [String] {
            try #require(!signer.hasEnded, "\(signer.wait())")
            return ((try? FileManager.default.contentsOfDirectory(atPath: pending)) ?? []).filter { !$0.hasPrefix(".") }
        }
        while try waiting().isEmpty { usleep(1000) }
        application.kill()
        while try !waiting().isEmpty { usleep(1000) }
        #expect(try isAnswered())
    }

    @Test("A question at the terminal ends when its application goes, and the next one is asked")
    func theApplicationOfAQuestionGoes() throws {
        try configure("Signing.prompt = terminal")
        func ask() throws -> Subprocess {
            let script = "print(exchange(request(os.urandom(32))).decode(), flush=True)"
            return try Subprocess(["/usr/bin/python3", "-c", Self.functions + script, socket])
        }
        let command = #"echo ready; exec "$CERTPROV" requests serve"#
        _ = try sandbox.atTerminal(command, asked: "ready", with: variables) { person in
            while !Self.takesConnections(socket) { usleep(1000) }
            let first = try ask()
            person.sees("Sign? [y/N] ", 1)
            first.kill()
            let second = try ask()
            person.sees("Sign? [y/N] ", 2)
            try person.type("n\n")
            #expect(second.readLine()?.contains("message=operation-canceled") == true)
            try person.type("\u{3}")
        }
    }

    @Test("xdg-open starts the desktop entry's command, and the reply reaches the application")
    func thereAndBackByURL() throws {
        try configure("Signing.client.1.approval = unattended")
        let (data, got) = (sandbox.path + "/data", sandbox.path + "/got")
        try FileManager.default.createDirectory(
            atPath: data + "/applications", withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        try sandbox.install("#!/bin/sh\nprintf '%s' \"$1\" >\(got).new\nmv \(got).new \(got)\n", to: "caller")
        let bin = URL(filePath: BuiltCommand.path).deletingLastPathComponent().path
        try sandbox.write(
            try Page("Scripts/desktop/certprov-requests.desktop").text.replacing("@bindir@", with: bin),
            to: data + "/applications/certprov-requests.desktop")
        try sandbox.write(
            """
            [Desktop Entry]
            Type=Application
            Name=Caller
            Exec=\(sandbox.path)/caller %u
            MimeType=x-scheme-handler/caller;

            """, to: data + "/applications/caller.desktop")
        try sandbox.write(
            """
            [Default Applications]
            x-scheme-handler/sima=certprov-requests.desktop
            x-scheme-handler/caller=caller.desktop

            """, to: sandbox.path + "/config/mimeapps.list")
        let url = try application(#"print(request(os.urandom(32), scheme="caller").decode())"#, at: "none")
            .trimmingCharacters(in: .newlines)
        let output = try sandbox.run(
            ["xdg-open", url], with: variables.merging(["DISPLAY": ":99", "XDG_DATA_HOME": data]) { $1 }
        ).expect()
        // The signer waits for the way back for some seconds only.
        let end = ContinuousClock.now + .seconds(300)
        while !FileManager.default.fileExists(atPath: got), .now < end { usleep(10_000) }
        let reply = String(decoding: try contents(got), as: UTF8.self)
        #expect(reply.hasPrefix("caller://sign-challenge?status=success&signature="), "\(reply) \(output)")
    }
}
