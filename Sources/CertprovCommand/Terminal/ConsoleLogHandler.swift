import Logging

/// Log messages on the command's stderr, which is not always the descriptor that C libraries take for it. What
/// libraries warn of goes where all warnings go.
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
