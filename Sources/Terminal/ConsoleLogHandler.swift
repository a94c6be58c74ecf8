import CertificateProviding
public import Logging

/// Writes log messages to stderr: those from `warning` up as the command's own warnings.
public struct ConsoleLogHandler: LogHandler {
    private let warnings: Warnings
    public var metadata: Logger.Metadata = [:]
    public var logLevel: Logger.Level = .warning

    /// Makes a handler whose warnings go to `warnings`.
    public init(_ warnings: Warnings) { self.warnings = warnings }

    public subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    public func log(event: LogEvent) {
        let values = metadata.merging(event.metadata ?? [:]) { $1 }.sorted { $0.key < $1.key }
        let line = LogLine(
            level: event.level, message: "\(event.message)",
            fields: values.map { ($0.key, "\($0.value)".withVisibleControls) })
        if event.level >= .warning { warnings.append(line) } else { warnings.note(line) }
    }
}
