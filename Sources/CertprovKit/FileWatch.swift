import CertificateProviding

/// When a file that is looked at again and again is to be read.
struct FileWatch {
    private var last: FileStamp??
    private var failures = 0
    /// How many looks are left out after failures.
    private var pause = 0
    private var reported: String?

    /// Returns whether to read the file: it is another one than the one in force, and the same as at the last look.
    mutating func isDue(_ seen: FileStamp?, inForce: FileStamp?) -> Bool {
        let isSettled = last == .some(seen)
        last = .some(seen)
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

    mutating func succeeded() { (failures, pause, reported) = (0, 0, nil) }

    /// Returns whether the error is to be reported. The next look tries again, then after 1, 3, 7 … 127 that do not.
    mutating func failed(_ error: CertificateProviderError) -> Bool {
        pause = (1 << failures) - 1
        failures = min(failures + 1, 7)
        defer { reported = error.description }
        return reported != error.description
    }
}
