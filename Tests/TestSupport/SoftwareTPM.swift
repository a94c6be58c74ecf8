import Foundation
import Glibc
import Synchronization

/// A software TPM of its own, at a socket in a directory of its own. Its state outlives a restart.
public final class SoftwareTPM: Sendable {
    private let directory: TemporaryDirectory
    private let process = Mutex<Subprocess?>(nil)

    /// Starts a TPM.
    public init() throws {
        directory = try TemporaryDirectory()
        try start()
    }

    /// Starts it again, after ``kill()``.
    ///
    /// - Throws: If it does not answer within two minutes.
    public func start() throws {
        let socket = directory["socket"]
        for path in [socket, socket + ".ctrl"] { unlink(path) }
        // It reports each client that leaves, and would stop at a stream that is not read.
        let program = try Subprocess(
            [
                "swtpm", "socket", "--tpm2", "--tpmstate", "dir=\(directory.path)", "--server",
                "type=unixio,path=\(socket)", "--ctrl", "type=unixio,path=\(socket).ctrl", "--flags",
                "not-need-init,startup-clear",
            ], .captured())
        // Its sockets are there before it listens.
        try program.wait(for: "swtpm") {
            (try? Subprocess.run(variables + ["tpm2_getcap", "properties-variable"], seconds: 20)) != nil
        }
        process.withLock { $0 = program }
    }

    /// Ends it at once.
    public func kill() {
        process.withLock { process in
            process?.kill(SIGKILL)
            _ = process?.wait(seconds: 10)
            process = nil
        }
    }

    /// Lets it hang.
    public func stop() { process.withLock(\.self)?.send(SIGSTOP) }

    /// Lets it go on.
    public func proceed() { process.withLock(\.self)?.send(SIGCONT) }

    /// The parameter `tcti`.
    public var tcti: String { "swtpm:path=\(directory["socket"])" }

    private var variables: [String] { ["TPM2TOOLS_TCTI=\(tcti)", "TPM2OPENSSL_TCTI=\(tcti)"] }

    /// Runs a program of tpm2-tools, or OpenSSL with its provider tpm2, on this TPM.
    @discardableResult
    public func run(_ arguments: String..., in directory: String = "/", input: [UInt8] = []) throws -> String {
        String(
            decoding: try Subprocess.run(variables + arguments, input: input, in: directory, seconds: 120),
            as: UTF8.self)
    }

    /// The transient objects and sessions that it has.
    public func leftovers() throws -> String {
        try run("tpm2_getcap", "handles-transient") + run("tpm2_getcap", "handles-loaded-session")
    }
}

extension Subprocess {
    /// Waits until a server with captured streams is ready.
    ///
    /// - Throws: Its output, if it ends, or is not ready within two minutes.
    func wait(for name: String, _ isReady: () throws -> Bool) throws {
        let end = ContinuousClock.now + .seconds(120)
        while try !isReady() {
            if !hasEnded, .now < end {
                usleep(1000)
                continue
            }
            let reason = hasEnded ? "has ended" : "does not answer within two minutes"
            kill()
            throw Failure(description: "\(name) \(reason): \(wait())")
        }
    }
}
