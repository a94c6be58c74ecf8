import Foundation
public import Glibc
import Synchronization

/// A program that a test has started. It gets SIGTERM when this object goes, SIGKILL when that does not help, and is
/// always reaped.
///
/// Foundation's `Process` lists `/proc/self/fd` before it starts anything, and copies more of an entry than there is:
/// it crashes now and then where many descriptors are open.
public final class SpawnedProcess: Sendable {
    /// The ends of a program's standard streams.
    public enum Streams {
        /// Standard input stays open, and silent, for as long as this object lives; ``readLine()`` reads standard
        /// output.
        case held
        /// Paths of files that exist.
        case files(input: String, output: String, errors: String)
    }

    private let pid: pid_t
    private struct Held {
        var input: Int32 = -1
        var output: Int32 = -1
        var status: Int32?
    }
    private let held = Mutex(Held())

    /// - Parameter arguments: The program, by its path or a name that is found in `PATH`, and what it is given.
    ///   Variables as `NAME=value` may stand before it.
    public init(_ arguments: [String], in directory: String = "/", _ streams: Streams = .held) throws {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        var (input, output): ([Int32], [Int32]) = ([-1, -1], [-1, -1])
        switch streams {
        case .files(let from, let to, let errors):
            posix_spawn_file_actions_addopen(&actions, 0, from, O_RDONLY, 0)
            posix_spawn_file_actions_addopen(&actions, 1, to, O_WRONLY, 0)
            posix_spawn_file_actions_addopen(&actions, 2, errors, O_WRONLY, 0)
        case .held:
            // Not pipes, since Swift does not see pipe2: no other child may inherit an end and keep it open.
            let kind = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
            guard socketpair(AF_UNIX, kind, 0, &input) == 0, socketpair(AF_UNIX, kind, 0, &output) == 0 else {
                throw Subprocess.Failure(description: String(cString: strerror(errno)))
            }
            posix_spawn_file_actions_adddup2(&actions, input[0], 0)
            posix_spawn_file_actions_adddup2(&actions, output[1], 1)
        }
        defer { for descriptor in [input[0], output[1]] where descriptor >= 0 { close(descriptor) } }
        // Threads of ours may hold signals back, and a child would for good.
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var signals = sigset_t()
        sigemptyset(&signals)
        posix_spawnattr_setsigmask(&attributes, &signals)
        sigfillset(&signals)
        posix_spawnattr_setsigdefault(&attributes, &signals)
        posix_spawnattr_setflags(&attributes, Int16(Int32(POSIX_SPAWN_SETSIGMASK) | Int32(POSIX_SPAWN_SETSIGDEF)))
        // Swift does not see posix_spawn_file_actions_addchdir_np either.
        let words = (["env", "-C", directory] + arguments).map { strdup($0) } + [nil]
        defer { words.forEach { free($0) } }
        var pid: pid_t = 0
        let status = posix_spawn(&pid, "/usr/bin/env", &actions, &attributes, words, environ)
        self.pid = pid
        held.withLock { ($0.input, $0.output) = (input[1], output[0]) }
        guard status == 0 else {
            held.withLock { $0.status = status }
            throw Subprocess.Failure(description: "\(arguments[0]): \(String(cString: strerror(status)))")
        }
    }

    deinit {
        stop()
        held.withLock { held in
            for descriptor in [held.input, held.output] where descriptor >= 0 { close(descriptor) }
        }
    }

    /// The next line of standard output without its end, or `nil` at its end and after ten minutes of silence.
    public func readLine() -> String? {
        let descriptor = held.withLock { $0.output }
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

    public func closeInput() {
        held.withLock { held in
            close(held.input)
            held.input = -1
        }
    }

    /// Waits for the end: the exit status, or a signal's number below zero; `nil` when it has not ended in time.
    public func wait(seconds: Double) -> Int32? {
        let end = ContinuousClock.now + .seconds(seconds)
        while true {
            let status: Int32? = held.withLock { held in
                var status: Int32 = 0
                if held.status == nil, waitpid(pid, &status, WNOHANG) == pid {
                    held.status = status & 0x7f == 0 ? (status >> 8) & 0xff : -(status & 0x7f)
                }
                return held.status
            }
            if status != nil || ContinuousClock.now >= end { return status }
            usleep(1000)
        }
    }

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

    /// The processor time that it has used so far, in seconds; `nil` when it has ended.
    public var processorTime: Double? {
        // The name, in parentheses, may contain anything.
        let status = try? String(contentsOfFile: "/proc/\(pid)/stat", encoding: .utf8).split(separator: ")").last
        let fields = status?.split(separator: " ") ?? []
        guard fields.count > 12, let user = Double(fields[11]), let system = Double(fields[12]) else { return nil }
        return (user + system) / Double(sysconf(Int32(_SC_CLK_TCK)))
    }

    /// Sends a signal to the program, where it still runs.
    public func send(_ signal: Int32) { held.withLock { if $0.status == nil { kill(pid, signal) } } }

    /// Ends the program, and waits for that.
    public func stop() {
        for signal in [SIGTERM, SIGKILL] {
            // While it is not reaped, the id is its own.
            held.withLock { if $0.status == nil { kill(pid, signal) } }
            if wait(seconds: 10) != nil { return }
        }
    }
}
