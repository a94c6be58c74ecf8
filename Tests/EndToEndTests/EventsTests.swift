import Foundation
import TestSupport
import Testing

/// The lines for those who audit, as JSON and in the journal.
@Suite struct EventsTests {
    private let sandbox: Sandbox
    private var log: String { sandbox.path + "/log" }

    init() throws { sandbox = try Sandbox() }

    enum Form: CaseIterable {
        case json
        case journal

        /// Only root can give `/run` another content.
        static let tested = geteuid() == 0 ? allCases : [.json]
    }

    /// Stands for the journal at its socket, runs a command with a stderr that is its stream, and shows each entry as JSON.
    private static let journal = #"""
        import json, os, select, signal, socket, struct, subprocess, sys
        os.makedirs("/run/systemd/journal")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener, open("/run/stream", "w") as stream:
            listener.bind("/run/systemd/journal/socket")
            status = os.fstat(stream.fileno())
            environment = dict(os.environ, JOURNAL_STREAM=f"{status.st_dev}:{status.st_ino}")
            child = subprocess.Popen(sys.argv[1:], env=environment, stdout=subprocess.DEVNULL, stderr=stream)
            signal.signal(signal.SIGTERM, lambda *_: child.terminate())
            while True:
                has_ended = child.poll() is not None
                if not select.select([listener], [], [], 0.01)[0]:
                    if has_ended: break
                    continue
                rest, entry = listener.recv(1 << 20), {}
                while rest:
                    name, rest = rest.split(b"\n", 1)
                    size, = struct.unpack("<Q", rest[:8])
                    entry[name.decode()], rest = rest[8:8 + size].decode(), rest[8 + size + 1:]
                print(json.dumps(entry), flush=True)
        sys.stderr.write(open("/run/stream").read())
        sys.exit(child.returncode)
        """#

    /// Starts the command, whose log goes to a file in a form.
    private func start(_ arguments: [String], _ form: Form, with variables: [String: String] = [:]) throws -> Subprocess
    {
        var command = [BuiltCommand.path] + arguments
        switch form {
        case .json:
            command = ["sh", "-c", #"exec "$@" 2>>"$LOG" >"$LOG.out""#, "sh"] + command + ["--log-format", "json"]
        case .journal:
            let script = try sandbox.write(Self.journal, to: "journal.py")
            let entrance = #"mount -t tmpfs run /run && exec python3 "$@" >>"$LOG""#
            command = ["unshare", "--mount", "sh", "-c", entrance, "sh", script] + command
        }
        return try sandbox.start(command, with: ["LOG": log].merging(variables) { $1 })
    }

    /// The lines of the log so far. Fields of the journal have the names of those of JSON.
    private func lines() throws -> [[String: String]] {
        let text = (try? String(contentsOfFile: log, encoding: .utf8)) ?? ""
        return try text.split(separator: "\n").map { line in
            let object = try #require(
                try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any], "\(line)")
            let fields = object.compactMapValues { $0 as? String }.map { name, value in
                (name.replacing(/^CERTPROV_/, with: "").lowercased(), value)
            }
            return [String: String](fields) { first, _ in first }
        }
    }

    private func events() throws -> [[String: String]] { try lines().filter { $0["event"] != nil } }

    /// Runs a command to its end. Returns the names of its events.
    private func names(
        _ form: Form, _ arguments: String..., status: Int32 = 0, with variables: [String: String] = [:]
    ) throws -> [String?] {
        let before = try events().count
        try start(arguments, form, with: variables).wait().expect(status)
        return try events().dropFirst(before).map { $0["event"] }
    }

    private func fingerprint(_ file: String) throws -> String {
        let output = try Subprocess.run(["openssl", "x509", "-in", file, "-noout", "-fingerprint", "-sha256"])
        return String(decoding: output.drop { $0 != UInt8(ascii: "=") }, as: UTF8.self).filter(\.isHexDigit)
            .lowercased()
    }

    private static let ofCertificates = ["subject", "serial", "fingerprint", "expires"]

    /// Each line has the level of an event, and no control character in any field.
    private func expectForm(_ form: Form) throws {
        for event in try events() {
            #expect(form == .json ? event["level"] == "notice" : event["priority"] == "5")
            #expect(form == .json ? event["time"] != nil : event["syslog_identifier"] == "certprov")
            let failed = event["event"] == "refused"
            #expect((event["outcome"] != "ok") == failed && event["provider"] != nil, "\(event)")
            for name in Self.ofCertificates { #expect((event[name] == nil) == failed, "\(name): \(event)") }
        }
        for value in try lines().flatMap(\.values) {
            #expect(!value.unicodeScalars.contains { $0.properties.generalCategory == .control }, "\(value)")
        }
    }

    @Test(
        "The command writes an event for what it gets, writes, revokes and deletes, without a secret",
        arguments: Form.tested)
    func eventsOfTheCommand(form: Form) throws {
        let file = try sandbox.configure(
            "Files.directory = \(sandbox.path)/files", "Files.key = true", to: "web.properties")
        #expect(try names(form, "fetch", "--config", file) == ["issued", "files-written"])
        // The files are those that are there.
        #expect(try names(form, "fetch", "--force", "--config", file) == ["issued"])
        #expect(try names(form, "delete", "--yes", "--config", file) == ["deleted"])
        #expect(
            try names(form, "fetch", "--config", file, status: 77, with: ["P12_PASSWORD": "wr0ng-pass"]) == ["refused"])
        let expected = try fingerprint(Fixtures.path("ec.pem"))
        #expect(try events().dropLast().allSatisfy { $0["fingerprint"] == expected && $0["provider"] == "pkcs12" })
        #expect(try events().last?["outcome"] == "wrongPassword")
        #expect(try events()[1]["path"] == sandbox.path + "/files")
        try expectForm(form)
        let key = try String(contentsOfFile: Fixtures.path("ec.key"), encoding: .utf8).split(separator: "\n")
        let text = try String(contentsOfFile: log, encoding: .utf8)
        for secret in [Fixtures.password, "wr0ng-pass"] + key.dropFirst(2).dropLast().map(String.init) {
            #expect(!text.contains(secret), "\(text)")
        }
    }

    /// A source whose administrator, or server, is not trusted to write to a terminal or a journal.
    private static let plugin = #"""
        #!/usr/bin/python3
        import json, os, sys
        hello = {"version": 1, "id": "corp", "provider": {"can": ["revoke"], "displayName": "Corp", "summary": "Its CA.", "parameters": []}}
        identity = json.loads(os.environ["IDENTITY"])
        stored = os.environ["STORED"]
        for line in sys.stdin:
            message = json.loads(line)
            request, reply = message.get("request"), {"result": {}}
            if request is None: continue
            if request == "hello": reply = {"result": hello}
            if request == "forget" and os.path.exists(stored): os.remove(stored)
            if request == "stored": reply = {"result": {"identity": identity if os.path.exists(stored) else None}}
            if request == "obtain" and "REFUSE" in os.environ:
                reply = {"error": {"code": "rejected", "message": "no\nCERTPROV_EVENT=issued\u001b[31m\u009b1m"}}
            elif request == "obtain":
                open(stored, "w").close()
                reply = {"result": {"identity": identity}}
            print(json.dumps({"id": message["id"], **reply}), flush=True)

        """#

    @Test("A revocation is an event, and text of a server adds no line, no field and no colour", arguments: Form.tested)
    func eventsOfAPlugin(form: Form) throws {
        try sandbox.installPlugin("corp", Self.plugin)
        let file = try sandbox.write(
            "PluginDirectory = \(sandbox.path)/plugins\nCertificateProvider = corp\nCertificateProvider.corp.environment = IDENTITY,STORED,REFUSE\n",
            to: "corp.properties")
        let pair = try issue("web\n\u{1b}[31mred")
        func base64(_ file: String) throws -> String {
            let pem = try String(contentsOfFile: file, encoding: .utf8)
            return pem.split(separator: "\n").filter { !$0.hasPrefix("-") }.joined()
        }
        let identity: [String: Any] = [
            "chain": [try base64(pair.certificate)], "source": "ca\n\u{1b}[31m",
            "key": ["pkcs8": ["secret": try base64(pair.key)], "location": "file"],
        ]
        let variables = [
            "IDENTITY": String(decoding: try JSONSerialization.data(withJSONObject: identity), as: UTF8.self),
            "STORED": sandbox.path + "/stored",
        ]
        let refusing = variables.merging(["REFUSE": "yes"]) { $1 }
        #expect(try names(form, "fetch", "--config", file, status: 77, with: refusing) == ["refused"])
        #expect(try names(form, "fetch", "--config", file, with: variables) == ["issued"])
        #expect(
            try names(form, "delete", "--yes", "--revoke", "--config", file, with: variables) == ["revoked", "deleted"])
        let expected = try fingerprint(pair.certificate)
        for event in try events() where event["event"] != "refused" {
            #expect(event["fingerprint"] == expected && event["provider"] == "corp", "\(event)")
            #expect(event["server"] == #"ca\0a\1b[31m"#, "\(event)")
            #expect(event["subject"]?.hasPrefix("CN=web") == true && event["subject"]?.hasSuffix("[31mred") == true)
        }
        #expect(try events()[0]["outcome"] == "rejected")
        try expectForm(form)
    }

    /// Makes a pair, which takes the place of the one before.
    @discardableResult
    private func issue(_ name: String) throws -> (certificate: String, key: String) {
        try sandbox.shell(
            """
            cd "$1" && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 30 -subj "/CN=$2" \\
                -keyout new.key -out new.crt 2>/dev/null && cat new.key new.crt >new.pem && chmod 600 new.* &&
                mv new.key web.key && mv new.crt web.crt && mv new.pem web.pem
            """, sandbox.path, name
        ).require()
        return (sandbox.path + "/web.crt", sandbox.path + "/web.key")
    }

    @Test("A service writes an event for what it gets, renews, recovers, writes and serves", arguments: Form.tested)
    func eventsOfAService(form: Form) throws {
        for name in ["etc", "run"] { mkdir("\(sandbox.path)/\(name)", 0o700) }
        let socket = sandbox.path + "/run/pkcs11.sock"
        try sandbox.write("Serve.pkcs11-socket = \(socket)\n", to: "etc/serve.properties")
        try sandbox.write(
            """
            CertificateProvider = pem
            CertificateProvider.pem.certificate = \(sandbox.path)/web.pem
            CertificateProvider.pem.key = \(sandbox.path)/web.pem
            Files.directory = \(sandbox.path)/files
            Serve.allow.1 = uid:\(geteuid())

            """, to: "etc/web.properties")
        var last = try issue("web").certificate
        let service = try start(
            ["serve", "--directory", sandbox.path + "/etc"], form, with: ["RUNTIME_DIRECTORY": sandbox.path + "/run"])
        func wait(for name: String, _ count: Int = 1) throws {
            try service.waitUntil { try events().count { $0["event"] == name } == count }
        }
        try wait(for: "files-written")
        last = try issue("web").certificate
        try wait(for: "files-written", 2)
        try sandbox.write("damaged", to: "web.pem")
        try wait(for: "refused")
        last = try issue("web").certificate
        try wait(for: "files-written", 3)
        try wait(for: "recovered")
        let sign = [
            "p11tool", "--provider", try P11KitClient.path(), "--test-sign",
            "pkcs11:token=certprov;object=web;type=private",
        ]
        try sandbox.run(sign, with: ["P11_KIT_SERVER_ADDRESS": "unix:path=\(socket)"]).expect()
        try wait(for: "served")
        service.send(SIGTERM)
        service.wait().expect()

        let names = try events().compactMap { $0["event"] }
        #expect(
            names.sorted() == [
                "files-written", "files-written", "files-written", "issued", "recovered", "refused", "renewed",
                "renewed",
                "served",
            ], "\(names)")
        let expected = try fingerprint(last)
        for event in try events() {
            #expect(event["identity"] == "web" && event["provider"] == "pem", "\(event)")
            if ["served", "recovered"].contains(event["event"]) {
                #expect(event["fingerprint"] == expected, "\(event)")
            }
            if event["event"] != "refused" { #expect(event["server"] == sandbox.path + "/web.pem", "\(event)") }
        }
        let caller = try #require(try events().last { $0["event"] == "served" }?["caller"])
        #expect(try caller.wholeMatch(of: Regex("process [0-9]+ user \(geteuid())")) != nil, "\(caller)")
        try expectForm(form)
    }

    @Test("Without the option, a person sees the result and no event") func noEventForAPerson() throws {
        let file = try sandbox.configure(to: "web.properties")
        try sandbox.certprov("fetch", "--config", file).expect(stderr: "")
        try sandbox.certprov("fetch", "--force", "--config", file).expect(stderr: "")
    }

    @Test("Warnings and errors are objects, too") func warningsAndErrors() throws {
        let file = try sandbox.configure("No.such.key = 1", to: "web.properties")
        #expect(try names(.json, "fetch", "--config", file) == ["issued"])
        #expect(try lines().contains { $0["level"] == "warning" && $0["message"]?.contains("No.such.key") == true })
        let failed = try sandbox.certprov("fetch", "--config", "/nonexistent", "--log-format", "json")
        #expect(try failed.status == 78 && failed.errorDocuments().count == 1)
    }
}
