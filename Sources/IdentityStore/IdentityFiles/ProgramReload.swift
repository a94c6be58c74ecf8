package import CertificateProviding
import CLinux
import Glibc

/// How programs are told of new files: by systemd, or by a program of the administrator.
package struct ProgramReload: Sendable, Equatable {
    /// systemd gives a unit 90 seconds to reload by itself.
    private static let limit = Duration.seconds(120)
    /// The last part of the output that is shown.
    private static let shown = 600

    private let command: [String]
    /// Whether the directory is the last argument.
    private let takesDirectory: Bool
    private let time: Duration

    /// Reads the value of `Files.reload`; `nil` for one that is neither units nor a path.
    package init?(_ text: String) {
        if text.hasPrefix("/") {
            guard !text.contains(where: \.isWhitespace) else { return nil }
            self.init(command: [text], takesDirectory: true)
        } else {
            let units = text.split(whereSeparator: \.isWhitespace).map(String.init)
            guard !units.isEmpty, units.allSatisfy(Self.isUnit) else { return nil }
            // Those of a user are its own manager's. A unit that does not run reads the files when it starts.
            let manager = geteuid() == 0 ? [] : ["--user"]
            self.init(
                command: ["/usr/bin/systemctl"] + manager + ["try-reload-or-restart", "--"] + units,
                takesDirectory: false)
        }
    }

    init(command: [String], takesDirectory: Bool, time: Duration = limit) {
        (self.command, self.takesDirectory, self.time) = (command, takesDirectory, time)
    }

    /// The name of a unit (systemd.unit(5)).
    private static func isUnit(_ name: String) -> Bool {
        guard let dot = name.lastIndex(of: "."), dot > name.startIndex, name.utf8.count < 256 else { return false }
        return name.utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"):
                true
            default: ":-_.\\@".utf8.contains(byte)
            }
        } && ["service", "socket", "target"].contains(name[name.index(after: dot)...])
    }

    /// Runs the program without a shell, with no variables but those that systemctl needs, and waits for its end.
    ///
    /// - Throws: `unavailable` if it cannot be started or fails, with the end of its output; `timedOut`.
    package func run(_ directory: String) throws(CertificateProviderError) {
        let arguments = command + (takesDirectory ? [directory] : [])
        let name = command[0].withVisibleControls
        let next = "The files are there, and the next 'certprov renew' tells the programs again"
        func failed(_ reason: String, _ code: CertificateProviderError.Code = .unavailable) -> CertificateProviderError
        {
            CertificateProviderError(
                code, "'\(arguments.joined(separator: " ").withVisibleControls)' \(reason). \(next).")
        }
        var pipe: [Int32] = [-1, -1]
        guard certprov_pipe(&pipe) == 0 else { throw failed("cannot be started: \(errorText(errno))") }
        defer { close(pipe[0]) }
        let started = Self.spawn(arguments, output: pipe[1])
        close(pipe[1])
        let pid: pid_t
        switch started {
        case .success(let started): pid = started
        case .failure(let error): throw failed("cannot be started: \(errorText(error.code)); check \(name)")
        }
        let output = Output(pipe[0])
        guard let status = Self.wait(for: pid, reading: output, atMost: time) else {
            throw failed("did not end within \(time.components.seconds) seconds, and was killed", .timedOut)
        }
        guard status != 0 else { return }
        let end =
            status & 0x7f == 0 ? "failed with status \(status >> 8 & 0xff)" : "was ended by signal \(status & 0x7f)"
        throw failed(end + output.text)
    }

    private struct SystemError: Error { let code: Int32 }

    private static func spawn(_ arguments: [String], output: Int32) -> Result<pid_t, SystemError> {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
        posix_spawn_file_actions_adddup2(&actions, output, 1)
        posix_spawn_file_actions_adddup2(&actions, output, 2)
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
        posix_spawnattr_setflags(
            &attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP))
        var words: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) } + [nil]
        // Other variables may be secrets: certprov takes PINs from them.
        var variables = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
        for name in ["LANG", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"] {
            if let value = getenv(name) { variables.append("\(name)=\(String(cString: value))") }
        }
        var pairs: [UnsafeMutablePointer<CChar>?] = variables.map { strdup($0) } + [nil]
        defer { for text in words + pairs { free(text) } }
        var pid: pid_t = 0
        let status = posix_spawn(&pid, arguments[0], &actions, &attributes, &words, &pairs)
        return status == 0 ? .success(pid) : .failure(SystemError(code: status))
    }

    /// Returns the status of the process, as waitpid(2) gives it; `nil` if it took too long and was killed.
    private static func wait(for pid: pid_t, reading output: Output, atMost time: Duration) -> Int32? {
        let process = certprov_process(pid)
        defer { if process >= 0 { close(process) } }
        let end = ContinuousClock.now + time
        var isOver = process < 0
        while !isOver {
            let left = (end - .now) / .milliseconds(1)
            guard left > 0 else { break }
            var waiting = [
                pollfd(fd: process, events: Int16(POLLIN), revents: 0),
                pollfd(fd: output.isOpen ? output.descriptor : -1, events: Int16(POLLIN), revents: 0),
            ]
            guard poll(&waiting, 2, Int32(clamping: Int(left.rounded(.up)))) > 0 else { continue }
            if waiting[1].revents != 0 { output.read() }
            isOver = waiting[0].revents != 0
        }
        if !isOver { kill(-pid, SIGKILL) }
        var status: Int32 = 0
        while waitpid(pid, &status, 0) < 0 && errno == EINTR {}
        // The last words of the program.
        var rest = pollfd(fd: output.descriptor, events: Int16(POLLIN), revents: 0)
        while output.isOpen, poll(&rest, 1, 0) > 0, output.read() {}
        return isOver ? status : nil
    }

    /// The end of what a program writes.
    private final class Output {
        let descriptor: Int32
        private(set) var isOpen = true
        private var bytes: [UInt8] = []

        init(_ descriptor: Int32) { self.descriptor = descriptor }

        /// Reads the bytes that have come. Returns false at the end.
        @discardableResult func read() -> Bool {
            var buffer = [UInt8](repeating: 0, count: 4096)
            let count = Glibc.read(descriptor, &buffer, buffer.count)
            guard count > 0 else {
                isOpen = false
                return false
            }
            bytes = (bytes + buffer.prefix(count)).suffix(ProgramReload.shown)
            return true
        }

        /// A clause for a message; empty without an output.
        var text: String {
            let lines = String(decoding: bytes, as: UTF8.self).split(separator: "\n").joined(separator: " | ")
            return lines.isEmpty ? "" : ": \(lines.withVisibleControls)"
        }
    }
}
