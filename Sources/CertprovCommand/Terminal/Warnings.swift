import Synchronization

/// What a person should know besides the result. Shown at once on stderr, and with `--json` part of the document:
/// there, stderr has nothing but the error.
final class Warnings: Sendable {
    private let isCollecting: Bool
    private let collected = Mutex<[String]>([])

    init(collecting: Bool) { isCollecting = collecting }

    /// Those that were collected so far.
    var texts: [String] { collected.withLock { $0 } }

    func append(_ text: String) {
        if isCollecting { collected.withLock { $0.append(text) } } else { Console.note("certprov: \(text)") }
    }
}
