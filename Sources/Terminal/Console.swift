import CLinux
public import CertificateProviding
import Glibc
import Synchronization

/// A command's two streams: results on stdout, everything else on stderr.
public enum Console {
    /// The descriptors of the two streams. One pair for the process.
    private static let streams = Mutex((output: STDOUT_FILENO, notes: STDERR_FILENO))

    /// Takes those of the descriptors 0 to 2 that were closed when the command started. Otherwise the next file would get such
    /// a number, and the output of the stream. Reading and writing still fail. Call it before any file is opened.
    package static func takeClosedStreams() {
        for stream in [STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO] where fcntl(stream, F_GETFD) < 0 {
            // The lowest number that is free is this one.
            _ = certprov_take_descriptor()
        }
    }

    /// Writes a result.
    ///
    /// - Throws: `storeWriteFailed` if stdout cannot be written, for example because the disk is full.
    public static func print(_ text: String) throws(ProviderError) {
        try write(text, to: streams.withLock(\.output))
    }

    /// Writes a result: `document` with `--json`, else `text`.
    ///
    /// - Parameter warnings: Those so far are in the document.
    /// - Throws: `storeWriteFailed`, as ``print(_:)``.
    public static func show(
        _ document: some CommandDocument, json isJSON: Bool, _ warnings: Warnings, text: () -> String
    ) throws(ProviderError) {
        try print(isJSON ? document.json(warnings: warnings.take()) + "\n" : text())
    }

    /// Writes an error to stderr, as a document `Error` with `--json`.
    ///
    /// - Parameter program: The name that begins the line of text.
    public static func report(_ error: ProviderError, of program: String, json isJSON: Bool) {
        note((isJSON ? try? ErrorDocument(error).json() : nil) ?? "\(program): \(error)")
    }

    /// Writes bytes to stdout, and nothing else.
    ///
    /// - Throws: `storeWriteFailed`.
    package static func print(_ bytes: SecretBytes) throws(ProviderError) {
        let output = streams.withLock(\.output)
        var copy = bytes.withUnsafeBytes { Array($0) }
        defer { copy.withUnsafeMutableBytes { if let base = $0.baseAddress { explicit_bzero(base, $0.count) } } }
        try write(copy[...], to: output)
    }

    /// Writes bytes to stdout.
    ///
    /// - Throws: `storeWriteFailed`.
    package static func print(_ bytes: UnsafeRawBufferPointer) throws(ProviderError) {
        try write(Array(bytes)[...], to: streams.withLock(\.output))
    }

    /// Whether stdout is a terminal.
    package static var isOutputWatched: Bool { isatty(streams.withLock(\.output)) == 1 }

    /// Writes a line to stderr. Errors are ignored.
    public static func note(_ text: String) {
        try? write(text + "\n", to: streams.withLock(\.notes))
    }

    /// Whether stderr is a terminal.
    public static var isStandardErrorTerminal: Bool { isatty(streams.withLock(\.notes)) == 1 }

    /// Replaces the current line of the terminal on stderr.
    package static func rewriteNote(_ text: String) {
        try? write("\r\(text)\u{1b}[K", to: streams.withLock(\.notes))
    }

    /// Redirects the output of vendors' libraries: from now on, what they write to descriptors 1 and 2 goes to stderr,
    /// or is dropped, and cannot mix with a result. The command's own output is not affected.
    ///
    /// The redirection is never undone, so it does not matter how the process ends. A program that is started later
    /// inherits the redirected descriptors.
    package static func setLibrariesApart(showing: Bool) {
        streams.withLock { streams in
            guard streams == (STDOUT_FILENO, STDERR_FILENO) else { return }
            let own = (
                output: fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3), notes: fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)
            )
            let nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC)
            guard nowhere >= 0 else { return }
            streams = own
            let isShown = showing && streams.notes >= 0
            dup2(isShown ? streams.notes : nowhere, STDOUT_FILENO)
            if !isShown { dup2(nowhere, STDERR_FILENO) }
            close(nowhere)
        }
    }

    private static func write(_ text: String, to descriptor: Int32) throws(ProviderError) {
        try write(Array(text.utf8)[...], to: descriptor)
    }

    private static func write(_ bytes: ArraySlice<UInt8>, to descriptor: Int32) throws(ProviderError) {
        var bytes = bytes
        while !bytes.isEmpty {
            let count = bytes.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count < 0 && errno == EINTR { continue }
            guard count >= 0 else {
                throw ProviderError(
                    .storeWriteFailed, "The output cannot be written: \(errorText(errno)).")
            }
            bytes = bytes.dropFirst(count)
        }
    }
}
