import Synchronization

/// The warnings of a command. Shown at once on stderr, or with `--json` in the document, where stderr has only the
/// error.
final class Warnings: Sendable {
    private let isCollecting: Bool
    private let collected = Mutex<[String]>([])

    init(collecting: Bool) { isCollecting = collecting }

    /// The warnings collected so far; empty without `--json`.
    var texts: [String] { collected.withLock { $0 } }

    func append(_ text: String) {
        if isCollecting { collected.withLock { $0.append(text) } } else { Console.note("certprov: \(text)") }
    }
}
