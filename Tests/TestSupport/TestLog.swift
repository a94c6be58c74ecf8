public import Logging
import Synchronization

/// Keeps the log.
public final class TestLog: Sendable {
    public struct Line: Sendable {
        public let level: Logger.Level
        public let message: String
        /// With the metadata.
        public let text: String
    }
    private let heard = Mutex([Line]())

    public init() {}

    public var lines: [Line] { heard.withLock(\.self) }
    public var text: String { lines.map { "\($0.level): \($0.text)" }.joined(separator: "\n") }
    /// Warnings and errors.
    public var warnings: [String] { lines.filter { $0.level >= .warning }.map(\.text) }

    public var logger: Logger {
        var logger = Logger(label: "test") { _ in Handler(log: self) }
        logger.logLevel = .trace
        return logger
    }

    private struct Handler: LogHandler {
        let log: TestLog
        var metadata: Logger.Metadata = [:]
        var logLevel = Logger.Level.trace

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            let line = Line(
                level: event.level, message: "\(event.message)", text: "\(event.message) \(event.metadata ?? [:])")
            log.heard.withLock { $0.append(line) }
        }
    }
}
