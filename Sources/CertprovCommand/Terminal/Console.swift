public import CertificateProviding
import Glibc
import Synchronization

/// The command's two streams: results on stdout, everything else on stderr.
public enum Console {
    /// Where they lead. The process has one pair of them, as it has one pair of descriptors.
    private static let streams = Mutex((output: STDOUT_FILENO, notes: STDERR_FILENO))

    /// Writes a result.
    /// - Throws: `storeWriteFailed` when stdout cannot take it, so that a full disk is not mistaken for success.
    public static func print(_ text: String) throws(CertificateProviderError) {
        try write(text, to: streams.withLock(\.output))
    }

    /// Tells the person something. What stderr does not take is lost.
    public static func note(_ text: String) {
        try? write(text + "\n", to: streams.withLock(\.notes))
    }

    /// Whether somebody sees notes as they are written.
    static var areNotesWatched: Bool { isatty(streams.withLock(\.notes)) == 1 }

    /// Writes a line of notes anew, where the cursor is still on it.
    static func rewriteNote(_ text: String) {
        try? write("\r\(text)\u{1b}[K", to: streams.withLock(\.notes))
    }

    /// Keeps apart what vendors' libraries print into this process, whenever they do: from now on it is shown on stderr
    /// or dropped, and never gets between a result. The command's own words still go where they went.
    ///
    /// Nothing is kept and nothing is put back, so that it does not matter how the process ends. A program that is
    /// started from here on has the libraries' streams.
    static func setLibrariesApart(showing: Bool) {
        streams.withLock { streams in
            guard streams == (STDOUT_FILENO, STDERR_FILENO) else { return }
            // -1 for one that was closed by whoever started the command: writing to it fails as before. Taken before
            // anything is opened, which would get the number of a closed one.
            let own = (
                output: fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3), notes: fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)
            )
            let nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC)
            guard nowhere >= 0 else { return }
            streams = own
            let isShown = showing && streams.notes >= 0
            dup2(isShown ? streams.notes : nowhere, STDOUT_FILENO)
            if !isShown { dup2(nowhere, STDERR_FILENO) }
            if nowhere > STDERR_FILENO { close(nowhere) }
        }
    }

    private static func write(_ text: String, to descriptor: Int32) throws(CertificateProviderError) {
        var bytes = Array(text.utf8)[...]
        while !bytes.isEmpty {
            let count = bytes.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count < 0 && errno == EINTR { continue }
            guard count >= 0 else {
                throw CertificateProviderError(
                    .storeWriteFailed, "The output cannot be written: \(String(cString: strerror(errno))).")
            }
            bytes = bytes.dropFirst(count)
        }
    }
}
