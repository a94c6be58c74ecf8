import Logging
import Synchronization

/// Keeps the levels of what a service logs about renewals that have not succeeded.
final class LevelLog: Sendable {
    private let heard = Mutex([Logger.Level]())

    var levels: [Logger.Level] { heard.withLock(\.self) }

    var logger: Logger {
        var logger = Logger(label: "test") { _ in Handler(log: self) }
        logger.logLevel = .trace
        return logger
    }

    private struct Handler: LogHandler {
        let log: LevelLog
        var metadata: Logger.Metadata = [:]
        var logLevel = Logger.Level.trace

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            guard "\(event.message)".hasPrefix("renewal ") else { return }
            log.heard.withLock { $0.append(event.level) }
        }
    }
}
