public import CertificateProviding
import Glibc

/// Asks the person at the controlling terminal, whatever stdin and stdout are connected to.
public struct TerminalInteraction: UserInteraction {
    public init() {}

    public func requestSecret(_ prompt: String) async throws(CertificateProviderError) -> SecretBytes {
        try ask(prompt + ": ", hidden: true)
    }

    public func confirm(_ question: String) async throws(CertificateProviderError) -> Bool {
        let answer = try ask(question + " [y/N] ", hidden: false)
        return answer == SecretBytes(utf8: "y") || answer == SecretBytes(utf8: "yes")
    }

    public func report(_ progress: String) { Console.note(progress) }

    /// Reads one line. Blocks the thread: a command has nothing else to do meanwhile.
    private func ask(_ prompt: String, hidden: Bool) throws(CertificateProviderError) -> SecretBytes {
        let terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY)
        guard terminal >= 0 else {
            throw CertificateProviderError(
                .interactionRequired,
                "There is no terminal to ask \"\(prompt.withVisibleControls)\" on; use another source, or --yes.")
        }
        defer { close(terminal) }
        var saved = termios()
        let isConfigurable = hidden && tcgetattr(terminal, &saved) == 0
        if isConfigurable {
            var silent = saved
            silent.c_lflag &= ~UInt32(ECHO)
            silent.c_lflag |= UInt32(ECHONL)
            tcsetattr(terminal, TCSAFLUSH, &silent)
        }
        // The echo comes back also when the person gives up with ^C: the terminal's signals are taken as characters.
        defer { if isConfigurable { tcsetattr(terminal, TCSAFLUSH, &saved) } }
        let text = Array(prompt.withVisibleControls.utf8)
        _ = write(terminal, text, text.count)
        return try Self.readLine(from: terminal)
    }

    private static func readLine(from terminal: Int32) throws(CertificateProviderError) -> SecretBytes {
        var used = 0
        let line = try SecretBytes(count: 4096) { buffer throws(CertificateProviderError) in
            while used < buffer.count {
                let count = read(terminal, buffer.baseAddress?.advanced(by: used), buffer.count - used)
                if count < 0 && errno == EINTR { continue }
                guard count > 0 else {
                    throw CertificateProviderError(.userCancelled, "The question was not answered.")
                }
                used += count
                if buffer[used - 1] == 0x0a { return }
            }
        }
        return line.withUnsafeBytes { SecretBytes(copying: $0[0..<used]) }.trimmingLineEnding()
    }
}
