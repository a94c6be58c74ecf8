import Glibc

/// A terminal that does not show what is typed, for the length of a question.
///
/// The echo comes back with the answer, and also when a signal ends the process before: the terminal is the shell's
/// too, and few shells set it right again.
enum SilentTerminal {
    private static let signals = [SIGHUP, SIGINT, SIGQUIT, SIGTERM]

    /// Runs `body` without echo. What is not a terminal, it leaves alone.
    static func whileSilent<T, E: Error>(_ terminal: Int32, _ body: () throws(E) -> T) throws(E) -> T {
        var settings = termios()
        guard tcgetattr(terminal, &settings) == 0 else { return try body() }
        silenced = (terminal, settings)
        let former = signals.map { ($0, catchSignal($0)) }
        defer { for (number, action) in former { giveBack(number, action) } }

        var silent = settings
        silent.c_lflag &= ~UInt32(ECHO)
        silent.c_lflag |= UInt32(ECHONL)
        tcsetattr(terminal, TCSAFLUSH, &silent)
        defer { tcsetattr(terminal, TCSAFLUSH, &settings) }
        return try body()
    }

    /// Lets the signal restore the terminal first. One that is ignored, such as SIGHUP under nohup, stays ignored.
    /// - Returns: What was done with it before.
    private static func catchSignal(_ number: Int32) -> sigaction {
        var former = sigaction()
        sigaction(number, nil, &former)
        let isIgnored = unsafeBitCast(former.__sigaction_handler.sa_handler, to: Int.self) == ignoredHandler
        guard !isIgnored else { return former }
        var action = sigaction()
        action.__sigaction_handler.sa_handler = { number in
            // Only what is safe in a handler. The handler's own signal is held back until it has returned.
            tcsetattr(silenced.terminal, TCSAFLUSH, &silenced.settings)
            signal(number, SIG_DFL)
            raise(number)
        }
        sigaction(number, &action, nil)
        return former
    }

    private static func giveBack(_ number: Int32, _ action: sigaction) {
        var action = action
        sigaction(number, &action, nil)
    }

    private static var ignoredHandler: Int { unsafeBitCast(SIG_IGN, to: Int.self) }
}

/// What the handler restores. Global, since a handler is told nothing but the signal's number; written only while the
/// handler is not in place.
nonisolated(unsafe) private var silenced = (terminal: Int32(-1), settings: termios())
