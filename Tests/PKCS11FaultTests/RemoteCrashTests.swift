import CertificateProviding
import Foundation
import Glibc
import PKCS11TokenProvider
import Synchronization
import TestSupport
import Testing

/// A module that p11-kit runs in another process, which ends in the middle of a call.
///
/// p11-kit has one configuration for a process, so this runs again in a process of its own.
@Suite(.timeLimit(.minutes(60))) struct RemoteCrashTests {
    private static let remote = "/usr/libexec/p11-kit/p11-kit-remote"
    /// The directory of p11-kit's configuration, in the process within.
    private static let modules = ProcessInfo.processInfo.environment["CERTPROV_TEST_MODULES"]

    @Test(.enabled(if: modules == nil && socket == nil)) func theRemoteProcessEnds() async throws {
        let directory = try directoryWithIdentity()
        // The first process ends at its first signature, the next ones live.
        let helper = """
            #!/bin/sh
            export FAULTY_MODULE_TOKEN=\(directory.path)
            [ -e \(directory["starts"]) ] || export FAULTY_MODULE_CRASH=C_Sign
            echo $$ >> \(directory["starts"])
            exec \(Self.remote) \(try FaultyModuleLibrary.path())
            """
        try directory.write(helper.utf8, to: "helper", mode: 0o700)
        let modules = directory["modules"]
        try FileManager.default.createDirectory(atPath: modules, withIntermediateDirectories: true)
        // By a shell: a file that was just written cannot be executed while another test's child, forked in between, has it
        // open.
        try directory.write("remote: |sh \(directory["helper"])\n".utf8, to: "modules/faulty.module", mode: 0o644)
        try await Subprocess.runTests(
            ["aCrashIsMended"], of: "RemoteCrashTests",
            with: ["CERTPROV_TEST_MODULES=\(modules)", "CERTPROV_TEST_STARTS=" + directory["starts"]])
        #expect(try directory.read("starts").count { $0 == 0x0a } == 3 + Self.rounds)
    }

    /// The objects that the module in the other process finds on its token.
    private func directoryWithIdentity() throws -> TemporaryDirectory {
        let directory = try TemporaryDirectory()
        let identity = try FaultyModule.authority.get().issue("remote")
        let key = try #require(identity.key.exporter)
        try directory.write(key.pkcs8Representation().withUnsafeBytes { Array($0) }, to: "key")
        try directory.write(identity.certificate.derRepresentation, to: "certificate")
        return directory
    }

    /// Of p11-kit's interface for tests, which its header hides.
    private typealias OverrideSystemFiles =
        @convention(c) (
            UnsafePointer<CChar>?, UnsafePointer<CChar>?, UnsafePointer<CChar>?, UnsafePointer<CChar>?,
            UnsafePointer<CChar>?
        ) -> Void

    @Test(.enabled(if: modules != nil)) func aCrashIsMended() async throws {
        let symbol = try #require(dlsym(nil, "p11_kit_override_system_files"))
        // Kept by p11-kit.
        let modules = strdup(try #require(Self.modules))
        unsafeBitCast(symbol, to: OverrideSystemFiles.self)(nil, nil, modules, modules, modules)
        let provider = try PKCS11TokenProvider(
            environment: .testing(variables: ["PIN": FaultyModule.pin]),
            parameters: ProviderParameters([
                "uri": .init("pkcs11:?module-name=faulty"), "pin-source": .init("env:PIN"),
                "timeout": .init("20"),
            ]))
        // The process ends in the middle of this, and another one goes on.
        let identity = try await provider.getCertificate(NoUserInteraction())
        #expect(try await identity.key.signsValidly())
        // And one that ends between two calls, so that p11-kit writes to a closed socket.
        try killProcess()
        #expect(try await identity.key.signsValidly())
        // And while several threads wait for answers.
        for _ in 0..<Self.rounds {
            let hasEnded = Flag()
            try await withThrowingTaskGroup(of: Void.self) { tasks in
                for _ in 0..<16 {
                    tasks.addTask {
                        // The one that is under way may be lost.
                        while !hasEnded.value.load(ordering: .relaxed) { _ = try? await identity.key.signsValidly() }
                        let isValid = try await identity.key.signsValidly()
                        #expect(isValid)
                    }
                }
                usleep(.random(in: 1000...50_000))
                try killProcess()
                hasEnded.value.store(true, ordering: .relaxed)
                try await tasks.waitForAll()
            }
        }
    }

    // MARK: A module that passes everything on to `p11-kit server`

    private static let socket = ProcessInfo.processInfo.environment["CERTPROV_TEST_SOCKET"]

    @Test(.enabled(if: modules == nil && socket == nil)) func theServerEnds() async throws {
        let directory = try directoryWithIdentity()
        let socket = directory["socket"]
        try await Subprocess.runTests(
            ["anotherServerIsFound"], of: "RemoteCrashTests",
            with: [
                "CERTPROV_TEST_SOCKET=\(socket)", "P11_KIT_SERVER_ADDRESS=unix:path=\(socket)",
                "FAULTY_MODULE_TOKEN=\(directory.path)",
            ])
    }

    @Test(.enabled(if: socket != nil)) func anotherServerIsFound() async throws {
        let socket = try #require(Self.socket)
        var server = try startServer(socket)
        let provider = try PKCS11TokenProvider(
            environment: .testing(variables: ["PIN": FaultyModule.pin]),
            parameters: ProviderParameters([
                "uri": .init("pkcs11:"), "module-path": .init(try P11KitClient.path()),
                "pin-source": .init("env:PIN"),
            ]))
        let identity = try await provider.getCertificate(NoUserInteraction())
        for _ in 0..<3 {
            #expect(try await identity.key.signsValidly())
            // Each connection has a process of its own.
            for child in server.children { kill(child, SIGKILL) }
            server.stop()
            unlink(socket)
            await #expect(throws: ProviderError.self) { _ = try await identity.key.signsValidly() }
            server = try startServer(socket)
        }
        #expect(try await identity.key.signsValidly())
        for child in server.children { kill(child, SIGKILL) }
    }

    private func startServer(_ socket: String) throws -> Subprocess {
        let server = try Subprocess([
            "p11-kit", "server", "-f", "-n", socket, "--provider", FaultyModuleLibrary.path(), "pkcs11:",
        ])
        try #require(server.readLine()?.contains(socket) == true)
        return server
    }

    private final class Flag: Sendable { let value = Atomic(false) }

    private static let rounds = TestLength.rounds(20, soak: 500)

    /// Ends the process that the module runs in.
    private func killProcess() throws {
        let file = try #require(ProcessInfo.processInfo.environment["CERTPROV_TEST_STARTS"])
        let pids = try String(contentsOfFile: file, encoding: .utf8).split(separator: "\n").compactMap { pid_t($0) }
        let pid = try #require(pids.last)
        kill(pid, SIGKILL)
        let end = ContinuousClock.now + .seconds(600)
        while try isRunning(pid), .now < end { usleep(1000) }
    }

    /// Not one that has ended and is not reaped yet.
    private func isRunning(_ pid: pid_t) throws -> Bool {
        let state = try? String(contentsOfFile: "/proc/\(pid)/stat", encoding: .utf8).split(separator: ")").last
        return state.map { !$0.hasPrefix(" Z") } ?? false
    }
}
