import Logging
import Synchronization

/// What a person should know besides the result. Shown at once on stderr, and with `--json` part of the document: there,
/// stderr has nothing but the error.
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

/// Takes what libraries warn of into the document, and leaves what somebody wanted to hear with `-v` to another handler.
struct WarningLogHandler: LogHandler {
    let warnings: Warnings
    var rest: any LogHandler

    var metadata: Logger.Metadata {
        get { rest.metadata }
        set { rest.metadata = newValue }
    }
    var logLevel: Logger.Level {
        get { rest.logLevel }
        set { rest.logLevel = newValue }
    }
    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { rest[metadataKey: key] }
        set { rest[metadataKey: key] = newValue }
    }

    func log(event: LogEvent) {
        guard event.level >= .warning else { return rest.log(event: event) }
        let details = (event.metadata ?? [:]).sorted { $0.key < $1.key }.map { "\($0.key): \($0.value)" }
        warnings.append(([event.message.description] + details).joined(separator: "; "))
    }
}
