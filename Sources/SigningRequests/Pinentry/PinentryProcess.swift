import CLinux
import CertificateProviding
import Glibc
import IdentityStore

/// A running pinentry: its pipes, its end, and the terminal as it was before.
///
/// All calls are on the thread that has started it. The kernel ends the program with that thread, also where this process is killed.
final class PinentryProcess {
    /// The reason why no answer counts.
    enum Failure: Error {
        /// A clause about the program, such as `has ended without an answer`.
        case broken(String)
        case timedOut
        case cancelled
    }

    /// How long a program may take to end by itself, and again after SIGTERM, in milliseconds.
    private static let endTime: Int32 = 1000

    private let pid: pid_t
    /// Readable when the process ends; -1 where the kernel has none.
    private let process: Int32
    private let input: Int32
    private let output: Int32
    private let cancellation: Int32
    private let reader = PinentryReader()
    private let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 1024, alignment: 1)
    private let terminal: HeldTerminal?

    /// Starts the program, without arguments.
    ///
    /// - Parameters:
    ///   - environment: Of these variables the program gets those that such programs use.
    ///   - terminal: Where it may ask. It is put back as it was at the end.
    ///   - waitsForForeground: Whether this process stops here while it is in the background of that terminal.
    ///   - cancellation: A descriptor that is readable when no answer is wanted any more.
    init(
        _ program: String, _ environment: [String: String], terminal: String?, waitsForForeground: Bool,
        cancellation: Int32
    ) throws(Failure) {
        func failure(_ code: Int32) -> Failure {
            .broken(
                "cannot be started: "
                    + (code == ENOEXEC ? "it is neither a program nor a script with #!" : errorText(code)))
        }
        var ends: [[Int32]] = []
        func pipe() -> [Int32] {
            var pipe: [Int32] = [-1, -1]
            if certprov_pipe(&pipe) == 0 { pipe = pipe.map(certprov_move_up) }
            ends.append(pipe)
            return pipe
        }
        let (toProgram, fromProgram) = (pipe(), pipe())
        let errors = certprov_move_up(open("/dev/null", O_WRONLY | O_CLOEXEC))
        func closeAll() { for descriptor in ends.joined() where descriptor >= 0 { close(descriptor) } }
        guard errors >= 0, ends.joined().allSatisfy({ $0 >= 0 }), certprov_set_nonblocking(toProgram[1]) == 0 else {
            let code = errno
            closeAll()
            if errors >= 0 { close(errors) }
            throw failure(code)
        }
        self.terminal = terminal.flatMap { HeldTerminal($0, waitsForForeground: waitsForForeground) }
        var words = [strdup(program), nil]
        var variables = Self.variables(environment).map { strdup($0) } + [nil]
        defer { for text in words + variables { free(text) } }
        var pid: pid_t = -1
        let code = certprov_spawn_bound(program, &words, &variables, [toProgram[0], fromProgram[1], errors], &pid)
        close(errors)
        guard code == 0 else {
            closeAll()
            self.terminal?.restore(droppingInput: false)
            throw failure(code)
        }
        close(toProgram[0])
        close(fromProgram[1])
        (input, output, self.pid, self.cancellation) = (toProgram[1], fromProgram[0], pid, cancellation)
        process = certprov_process(pid)
    }

    deinit {
        for descriptor in [input, output, process] where descriptor >= 0 { close(descriptor) }
        if let base = buffer.baseAddress { explicit_bzero(base, buffer.count) }
        buffer.deallocate()
    }

    /// The variables that such programs use. Others may be secrets: certprov takes PINs from them.
    private static func variables(_ environment: [String: String]) -> [String] {
        let names: Set = [
            "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TERM", "COLORTERM", "TERMINFO", "LANG", "LANGUAGE",
            "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XMODIFIERS", "DBUS_SESSION_BUS_ADDRESS", "DESKTOP_SESSION",
            "GPG_TTY", "PINENTRY_USER_DATA", "NO_AT_BRIDGE",
        ]
        let prefixes = ["LC_", "XDG_", "GTK_", "GDK_", "QT_", "KDE_", "GNOME_"]
        return environment.filter { name, _ in
            names.contains(name) || prefixes.contains(where: name.hasPrefix)
        }.map { "\($0.key)=\($0.value)" }
    }

    /// Waits for the greeting.
    func greeting(until end: ContinuousClock.Instant?) throws(Failure) -> PinentryAnswer { try answer(until: end) }

    /// Sends a command, and waits for the answer to it.
    ///
    /// - Parameter line: One line, without its end.
    func command(_ line: String, until end: ContinuousClock.Instant?) throws(Failure) -> PinentryAnswer {
        var early = pollfd(fd: output, events: Int16(POLLIN), revents: 0)
        // Its end is noticed at the answer.
        if poll(&early, 1, 0) == 1, early.revents & Int16(POLLIN) != 0 {
            throw .broken("answers before it is asked")
        }
        let bytes = Array((line + "\n").utf8)
        guard certprov_write(input, bytes, bytes.count) == bytes.count else {
            throw .broken(errno == EPIPE ? "has ended without an answer" : "does not read what it is asked")
        }
        return try answer(until: end)
    }

    /// Drops characters that were typed at the terminal before the question.
    func dropInput() { terminal?.dropInput() }

    private func answer(until end: ContinuousClock.Instant?) throws(Failure) -> PinentryAnswer {
        defer { if let base = buffer.baseAddress { explicit_bzero(base, buffer.count) } }
        while true {
            var waiting = [cancellation, output].map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
            let left = end.map { max(.zero, $0 - .now) / .milliseconds(1) }
            let ready = poll(&waiting, 2, left.map { Int32(min($0.rounded(.up), 60_000)) } ?? -1)
            if waiting[0].revents != 0 { throw .cancelled }
            if let end, ContinuousClock.now >= end { throw .timedOut }
            guard ready > 0 else {
                // An error that does not go away must not spin.
                if ready < 0, errno != EINTR { throw .broken("cannot be waited for: \(errorText(errno))") }
                continue
            }
            let count = read(output, buffer.baseAddress, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw .broken("has ended without an answer") }
            let answer: PinentryAnswer?
            do throws(PinentryReader.Malformed) {
                answer = try reader.read(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
            } catch { throw .broken("cannot be used: \(error.reason)") }
            if let answer { return answer }
        }
    }

    /// Ends the program and all of its group, and puts the terminal back. The last call.
    ///
    /// - Parameter isFinished: Whether it has answered, and ends when it is told to.
    func end(isFinished: Bool) {
        if isFinished { _ = certprov_write(input, "BYE\n", 4) }
        if !isFinished || !hasEnded() {
            // A program that draws on a terminal puts it back then.
            kill(-pid, SIGTERM)
            _ = hasEnded()
        }
        // Its number is its own until it is reaped: also what it has started goes.
        kill(-pid, SIGKILL)
        while waitpid(pid, nil, 0) < 0 && errno == EINTR {}
        terminal?.restore(droppingInput: !isFinished)
    }

    private func hasEnded() -> Bool {
        let end = ContinuousClock.now + .milliseconds(Int64(Self.endTime))
        var waiting = pollfd(fd: process, events: Int16(POLLIN), revents: 0)
        guard process >= 0 else { return false }
        while true {
            let left = Int32(clamping: Int64(max(.zero, end - .now) / .milliseconds(1)))
            let ready = poll(&waiting, 1, left)
            if ready > 0 { return true }
            if ready == 0 || errno != EINTR { return false }
        }
    }
}
