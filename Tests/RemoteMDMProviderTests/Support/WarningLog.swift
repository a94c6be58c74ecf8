import Logging
import Synchronization

/// Keeps the warnings that a provider logs.
final class WarningLog: Sendable {
    private let heard = Mutex([String]())

    var warnings: [String] { heard.withLock(\.self) }

    var logger: Logger {
        var logger = Logger(label: "test") { _ in Handler(log: self) }
        logger.logLevel = .warning
        return logger
    }

    private struct Handler: LogHandler {
        let log: WarningLog
        var metadata: Logger.Metadata = [:]
        var logLevel = Logger.Level.warning

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            log.heard.withLock { $0.append("\(event.message) \(event.metadata ?? [:])") }
        }
    }
}
