import ArgumentParser
import CertificateProviding
import PluginHost
import Synchronization
import Terminal

/// Runs another subcommand, and shows what it and its plugins say to each other.
struct PluginTrace: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "trace",
        abstract: "Run a subcommand, such as fetch, and show its messages to and from plugins on stderr.",
        usage: "certprov plugin trace <subcommand> [<option> ...]",
        discussion: """
            Each line has the seconds since the start, a mark and the plugin: > for a message to the plugin, < for one \
            from it, ! for its standard error, * for its start and its end. Secrets are left out, and long values cut \
            off.
            """)

    @Argument(parsing: .captureForPassthrough, help: "The subcommand with its options, such as: fetch --config FILE.")
    var command: [String] = []

    /// When the trace began; nil if nothing is traced. Of the process, which runs one subcommand.
    private static let start = Mutex<ContinuousClock.Instant?>(nil)

    /// Shows an event; nil if nothing is traced.
    static var observer: (@Sendable (PluginEvent) -> Void)? {
        guard let start = start.withLock({ $0 }) else { return nil }
        return { event in Console.note(line(of: event, since: start)) }
    }

    func run() async throws {
        if ["-h", "--help"].contains(command.first) { throw CleanExit.helpRequest(self) }
        guard let first = command.first, !first.hasPrefix("-") else {
            throw ValidationError("Name the subcommand to trace, such as: certprov plugin trace fetch --config FILE")
        }
        Self.start.withLock { $0 = .now }
        try await RootCommand.run(command)
    }

    /// Returns an event as people read it.
    static func line(of event: PluginEvent, since start: ContinuousClock.Instant) -> String {
        let milliseconds = Int((event.time - start) / .milliseconds(1))
        let fraction = String(milliseconds % 1000 + 1000).dropFirst()
        let (mark, text) =
            switch event.kind {
            case .start: ("*", "starts \(event.text)")
            case .sent: (">", event.text)
            case .received: ("<", event.text)
            case .standardError: ("!", event.text)
            case .end: ("*", "ends: \(event.text)")
            }
        return "\(milliseconds / 1000).\(fraction) \(mark) \(event.plugin): \(text)"
    }
}
