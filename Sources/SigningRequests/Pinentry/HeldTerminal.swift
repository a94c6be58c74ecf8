import CLinux
import FoundationEssentials
import Glibc

/// A terminal during a question of another program: that program may be killed, and leave it without echo.
final class HeldTerminal {
    private let descriptor: Int32
    private var settings = termios()

    /// Prepares the terminal. `nil` for one that cannot be used.
    ///
    /// The key that suspends has no effect during the question: this process would stop, and the program go on reading what the
    /// shell should get.
    ///
    /// - Parameter waitsForForeground: Whether this process stops here while it is in the background, so that it asks after `fg`.
    init?(_ name: String, waitsForForeground: Bool) {
        descriptor = open(name, O_RDWR | O_CLOEXEC | O_NOCTTY)
        guard descriptor >= 0 else { return nil }
        let group = tcgetpgrp(descriptor)
        let isInBackground = group >= 0 && group != getpgrp()
        guard waitsForForeground || !isInBackground, tcgetattr(descriptor, &settings) == 0 else {
            close(descriptor)
            return nil
        }
        // Stops here (SIGTTOU), and what the shell has set by then counts.
        tcsetattr(descriptor, TCSANOW, &settings)
        tcgetattr(descriptor, &settings)
        var changed = settings
        withUnsafeMutableBytes(of: &changed.c_cc) { $0[Int(VSUSP)] = 0 }
        tcsetattr(descriptor, TCSANOW, &changed)
    }

    deinit { close(descriptor) }

    /// Drops typed characters that were not read: they were for another program.
    func dropInput() { tcflush(descriptor, TCIFLUSH) }

    /// Puts the terminal back.
    ///
    /// - Parameter droppingInput: Drops typed characters that were not read: the half of a secret must not go to the shell.
    func restore(droppingInput: Bool) {
        if droppingInput { dropInput() }
        tcsetattr(descriptor, TCSANOW, &settings)
    }

    /// The name of the terminal to ask at: the controlling one, else `other`; `nil` without one.
    static func name(_ other: String?) -> String? {
        if let name = controllingName { return name }
        return other.flatMap { $0.hasPrefix("/") ? $0 : nil }
    }

    /// The controlling terminal has no name but `/dev/tty`, which another session cannot open: its device does.
    private static var controllingName: String? {
        let terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY)
        guard terminal >= 0 else { return nil }
        close(terminal)
        // The name of the program, in parentheses, may contain anything.
        let status = try? String(contentsOfFile: "/proc/self/stat", encoding: .utf8)
        let fields = status?.split(separator: ")", omittingEmptySubsequences: false).last?.split(separator: " ") ?? []
        let number = fields.count > 4 ? UInt32(fields[4]) : nil
        if let number, case let major = number >> 8 & 0xfff, (136...143).contains(major) {
            // Of devpts: the numbers of Linux (Documentation/admin-guide/devices.txt).
            let name = "/dev/pts/\((major - 136) << 8 | number & 0xff | number >> 12 & 0xfff00)"
            if access(name, R_OK | W_OK) == 0 { return name }
        }
        // A console, a serial line, or without /proc.
        for stream in [STDIN_FILENO, STDERR_FILENO, STDOUT_FILENO] {
            var status = stat()
            var name = [CChar](repeating: 0, count: 256)
            guard fstat(stream, &status) == 0, status.st_mode & S_IFMT == S_IFCHR,
                number.map({ status.st_rdev == dev_t($0) }) ?? true, ttyname_r(stream, &name, name.count) == 0
            else { continue }
            return String(decoding: name.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
        }
        return nil
    }

    /// Whether a name is that of a terminal which this process can open.
    static func isTerminal(_ name: String) -> Bool {
        let terminal = open(name, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)
        defer { if terminal >= 0 { close(terminal) } }
        return terminal >= 0 && isatty(terminal) == 1
    }
}
