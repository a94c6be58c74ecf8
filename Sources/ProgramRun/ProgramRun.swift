import CLinux
import CertificateProviding
import Glibc

/// A program that is run and waited for: without a shell, and with no environment variables but those that systemctl needs. One of
/// this user's session has the variables of this process, too.
public struct ProgramRun: Sendable, Equatable {
    /// The last part of the output that is shown.
    private static let shown = 600

    /// The path of the program and its arguments.
    package let arguments: [String]
    /// How long it may run.
    package let time: Duration
    /// Whether it belongs to the session of this process, and outlives the wait for it.
    private let isOfSession: Bool

    /// Why a program did not succeed.
    public struct Failure: Error, Sendable {
        /// Continues a sentence that begins with the program, such as `failed with status 1: no such zone`. Has the end of its output.
        public let reason: String
        /// Whether it took too long, and was killed with all of its process group.
        public let isTimeout: Bool
    }

    /// Creates a run. Starts nothing.
    ///
    /// - Parameters:
    ///   - arguments: The path of the program, and its arguments. Not empty, and not secret: other users can see them.
    ///   - time: How long it may run. It is then killed with all of its process group.
    public init(_ arguments: [String], atMost time: Duration) {
        (self.arguments, self.time, isOfSession) = (arguments, time, false)
    }

    /// Creates a run of a program of this user's session, which is found in PATH: with the variables of this process, and its output on
    /// standard error. One that still runs after a while has not failed, and is left alone.
    package init(ofSession arguments: [String], waitingFor time: Duration) {
        (self.arguments, self.time, isOfSession) = (arguments, time, true)
    }

    /// Runs the program, and waits for its end. Blocks.
    ///
    /// - Throws: ``Failure`` if it cannot be started, fails, or takes too long.
    public func run() throws(Failure) { try run(certprov_process) }

    /// - Parameter watch: Returns what becomes readable when the process ends; negative where the kernel has nothing like that.
    func run(_ watch: (pid_t) -> Int32) throws(Failure) {
        func failed(_ reason: String, isTimeout: Bool = false) -> Failure {
            Failure(reason: reason, isTimeout: isTimeout)
        }
        guard let program = arguments.first else { throw failed("has no name") }
        var pipe: [Int32] = [-1, -1]
        guard isOfSession || certprov_pipe(&pipe) == 0 else {
            throw failed("cannot be started: \(errorText(errno))")
        }
        defer { if !isOfSession { close(pipe[0]) } }
        let started = spawn(output: isOfSession ? STDERR_FILENO : pipe[1])
        if !isOfSession { close(pipe[1]) }
        let pid: pid_t
        switch started {
        case .success(let started): pid = started
        case .failure(let error):
            throw failed(
                "cannot be started: \(errorText(error.code)); check \(program.withVisibleControls)")
        }
        let output = Output(pipe[0])
        let process = watch(pid)
        defer { if process >= 0 { close(process) } }
        guard let status = wait(for: pid, process, reading: output) else {
            if isOfSession { return }
            throw failed("did not end within \(time.components.seconds) seconds, and was killed", isTimeout: true)
        }
        guard status != 0 else { return }
        let end =
            status & 0x7f == 0 ? "failed with status \(status >> 8 & 0xff)" : "was ended by signal \(status & 0x7f)"
        throw failed(end + output.text)
    }

    private struct SystemError: Error { let code: Int32 }

    private func spawn(output: Int32) -> Result<pid_t, SystemError> {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
        posix_spawn_file_actions_adddup2(&actions, output, 1)
        posix_spawn_file_actions_adddup2(&actions, output, 2)
        // Such as that of a secret (fd:N), which this program was started with.
        certprov_close_from(&actions, 3)
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        // Threads of this process may hold signals back, and the command ignores some. A group of its own can be killed.
        var (none, all) = (sigset_t(), sigset_t())
        sigemptyset(&none)
        sigfillset(&all)
        posix_spawnattr_setsigmask(&attributes, &none)
        posix_spawnattr_setsigdefault(&attributes, &all)
        posix_spawnattr_setpgroup(&attributes, 0)
        // POSIX_SPAWN_SETSID, which Swift does not see: the terminal's signals are not for an application.
        let group = isOfSession ? 0x80 : POSIX_SPAWN_SETPGROUP
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | group))
        var words: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) } + [nil]
        // Other variables may be secrets: certprov takes PINs from them.
        var variables = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
        for name in ["LANG", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"] {
            if let value = getenv(name) { variables.append("\(name)=\(String(cString: value))") }
        }
        var pairs: [UnsafeMutablePointer<CChar>?] = variables.map { strdup($0) } + [nil]
        defer { for text in words + pairs { free(text) } }
        var pid: pid_t = 0
        let status =
            isOfSession
            ? posix_spawnp(&pid, arguments[0], &actions, &attributes, &words, environ)
            : posix_spawn(&pid, arguments[0], &actions, &attributes, &words, &pairs)
        return status == 0 ? .success(pid) : .failure(SystemError(code: status))
    }

    /// How often a process is looked at that cannot be watched.
    private static let look = Duration.milliseconds(50)
    /// How long a process may take to end that was killed: it may hang in the kernel.
    private static let dying = Duration.seconds(5)

    /// Returns the status of the process, as waitpid(2) gives it; `nil` if it took too long, and unless it is of the session was killed.
    ///
    /// - Parameter process: Becomes readable when the process ends; negative where the kernel has no such descriptor.
    private func wait(for pid: pid_t, _ process: Int32, reading output: Output) -> Int32? {
        var status: Int32 = 0
        func hasEnded(by end: ContinuousClock.Instant) -> Bool {
            while true {
                let ended = waitpid(pid, &status, WNOHANG)
                if ended == pid || ended < 0 && errno != EINTR { return true }
                let left = end - .now
                guard left > .zero else { return false }
                let pause = (process < 0 ? min(left, Self.look) : left) / .milliseconds(1)
                var waiting = [
                    pollfd(fd: process, events: Int16(POLLIN), revents: 0),
                    pollfd(fd: output.isOpen ? output.descriptor : -1, events: Int16(POLLIN), revents: 0),
                ]
                guard poll(&waiting, 2, Int32(clamping: Int(pause.rounded(.up)))) > 0 else { continue }
                // A program that fills a pipe waits until it is read.
                if waiting[1].revents != 0 { output.read() }
            }
        }
        let isOver = hasEnded(by: .now + time)
        if !isOver, !isOfSession {
            // It may have left its group.
            for target in [-pid, pid] { kill(target, SIGKILL) }
            _ = hasEnded(by: .now + Self.dying)
        }
        // The last words of the program: what a pipe holds. Programs that it has started may go on writing.
        var rest = pollfd(fd: output.descriptor, events: Int16(POLLIN), revents: 0)
        for _ in 0..<16 { guard output.isOpen, poll(&rest, 1, 0) > 0, output.read() else { break } }
        return isOver ? status : nil
    }

    /// The end of what a program writes.
    private final class Output {
        let descriptor: Int32
        private(set) var isOpen: Bool
        private var bytes: [UInt8] = []

        init(_ descriptor: Int32) { (self.descriptor, isOpen) = (descriptor, descriptor >= 0) }

        /// Reads the bytes that have come. Returns false at the end.
        @discardableResult func read() -> Bool {
            var buffer = [UInt8](repeating: 0, count: 4096)
            let count = Glibc.read(descriptor, &buffer, buffer.count)
            guard count > 0 else {
                isOpen = false
                return false
            }
            bytes = (bytes + buffer.prefix(count)).suffix(ProgramRun.shown)
            return true
        }

        /// A clause for a message, which ends the sentence; empty without an output.
        var text: String {
            // The first character may be cut off.
            let text = bytes.drop { $0 & 0xc0 == 0x80 }
            let lines = String(decoding: text, as: UTF8.self).split(separator: "\n").joined(separator: " | ")
            let clause = lines.hasSuffix(".") ? String(lines.dropLast()) : lines
            return clause.isEmpty ? "" : ": \(clause.withVisibleControls)"
        }
    }
}
