import Logging

/// Writes log messages to the command's stderr, which may differ from descriptor 2. Warnings and errors are handled
/// like the command's own warnings.
struct ConsoleLogHandler: LogHandler {
    let warnings: Warnings
    var metadata: Logger.Metadata = [:]
    var logLevel: Logger.Level = .warning

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        let values = metadata.merging(event.metadata ?? [:]) { $1 }.sorted { $0.key < $1.key }
        let text = values.map { " \($0.key)=\($0.value)" }.joined()
        if event.level >= .warning {
            warnings.append("\(event.level): \(event.message)\(text)")
        } else {
            Console.note("certprov: \(event.level): \(event.message)\(text)")
        }
    }
}
