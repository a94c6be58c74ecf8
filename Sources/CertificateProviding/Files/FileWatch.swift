/// When a file, or several, that are looked at again and again are to be read.
package struct FileWatch<Stamp: Equatable & Sendable>: Sendable {
    private var last: Stamp?
    /// How many looks in a row have seen something new.
    private var changes = 0
    /// After this many, files are read although they may still be written: one that changes at each look would never be read.
    private static var mostChanges: Int { 3 }
    /// Whether the last look was due for that reason.
    package private(set) var isRestless = false
    private var failures = 0
    /// How many looks are left out after failures.
    private var pause = 0
    private var reported: String?

    package init() {}

    /// Returns whether to read: the files are others than those in force, and the same as at the last look, or others at three looks.
    package mutating func isDue(_ seen: Stamp, inForce: Stamp) -> Bool {
        let isSettled = last == seen
        last = seen
        changes = isSettled || seen == inForce ? 0 : changes + 1
        isRestless = changes == Self.mostChanges
        if isRestless { changes = 0 }
        if seen == inForce {
            succeeded()
            return false
        }
        guard isSettled else {
            (failures, pause) = (0, 0)
            return isRestless
        }
        guard pause == 0 else {
            pause -= 1
            return false
        }
        return true
    }

    package mutating func succeeded() { (failures, pause, reported) = (0, 0, nil) }

    /// The next look tries again, then after 1, 3, 7 … 127 that do not.
    package mutating func tryLater() {
        pause = (1 << failures) - 1
        failures = min(failures + 1, 7)
    }

    /// Returns whether the error is to be reported, as one that is not the last. Tries again as ``tryLater()`` says.
    package mutating func failed(_ error: ProviderError) -> Bool {
        tryLater()
        defer { reported = error.description }
        return reported != error.description
    }
}
