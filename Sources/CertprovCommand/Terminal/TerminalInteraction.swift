public import CertificateProviding
import Glibc

/// Asks the person at the controlling terminal, whatever stdin and stdout are connected to.
public struct TerminalInteraction: UserInteraction {
    public init() {}

    /// Whether the process has a controlling terminal.
    public var canAsk: Bool {
        let terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY)
        guard terminal >= 0 else { return false }
        close(terminal)
        return true
    }

    public func requestSecret(_ prompt: String) async throws(CertificateProviderError) -> SecretBytes {
        try ask(prompt + ": ", hidden: true, orElse: "set another secret source")
    }

    public func confirm(_ question: String) async throws(CertificateProviderError) -> Bool {
        let answer = try ask(question + " [y/N] ", hidden: false, orElse: "use --yes")
        return ["y", "yes"].contains(answer.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }.lowercased())
    }

    /// Only where somebody watches: a script's log is for what went wrong.
    public func report(_ progress: String) {
        if Console.areNotesWatched { Console.note(progress) }
    }

    /// On one line, which is gone at the end.
    public func report(_ progress: String, remaining: Duration) {
        guard Console.areNotesWatched else { return }
        let (seconds, fraction) = remaining.components
        Console.rewriteNote(remaining > .zero ? "\(progress) (\(seconds + (fraction > 0 ? 1 : 0)) s)" : "")
    }

    /// Reads one line. Blocks the thread: a command has nothing else to do meanwhile.
    ///
    /// - Parameter advice: What to do where there is no terminal.
    private func ask(
        _ prompt: String, hidden: Bool, orElse advice: String
    ) throws(CertificateProviderError) -> SecretBytes {
        let terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY)
        guard terminal >= 0 else {
            throw CertificateProviderError(
                .interactionRequired,
                "No terminal is available to ask \"\(prompt.withVisibleControls)\"; \(advice).")
        }
        defer { close(terminal) }
        var text = Array(prompt.withVisibleControls.utf8)
        while true {
            // Stops the process here while it is in the background (SIGTTOU), so that it asks once, after fg.
            var settings = termios()
            if tcgetattr(terminal, &settings) == 0 { tcsetattr(terminal, TCSANOW, &settings) }
            let (line, signals) = try HeldSignals.during { arrival throws(CertificateProviderError) in
                func question() throws(CertificateProviderError) -> SecretBytes? {
                    _ = write(terminal, text, text.count)
                    return try Self.readLine(from: terminal, unlessReadable: arrival)
                }
                return try hidden ? SilentTerminal.whileSilent(terminal, question) : question()
            }
            if let line { return line }
            guard signals.isSubset(of: HeldSignals.stopping) else { throw Self.noAnswer }
            // After fg, or at once: the kernel does not stop an orphaned process group. The cursor may still be on the
            // prompt's line.
            if text.first != 0x0d { text.insert(0x0d, at: 0) }
        }
    }

    /// Returns `nil` when `arrival` becomes readable before there is a whole line.
    private static func readLine(
        from terminal: Int32, unlessReadable arrival: Int32
    ) throws(CertificateProviderError) -> SecretBytes? {
        var used = 0
        var isInterrupted = false
        let line = try SecretBytes(count: 4096) { buffer throws(CertificateProviderError) in
            while used < buffer.count {
                var waiting = [terminal, arrival].map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
                guard poll(&waiting, 2, -1) > 0 else {
                    if errno == EINTR { continue }
                    throw noAnswer
                }
                isInterrupted = waiting[1].revents != 0
                if isInterrupted { return }
                let count = read(terminal, buffer.baseAddress?.advanced(by: used), buffer.count - used)
                if count < 0 && errno == EINTR { continue }
                guard count > 0 else { throw noAnswer }
                used += count
                if buffer[used - 1] == 0x0a { return }
            }
        }
        guard !isInterrupted else { return nil }
        return line.withUnsafeBytes { SecretBytes(copying: $0[0..<used]) }.trimmingLineEnding()
    }

    private static var noAnswer: CertificateProviderError {
        CertificateProviderError(.userCancelled, "The question was not answered.")
    }
}
