import CLinux
public import CertificateProviding
import Foundation
public import Glibc
import Synchronization

/// The end and the output of a process.
public struct Output: Sendable, CustomStringConvertible {
    /// `nil` when a signal ended it.
    public var status: Int32?
    public var signal: Int32?
    public var stdoutBytes: [UInt8]
    public var stderrBytes: [UInt8]

    public init(status: Int32?, signal: Int32? = nil, stdoutBytes: [UInt8], stderrBytes: [UInt8]) {
        (self.status, self.signal) = (status, signal)
        (self.stdoutBytes, self.stderrBytes) = (stdoutBytes, stderrBytes)
    }

    public var stdout: String { String(decoding: stdoutBytes, as: UTF8.self) }
    public var stderr: String { String(decoding: stderrBytes, as: UTF8.self) }

    public var description: String {
        "\(status.map { "status \($0)" } ?? "signal \(signal ?? 0)")\nstdout: \(stdout)\nstderr: \(stderr)"
    }
}

/// A program that a test has started. It gets SIGTERM when this object goes, SIGKILL when that does not help, and is
/// always reaped.
///
/// Foundation's `Process` lists `/proc/self/fd` before it starts anything, and copies more of an entry than there is:
/// it crashes now and then where many descriptors are open.
public final class Subprocess: Sendable {
    public struct Failure: Error, CustomStringConvertible {
        public var description: String
        public init(description: String) { self.description = description }
    }

    /// The other ends of a program's standard streams.
    public enum Streams: Sendable {
        /// Standard input stays open, and silent, for as long as this object lives; ``readLine()`` reads standard
        /// output.
        case held
        /// As `held`, with standard error in standard output.
        case merged
        /// Nameless files, which cannot fill up: ``output()`` has what they contain.
        case captured(input: [UInt8] = [])
    }

    private struct State {
        var input: Int32 = -1
        /// The end of a socket, or files.
        var output: Int32 = -1
        var errors: Int32 = -1
        /// Of `waitpid`.
        var end: Int32?
    }
    public let pid: pid_t
    private let isAlone: Bool
    private let deadline: ContinuousClock.Instant?
    private let state: Mutex<State>

    /// - Parameters:
    ///   - arguments: The program, by its path or a name that is found in `PATH`, and what it is given. Variables as
    ///     `NAME=value` may stand before it where there is a directory.
    ///   - environment: All its variables: the program has a session of its own, without a controlling terminal, and is
    ///     killed with its children. `nil`: those of ours that are the tests' own.
    ///   - seconds: After this time it is killed, if a test waits for it.
    public init(
        _ arguments: [String], environment: [String: String]? = nil, in directory: String? = "/",
        _ streams: Streams = .held, seconds: Double? = nil
    ) throws {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        var (state, childs) = (State(), [Int32]())
        switch streams {
        case .captured(let input):
            childs = [try Self.temporaryFile(input)]
            (state.output, state.errors) = (try Self.temporaryFile(), try Self.temporaryFile())
            for (number, file) in [childs[0], state.output, state.errors].enumerated() {
                posix_spawn_file_actions_adddup2(&actions, file, Int32(number))
            }
        case .held, .merged:
            // Not pipes, since Swift does not see pipe2: no other child may inherit an end and keep it open.
            let kind = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
            var (input, output): ([Int32], [Int32]) = ([-1, -1], [-1, -1])
            guard socketpair(AF_UNIX, kind, 0, &input) == 0, socketpair(AF_UNIX, kind, 0, &output) == 0 else {
                throw Failure(description: String(cString: strerror(errno)))
            }
            (childs, state.input, state.output) = ([input[0], output[1]], input[1], output[0])
            posix_spawn_file_actions_adddup2(&actions, input[0], 0)
            posix_spawn_file_actions_adddup2(&actions, output[1], 1)
            if case .merged = streams { posix_spawn_file_actions_adddup2(&actions, output[1], 2) }
        }
        defer { for descriptor in childs { close(descriptor) } }
        // SwiftNIO's sockets are inherited: one that another test closes would stay open for as long as this program runs.
        certprov_close_from(&actions, 3)
        // Threads of ours may hold signals back, and a child would for good.
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var signals = sigset_t()
        sigemptyset(&signals)
        posix_spawnattr_setsigmask(&attributes, &signals)
        sigfillset(&signals)
        posix_spawnattr_setsigdefault(&attributes, &signals)
        // Swift sees neither POSIX_SPAWN_SETSID nor posix_spawn_file_actions_addchdir_np.
        let setsid: Int32 = environment == nil ? 0 : 0x80
        posix_spawnattr_setflags(
            &attributes, Int16(setsid | Int32(POSIX_SPAWN_SETSIGMASK) | Int32(POSIX_SPAWN_SETSIGDEF)))
        let words = ((directory.map { ["env", "-C", $0] } ?? []) + arguments).map { strdup($0) } + [nil]
        let variables = (environment ?? Self.environment).map { strdup("\($0.key)=\($0.value)") } + [nil]
        defer { (words + variables).forEach { free($0) } }
        var pid: pid_t = 0
        let program = directory == nil ? arguments[0] : "env"
        let status = posix_spawnp(&pid, program, &actions, &attributes, words, variables)
        (self.pid, isAlone, deadline) = (pid, environment != nil, seconds.map { .now + .seconds($0) })
        if status != 0 { state.end = status << 8 }
        self.state = Mutex(state)
        guard status == 0 else { throw Failure(description: "\(arguments[0]): \(String(cString: strerror(status)))") }
    }

    /// Without what a host or its user sets for programs, such as a proxy, a language and a directory of settings.
    public static var environment: [String: String] {
        let own = ProcessInfo.processInfo.environment.filter { name, _ in ownVariables.contains { name.hasPrefix($0) } }
        return own.merging(["HOME": "/dev/null", "LC_ALL": "C.UTF-8"]) { $1 }
    }

    /// Beginnings of names: of the tests' switches, of what tests set for a module in this process, and of what the loader and a
    /// sanitizer read.
    private static let ownVariables = [
        "PATH", "CERTPROV_TEST_", "CERTPROV_FUZZ_", "FAULTY_MODULE_", "P11_KIT_SERVER_", "SOFTHSM2_", "TPM2_",
        "TSS2_", "LD_", "ASAN_", "TSAN_", "LLVM_PROFILE_", "SWIFT_", "SWT_",
    ]

    deinit {
        stop()
        state.withLock { state in
            for descriptor in [state.input, state.output, state.errors] where descriptor >= 0 { close(descriptor) }
        }
    }

    /// The next line of standard output without its end, or `nil` at its end and after ten minutes of silence.
    public func readLine() -> String? {
        let descriptor = state.withLock { $0.output }
        var line: [UInt8] = []
        while true {
            var waiting = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            guard poll(&waiting, 1, 600_000) > 0 else { return nil }
            var byte: UInt8 = 0
            guard recv(descriptor, &byte, 1, 0) == 1 else { return nil }
            if byte == 0x0a { return String(decoding: line, as: UTF8.self) }
            line.append(byte)
        }
    }

    /// As ``readLine()``, on a thread of its own: what blocks one of the pool's threads must not wait for a task.
    public func nextLine() async -> String? {
        await withCheckedContinuation { continuation in
            Thread.detachNewThread { continuation.resume(returning: self.readLine()) }
        }
    }

    /// Writes a line to standard input. Returns whether the program still reads.
    public func writeLine(_ line: String) -> Bool {
        let bytes = Array("\(line)\n".utf8)
        return Glibc.send(state.withLock(\.input), bytes, bytes.count, Int32(MSG_NOSIGNAL)) == bytes.count
    }

    public func closeInput() {
        state.withLock { state in
            close(state.input)
            state.input = -1
        }
    }

    /// Sends a signal to the program, where it still runs.
    public func send(_ signal: Int32) { state.withLock { if $0.end == nil { Glibc.kill(pid, signal) } } }

    /// Sends a signal to the program and, if it has a session of its own, to its children.
    public func kill(_ signal: Int32 = SIGKILL) {
        state.withLock { if $0.end == nil { Glibc.kill(isAlone ? -pid : pid, signal) } }
    }

    /// Whether it has ended. Kills it when its time is over.
    public var hasEnded: Bool {
        if let deadline, ContinuousClock.now >= deadline { kill() }
        return state.withLock { state in
            guard state.end == nil else { return true }
            var info = siginfo_t()
            guard waitid(P_PID, id_t(pid), &info, WEXITED | WNOWAIT | WNOHANG) != 0 || info.si_signo != 0 else {
                return false
            }
            // The id is its own until it is reaped. Its children that are left go too.
            if isAlone { Glibc.kill(-pid, SIGKILL) }
            var end: Int32 = 0
            while waitpid(pid, &end, 0) < 0 && errno == EINTR {}
            state.end = end
            return true
        }
    }

    /// Waits for the end: the exit status, or a signal's number below zero; `nil` when it has not ended in time.
    public func wait(seconds: Double) -> Int32? {
        let end = ContinuousClock.now + .seconds(seconds)
        while !hasEnded {
            if ContinuousClock.now >= end { return nil }
            usleep(1000)
        }
        return state.withLock(\.end).map { $0 & 0x7f == 0 ? ($0 >> 8) & 0xff : -($0 & 0x7f) }
    }

    /// Waits for the end of a program with captured streams.
    @discardableResult
    public func wait() -> Output {
        while !hasEnded { usleep(1000) }
        return state.withLock { state in
            let (end, signal) = (state.end ?? 0, (state.end ?? 0) & 0x7f)
            return Output(
                status: signal == 0 ? (end >> 8) & 0xff : nil, signal: signal == 0 ? nil : signal,
                stdoutBytes: Self.contents(state.output), stderrBytes: Self.contents(state.errors))
        }
    }

    /// Ends the program, and waits for that.
    public func stop() {
        for signal in [SIGTERM, SIGKILL] {
            kill(signal)
            if wait(seconds: 10) != nil { return }
        }
    }

    private static func temporaryFile(_ content: [UInt8] = []) throws -> Int32 {
        var template = Array("/tmp/certprov-output-XXXXXX".utf8CString)
        let descriptor = mkstemp(&template)
        guard descriptor >= 0 else { throw Failure(description: "mkstemp: \(errno)") }
        unlink(template)
        _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
        guard pwrite(descriptor, content, content.count, 0) == content.count else {
            throw Failure(description: "pwrite: \(errno)")
        }
        return descriptor
    }

    private static func contents(_ descriptor: Int32) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: max(0, Int(lseek(descriptor, 0, SEEK_END))))
        let count = pread(descriptor, &bytes, bytes.count, 0)
        return Array(bytes.prefix(max(0, count)))
    }
}

/// Figures from `/proc`.
extension Subprocess {
    /// The processes that it has started and that have not ended.
    public var children: [pid_t] {
        let tasks = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/\(pid)/task")) ?? []
        return tasks.flatMap { task in
            let list = try? String(contentsOfFile: "/proc/\(pid)/task/\(task)/children", encoding: .utf8)
            return (list ?? "").split(separator: " ").compactMap { pid_t($0) }
        }
    }

    /// The most memory that it has had so far, in KiB; `nil` when it has ended.
    public var peakMemory: Int? {
        let status = try? String(contentsOfFile: "/proc/\(pid)/status", encoding: .utf8)
        let line = status?.split(separator: "\n").first { $0.hasPrefix("VmHWM:") }
        return line?.split(whereSeparator: \.isWhitespace).dropFirst().first.flatMap { Int($0) }
    }
}

extension Subprocess {
    /// Runs `arguments` to their end and returns what they wrote to standard output.
    /// - Throws: When it fails, with what it wrote.
    @discardableResult
    public static func run(
        _ arguments: [String], input: [UInt8] = [], in directory: String = "/", seconds: Double = 600
    ) throws -> [UInt8] {
        let output = try Subprocess(arguments, in: directory, .captured(input: input), seconds: seconds).wait()
        guard output.status == 0 else {
            throw Failure(description: "\(arguments.joined(separator: " ")) failed within \(seconds) s: \(output)")
        }
        return output.stdoutBytes
    }

    /// Runs tests of this bundle again in a process of their own, and sees to it that they were run: one that is
    /// skipped there would pass for one that has passed.
    ///
    /// - Parameters:
    ///   - variables: `NAME=value`, by which the tests know that they are within.
    ///   - program: What starts them, such as `unshare` and its options.
    public static func runTests(
        _ names: [String], of suite: String, with variables: [String], through program: [String] = [],
        on threads: BlockingExecutor = .threads(maximum: 1)
    ) async throws {
        let command = program + ["sh", "-c", "exec \"$@\" 2>&1", "sh", URL(filePath: CommandLine.arguments[0]).path]
        let arguments = variables + command + ["--testing-library", "swift-testing", "--filter", suite]
        let output = try await threads.run { () throws(ProviderError) in
            do { return try run(arguments, seconds: TestLength.current == .soak ? 3600 : 900) } catch {
                throw ProviderError(.internal, "\(error)")
            }
        }
        let lines = String(decoding: output, as: UTF8.self).split(separator: "\n")
        for name in names
        where !lines.contains(where: { $0.contains("Test \(name)(") && $0.contains(" passed after ") }) {
            throw Failure(description: "\(name) was not run: \(lines.joined(separator: "\n"))")
        }
    }

    public static func openssl(_ arguments: String..., in directory: String) throws {
        try run(["openssl"] + arguments, in: directory)
    }
}
