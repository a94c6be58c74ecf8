import Glibc

/// Turns off the echo of a terminal during a question.
enum SilentTerminal {
    /// Runs `body` without echo, and restores the terminal. Only runs `body` if the descriptor is not a terminal.
    static func whileSilent<T, E: Error>(_ terminal: Int32, _ body: () throws(E) -> T) throws(E) -> T {
        var settings = termios()
        guard tcgetattr(terminal, &settings) == 0 else { return try body() }
        var silent = settings
        silent.c_lflag &= ~UInt32(ECHO)
        silent.c_lflag |= UInt32(ECHONL)
        tcsetattr(terminal, TCSAFLUSH, &silent)
        defer { tcsetattr(terminal, TCSAFLUSH, &settings) }
        return try body()
    }
}
