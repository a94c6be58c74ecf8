import CertificateProviding
import Glibc

/// Holds back signals that end, stop or continue the process during a question, so that the terminal's settings are
/// restored first. The shell uses the same terminal, and few shells restore its settings.
///
/// A signal handler runs on any thread and may call few functions, so it only writes the signal's number into a socket.
enum HeldSignals {
    /// The signals after which a question is asked again.
    static let stopping: Set<Int32> = [SIGTSTP, SIGCONT]
    private static let all = stopping.union([SIGHUP, SIGINT, SIGQUIT, SIGTERM])

    /// Runs `body`, then raises the signals that arrived during it, with their former actions. An ignored signal, such
    /// as SIGHUP under nohup, stays ignored.
    ///
    /// - Parameter body: Gets a descriptor that becomes readable when a signal arrives.
    /// - Returns: The result of `body`, and the signals that arrived and did not end the process.
    static func during<T>(
        _ body: (_ arrival: Int32) throws(ProviderError) -> T
    ) throws(ProviderError) -> (T, signals: Set<Int32>) {
        var ends: [Int32] = [-1, -1]
        let kind = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
        guard socketpair(AF_UNIX, kind, 0, &ends) == 0 else {
            throw ProviderError(
                .internal, "The terminal cannot be used for a question: \(errorText(errno)).")
        }
        defer { for end in ends { close(end) } }
        heldSignals = ends[1]
        let former = all.map { ($0, hold($0)) }

        let result = Result { () throws(ProviderError) in try body(ends[0]) }
        for (number, action) in former {
            var action = action
            sigaction(number, &action, nil)
        }
        var numbers = [UInt8](repeating: 0, count: 64)
        let count = read(ends[0], &numbers, numbers.count)
        var signals = Set(numbers.prefix(max(0, count)).map(Int32.init))
        // Already continued: to stop now would be to wait for another SIGCONT.
        if signals.contains(SIGCONT) { signals.remove(SIGTSTP) }
        for number in signals { raise(number) }
        EndingSignal.leaveToSignal()
        return (try result.get(), signals)
    }

    /// - Returns: The former action of the signal.
    private static func hold(_ number: Int32) -> sigaction {
        var former = sigaction()
        sigaction(number, nil, &former)
        let isIgnored =
            unsafeBitCast(former.__sigaction_handler.sa_handler, to: Int.self) == unsafeBitCast(SIG_IGN, to: Int.self)
        guard !isIgnored else { return former }
        var action = sigaction()
        action.__sigaction_handler.sa_handler = { number in
            let saved = errno
            var byte = UInt8(truncatingIfNeeded: number)
            write(heldSignals, &byte, 1)
            errno = saved
        }
        sigaction(number, &action, nil)
        return former
    }
}

/// The descriptor that the handler writes to. Global, since a handler gets only the signal's number; changed only while
/// the handler is not installed.
nonisolated(unsafe) private var heldSignals: Int32 = -1
