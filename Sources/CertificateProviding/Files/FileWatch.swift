/// When a file, or several, that are looked at again and again are to be read.
package struct FileWatch<Stamp: Equatable & Sendable>: Sendable {
    private var last: Stamp?
    private var failures = 0
    /// How many looks are left out after failures.
    private var pause = 0
    private var reported: String?

    package init() {}

    /// Returns whether to read: the files are others than those in force, and the same as at the last look.
    package mutating func isDue(_ seen: Stamp, inForce: Stamp) -> Bool {
        let isSettled = last == seen
        last = seen
        if seen == inForce {
            succeeded()
            return false
        }
        guard isSettled else {
            (failures, pause) = (0, 0)
            return false
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
    package mutating func failed(_ error: CertificateProviderError) -> Bool {
        tryLater()
        defer { reported = error.description }
        return reported != error.description
    }
}
