import Foundation
import TestSupport
import Testing

/// The lines for those who audit, as JSON and in the journal.
@Suite struct EventsTests {
    private let sandbox: Sandbox
    private let configuration: String

    init() throws {
        sandbox = try Sandbox()
        configuration = try sandbox.configure(
            "Files.directory = \(sandbox.path)/files", "Files.key = true", to: "web.properties")
    }

    /// The lines of stderr, each of which is an object.
    private func lines(_ output: Output) throws -> [[String: String]] {
        try output.stderr.split(separator: "\n").map { line in
            let object = try #require(
                try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any], "\(line)")
            return object.compactMapValues { $0 as? String }
        }
    }

    private func events(_ output: Output) throws -> [[String: String]] {
        try lines(output).filter { $0["event"] != nil }
    }

    @Test("Each event of an identity is an object of JSON, without a secret") func eventsAsJSON() throws {
        let fetched = try sandbox.certprov("fetch", "--config", configuration, "--log-format", "json").expect()
        let renewed = try sandbox.certprov("fetch", "--force", "--config", configuration, "--log-format", "json")
            .expect()
        let deleted = try sandbox.certprov("delete", "--yes", "--config", configuration, "--log-format", "json")
            .expect()
        let refused = try sandbox.certprov(
            "fetch", "--config", configuration, "--log-format", "json", with: ["P12_PASSWORD": "wr0ng-pass"])
        #expect(try events(fetched).map { $0["event"] } == ["issued", "files-written"])
        // The files are those that are there.
        #expect(try events(renewed).map { $0["event"] } == ["issued"])
        #expect(try events(deleted).map { $0["event"] } == ["deleted"])
        let failure = try #require(try events(refused).first)
        #expect(failure["event"] == "refused" && failure["provider"] == "pkcs12" && failure["outcome"] != "ok")
        let fingerprint = try Subprocess.run([
            "openssl", "x509", "-in", Fixtures.path("ec.pem"), "-noout", "-fingerprint", "-sha256",
        ])
        let digits = String(decoding: fingerprint, as: UTF8.self).split(separator: "=").last?.filter(\.isHexDigit)
            .lowercased()
        for event in try events(fetched) + events(deleted) {
            #expect(event["fingerprint"] == digits && event["outcome"] == "ok" && event["provider"] == "pkcs12")
            #expect(event["subject"]?.hasPrefix("CN=") == true && event["serial"] != nil && event["time"] != nil)
            #expect(event["level"] == "notice")
        }
        let key = try String(contentsOfFile: Fixtures.path("ec.key"), encoding: .utf8).split(separator: "\n").dropFirst(
            2)
        for output in [fetched, renewed, deleted, refused] {
            for secret in [Fixtures.password, "wr0ng-pass"] + key.dropLast().map(String.init) {
                #expect(!output.stderr.contains(secret), "\(output)")
            }
        }
    }

    @Test("Without the option, a person sees the result and no event") func noEventForAPerson() throws {
        try sandbox.certprov("fetch", "--config", configuration).expect(stderr: "")
        #expect(try sandbox.certprov("fetch", "--force", "--config", configuration).stderr.isEmpty)
    }

    @Test("Warnings and errors are objects, too") func warningsAndErrors() throws {
        try sandbox.write(
            "No.such.key = 1\n" + (try String(contentsOfFile: configuration, encoding: .utf8)), to: "web.properties")
        let output = try sandbox.certprov("fetch", "--config", configuration, "--log-format", "json").expect()
        #expect(
            try lines(output).contains { $0["level"] == "warning" && $0["message"]?.contains("No.such.key") == true })
        let failed = try sandbox.certprov("fetch", "--config", "/nonexistent", "--log-format", "json")
        #expect(try failed.status == 78 && failed.errorDocuments().count == 1)
    }

    /// Stands for the journal at its socket, runs a command with a stderr that is its stream, and shows each entry as JSON.
    private static let journal = #"""
        import json, os, socket, struct, subprocess, sys
        os.makedirs("/run/systemd/journal")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener, open("/run/stream", "w") as stream:
            listener.bind("/run/systemd/journal/socket")
            status = os.fstat(stream.fileno())
            environment = dict(os.environ, JOURNAL_STREAM=f"{status.st_dev}:{status.st_ino}")
            code = subprocess.call(sys.argv[1:], env=environment, stdout=subprocess.DEVNULL, stderr=stream)
            listener.setblocking(False)
            while True:
                try: rest = listener.recv(1 << 20)
                except BlockingIOError: break
                entry = {}
                while rest:
                    name, rest = rest.split(b"\n", 1)
                    size, = struct.unpack("<Q", rest[:8])
                    entry[name.decode()], rest = rest[8:8 + size].decode(), rest[8 + size + 1:]
                print(json.dumps(entry))
        sys.stderr.write(open("/run/stream").read())
        sys.exit(code)
        """#

    @Test(
        "In the journal, each field is by itself",
        .enabled(if: geteuid() == 0, "only root can give /run another content"))
    func eventsInTheJournal() throws {
        let script = try sandbox.write(Self.journal, to: "journal.py")
        let output = try sandbox.run([
            "unshare", "--mount", "sh", "-c", #"mount -t tmpfs run /run && exec python3 "$@""#, "sh", script,
            BuiltCommand.path,
            "fetch", "--config", configuration,
        ]).expect(stderr: "")
        let entries = try output.stdout.split(separator: "\n").map { line in
            try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: String])
        }
        #expect(entries.map { $0["CERTPROV_EVENT"] } == ["issued", "files-written"], "\(output)")
        for entry in entries {
            #expect(entry["PRIORITY"] == "5" && entry["SYSLOG_IDENTIFIER"] == "certprov")
            #expect(entry["CERTPROV_SUBJECT"]?.hasPrefix("CN=") == true && entry["CERTPROV_OUTCOME"] == "ok")
            #expect(entry["MESSAGE"]?.contains(" fingerprint=") == true)
        }
        #expect(!output.stdout.contains(Fixtures.password))
    }
}
