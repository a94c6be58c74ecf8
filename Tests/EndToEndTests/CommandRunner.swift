import Foundation
import Glibc
import Synchronization

/// A process that could not be started, or a fixture that could not be made.
struct RunnerError: Error, CustomStringConvertible { var description: String }

/// The status and the output of a process.
struct Output: Sendable, CustomStringConvertible {
    /// `nil` when a signal ended it.
    var status: Int32?
    var signal: Int32?
    var stdoutBytes: [UInt8]
    var stderrBytes: [UInt8]

    var stdout: String { String(decoding: stdoutBytes, as: UTF8.self) }
    var stderr: String { String(decoding: stderrBytes, as: UTF8.self) }

    var description: String {
        "\(status.map { "status \($0)" } ?? "signal \(signal ?? 0)")\nstdout: \(stdout)\nstderr: \(stderr)"
    }
}

/// A process in a session of its own, without a controlling terminal, whose output goes to nameless files: it
/// never waits for its reader. It is killed with its children when its time is over.
final class Subprocess: Sendable {
    let pid: pid_t
    private let stdout: Int32
    private let stderr: Int32
    /// Whether the pid is ours no more and must not be signalled.
    private let isReaped = Mutex(false)

    init(_ arguments: [String], environment: [String: String], seconds: Double = 600) throws {
        guard let program = arguments.first else { throw RunnerError(description: "no program") }
        stdout = try Self.temporaryFile()
        stderr = try Self.temporaryFile()

        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
        posix_spawn_file_actions_adddup2(&actions, stdout, 1)
        posix_spawn_file_actions_adddup2(&actions, stderr, 2)

        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var signals = sigset_t()
        sigemptyset(&signals)
        posix_spawnattr_setsigmask(&attributes, &signals)
        sigfillset(&signals)
        posix_spawnattr_setsigdefault(&attributes, &signals)
        let setsid: Int32 = 0x80
        posix_spawnattr_setflags(
            &attributes, Int16(setsid | Int32(POSIX_SPAWN_SETSIGMASK) | Int32(POSIX_SPAWN_SETSIGDEF)))

        let words = arguments.map { strdup($0) } + [nil]
        let variables = environment.map { strdup("\($0.key)=\($0.value)") } + [nil]
        defer { (words + variables).forEach { free($0) } }
        var pid: pid_t = 0
        let code = posix_spawnp(&pid, program, &actions, &attributes, words, variables)
        self.pid = pid
        guard code == 0 else { throw RunnerError(description: "\(program): \(String(cString: strerror(code)))") }
        DispatchQueue.global().asyncAfter(deadline: .now() + seconds) { [weak self] in self?.kill() }
    }

    deinit {
        close(stdout)
        close(stderr)
    }

    /// Kills the process and its children, unless it has ended.
    func kill(_ signal: Int32 = SIGKILL) {
        isReaped.withLock { isReaped in if !isReaped { _ = Glibc.kill(-pid, signal) } }
    }

    var hasEnded: Bool {
        var info = siginfo_t()
        return waitid(P_PID, id_t(pid), &info, WEXITED | WNOWAIT | WNOHANG) != 0 || info.si_signo != 0
    }

    /// Waits for the end.
    func wait() -> Output {
        var info = siginfo_t()
        while waitid(P_PID, id_t(pid), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR {}
        var status: Int32 = 0
        isReaped.withLock { isReaped in
            // Its children that it has not waited for go too.
            _ = Glibc.kill(-pid, SIGKILL)
            while waitpid(pid, &status, 0) < 0 && errno == EINTR {}
            isReaped = true
        }
        let signal = status & 0x7f
        return Output(
            status: signal == 0 ? (status >> 8) & 0xff : nil, signal: signal == 0 ? nil : signal,
            stdoutBytes: Self.contents(stdout), stderrBytes: Self.contents(stderr))
    }

    private static func temporaryFile() throws -> Int32 {
        var template = Array("/tmp/certprov-e2e-output-XXXXXX".utf8CString)
        let descriptor = mkstemp(&template)
        guard descriptor >= 0 else { throw RunnerError(description: "mkstemp: \(errno)") }
        unlink(template)
        _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
        return descriptor
    }

    private static func contents(_ descriptor: Int32) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: max(0, Int(lseek(descriptor, 0, SEEK_END))))
        let count = pread(descriptor, &bytes, bytes.count, 0)
        return Array(bytes.prefix(max(0, count)))
    }
}

/// The command that was built together with these tests.
enum BuiltCommand {
    /// Whether tokens and enrolment of the command are plugins (`make test-plugged`).
    static let isPlugged = ProcessInfo.processInfo.environment["CERTPROV_TEST_PLUGGED"] != nil
    static let path = program("certprov")

    /// The path of a program that is built beside the tests, or in the directory that the environment names.
    static func program(_ name: String) -> String {
        if let directory = ProcessInfo.processInfo.environment["CERTPROV_TEST_PROGRAMS"] {
            return "\(directory)/\(name)"
        }
        let own =
            (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? CommandLine.arguments[0]
        return URL(filePath: own).deletingLastPathComponent().appending(path: name).path
    }
}
