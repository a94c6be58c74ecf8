import Synchronization

/// The warnings of a command: on stderr at once, or with `--json` in the document that is shown next, so that stderr has only the
/// error. May be used from any thread.
public final class Warnings: Sendable {
    private let program: String
    private let format: LogFormat
    /// `nil` when they go to stderr.
    private let collected: Mutex<[String]?>

    /// Makes an empty collection.
    ///
    /// - Parameters:
    ///   - program: The name that begins each line on stderr.
    ///   - isCollecting: Whether they wait for a document.
    public convenience init(of program: String, collecting isCollecting: Bool) {
        self.init(of: program, collecting: isCollecting, as: .text)
    }

    /// - Parameter format: The form of those that do not wait.
    package init(of program: String, collecting isCollecting: Bool, as format: LogFormat) {
        (self.program, self.format) = (program, format)
        collected = Mutex(isCollecting ? [] : nil)
    }

    /// Returns the warnings collected so far, for the document. Later ones go to stderr.
    public func take() -> [String] {
        collected.withLock { texts in
            defer { texts = nil }
            return texts ?? []
        }
    }

    /// Adds a warning.
    public func append(_ text: String) { append(LogLine(message: text)) }

    func append(_ line: LogLine) {
        let isCollected = collected.withLock { texts in
            texts?.append(line.text)
            return texts != nil
        }
        if !isCollected { note(line) }
    }

    /// Writes a line of the log, also with `--json`.
    func note(_ line: LogLine) { line.write(of: program, as: format) }
}
