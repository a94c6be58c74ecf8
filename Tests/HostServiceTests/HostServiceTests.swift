import CertificateProviding
import CertprovComposition
import HostService
import IdentityStore
import TestSupport
import Testing
import UnixSignals

@Suite struct HostServiceTests {
    @Test(
        "The end waits for a server that hangs until its limit, or until a second signal", arguments: [true, false])
    func end(hasLimit: Bool) async throws {
        let directory = try TemporaryDirectory()
        let server = try Subprocess([
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
        let port = try #require(await server.nextLine())
        let authority = try directory.write(try TestAuthority().root.pemRepresentation.utf8, to: "ca.pem")
        let password = try directory.write("x".utf8, to: "password")
        let settings = [
            "protocol = est", "url = https://127.0.0.1:\(port)/", "trust-anchors = \(authority)", "subject = CN=slow",
            "username = u", "password-source = file:\(password)",
        ]
        let lines = ["CertificateProvider = mdm"] + settings.map { "CertificateProvider.mdm." + $0 }
        let file = try directory.write(lines.joined(separator: "\n").utf8, to: "a.properties")
        var builtIns = BuiltIns.all
        builtIns.sections.append(ServeSection.settings)
        let log = TestLog()
        let composition = try Composition(
            builtIns, store: IdentityStore(path: directory["state"]), executor: .threads(), logger: log.logger)
        let service = try HostService(composition, statusAt: nil, logger: log.logger) { () throws(ProviderError) in
            HostConfiguration(only: file)
        }
        let (signals, sender) = AsyncStream<UnixSignal>.makeStream()
        let running = Task { try await service.run(until: signals, limit: .milliseconds(hasLimit ? 50 : 600_000)) }
        try #require(await server.nextLine() == "asked")
        sender.yield(.sigterm)
        if !hasLimit { sender.yield(.sigint) }
        try await running.value
        #expect(log.warnings.contains { $0.contains("an attempt in progress") }, "\(log.text)")
        #expect(!log.text.contains("timedOut"), "\(log.text)")
        server.stop()
    }
}
