import Synchronization

/// The warnings of a command: on stderr at once, or with `--json` in the document that is shown next, so that stderr has only the
/// error. May be used from any thread.
public final class Warnings: Sendable {
    private let program: String
    /// `nil` when they go to stderr.
    private let collected: Mutex<[String]?>

    /// Makes an empty collection.
    ///
    /// - Parameters:
    ///   - program: The name that begins each line on stderr.
    ///   - isCollecting: Whether they wait for a document.
    public init(of program: String, collecting isCollecting: Bool) {
        self.program = program
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
    public func append(_ text: String) {
        let isCollected = collected.withLock { texts in
            texts?.append(text)
            return texts != nil
        }
        if !isCollected { note(text) }
    }

    /// Writes a line to stderr, also with `--json`.
    func note(_ text: String) { Console.note("\(program): \(text)") }
}
