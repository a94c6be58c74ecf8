import CLinux
package import CertificateProviding
package import FoundationEssentials
import Glibc
import IdentityStore

/// The journal of signing requests: `journal.jsonl`, a JSON line for each request that passed step 11.
///
/// A request that gets a signature is written before the key is used, as `interrupted`, and its outcome in place afterwards: there is
/// no signature that the journal does not know. Several processes write it at once. All calls block on the disk.
///
/// Questions are answered from the newest 64 MiB. A line that is damaged counts as absent.
package struct RequestJournal: Sendable {
    package static let name = "journal.jsonl"
    /// How much of the journal is read: some 200,000 requests.
    static let window = 64 << 20

    private let directory: String
    private let now: @Sendable () -> Date
    private let files: FileSystem
    private let window: Int

    /// - Parameter directory: Created when the first line is written, with mode 0700.
    package init(directory: String, now: @escaping @Sendable () -> Date = { Date() }) {
        self.init(directory: directory, now: now, files: .system)
    }

    init(directory: String, now: @escaping @Sendable () -> Date, files: FileSystem, window: Int = Self.window) {
        (self.directory, self.now, self.files, self.window) = (directory, now, files, window)
    }

    // MARK: - Writing

    /// Adds a line for a request that got no signature. It is on disk when this returns.
    ///
    /// - Throws: `storeWriteFailed`; `operationNotAllowed`, with the reason `busy`, if another process holds the lock for long.
    package func append(_ entry: JournalEntry) throws(CertificateProviderError) {
        close(try add(entry, width: 0).file)
    }

    /// Adds a line, as `interrupted`, for a request whose signature is about to be made. It is on disk when this returns, and its
    /// outcome has room there: a full disk shows here.
    ///
    /// - Throws: As ``append(_:)``: the key must not be used then.
    package func begin(_ entry: JournalEntry) throws(CertificateProviderError) -> OpenEntry {
        var entry = entry
        entry.outcome = .interrupted
        let (file, outcome) = try add(entry, width: OpenEntry.width)
        return OpenEntry(file: file, outcome: outcome, path: "\(directory)/\(Self.name)", files: files)
    }

    /// A line that waits for its outcome. Without one it stays `interrupted`.
    package final class OpenEntry: Sendable {
        /// Room for every word.
        fileprivate static let width = 40

        private let file: Int32
        private let outcome: off_t
        private let path: String
        private let files: FileSystem

        fileprivate init(file: Int32, outcome: off_t, path: String, files: FileSystem) {
            (self.file, self.outcome, self.path, self.files) = (file, outcome, path, files)
        }

        deinit { close(file) }

        /// Replaces the outcome in place. It is on disk when this returns.
        ///
        /// - Throws: `storeWriteFailed`: no reply may have the signature then.
        package func finish(outcome word: JournalEntry.Outcome) throws(CertificateProviderError) {
            var bytes = JournalEntry.quoted(word)
            guard bytes.count <= Self.width else {
                throw CertificateProviderError(.internal, "The journal has no room for the outcome '\(word)'.")
            }
            bytes += repeatElement(UInt8(ascii: " "), count: Self.width - bytes.count)
            // The signature would be known to a file that has no name.
            var status = stat()
            guard fstat(file, &status) == 0, status.st_nlink > 0 else {
                throw RequestJournal.notWritten("\(path) was removed by another process")
            }
            guard lseek(file, outcome, SEEK_SET) == outcome,
                bytes.withUnsafeBytes({ files.write(file, $0) }) == bytes.count, files.synchronize(file) == 0
            else { throw RequestJournal.notWritten("\(path) cannot be written to: \(errorText(errno))") }
        }
    }

    /// Writes a line at the end of the journal and flushes it. After a failure the journal is as it was before.
    ///
    /// - Returns: The journal, open for writing, and the place of the line's outcome.
    private func add(
        _ entry: JournalEntry, width: Int
    ) throws(CertificateProviderError) -> (file: Int32, outcome: off_t) {
        let line = try entry.line(width: width)
        do throws(SafeDirectory.Refusal) {
            let directory = try SafeDirectory.create(directory, files)
            let lock = try StoreLock(in: directory, timeout: StoreLock.timeout, files)
            defer { withExtendedLifetime(lock) {} }
            let file = files.create(directory.descriptor, Self.name, O_RDWR | O_NONBLOCK)
            guard file >= 0 else {
                throw errno == ELOOP
                    ? SafeDirectory.Refusal(reason: "\(directory.path)/\(Self.name) is a symbolic link; remove it")
                    : directory.failure("\(directory.path)/\(Self.name) cannot be opened for writing")
            }
            do throws(SafeDirectory.Refusal) {
                return (file, try add(line, width, to: file, in: directory))
            } catch {
                close(file)
                throw error
            }
        } catch {
            throw Self.notWritten(error.reason, isBusy: error.isBusy)
        }
    }

    private func add(
        _ line: (bytes: [UInt8], outcome: Int), _ width: Int, to file: Int32, in directory: SafeDirectory
    ) throws(SafeDirectory.Refusal) -> off_t {
        try directory.check(file, Self.name)
        let size = lseek(file, 0, SEEK_END)
        guard size >= 0 else { throw directory.failure("\(directory.path)/\(Self.name) cannot be read") }
        // The name must be on disk before a line in the file is relied on.
        if size == 0 { try directory.flush(files) }
        var before: [UInt8] = []
        // A process that was killed, or a full disk, has left a part of a line.
        var last: UInt8 = Self.lineEnd
        if size > 0, pread(file, &last, 1, size - 1) == 1, last != Self.lineEnd { before.append(Self.lineEnd) }
        var outcome = Int(size) + before.count + line.outcome
        if width > 0, outcome / Self.sector != (outcome + width - 1) / Self.sector {
            let space = Self.sector - outcome % Self.sector
            before += [UInt8](repeating: 0x20, count: space)
            outcome += space
        }
        do throws(SafeDirectory.Refusal) {
            try directory.write(before + line.bytes, to: file, files)
            guard files.synchronize(file) == 0 else {
                throw directory.failure("\(directory.path)/\(Self.name) cannot be flushed to disk")
            }
        } catch {
            _ = ftruncate(file, size)
            throw error
        }
        return off_t(outcome)
    }

    /// Disks write it whole or not at all: an outcome within it is the old one or the new one.
    private static let sector = 512
    private static let lineEnd = UInt8(ascii: "\n")

    fileprivate static func notWritten(_ reason: String, isBusy: Bool = false) -> CertificateProviderError {
        SafeDirectory.Refusal(reason: reason, isBusy: isBusy).error(
            .storeWriteFailed,
            "The journal of signing requests cannot be written, so nothing is signed: \(reason.withVisibleControls).")
    }

    // MARK: - Reading

    /// Whether this data was signed for this client within the last `time`. An entry of the future counts: the clock has been set back.
    ///
    /// - Throws: `storeReadFailed`, also if the part of the journal that is read does not reach back so far.
    package func wasSigned(
        _ digest: String, client: Int, within time: Duration
    ) throws(CertificateProviderError) -> Bool {
        var found = false
        try read(with: digest, "\"outcome\":\"signed\"", within: time) { entry in
            found = found || entry.digest == digest && entry.client == client && entry.outcome == .signed
        }
        return found
    }

    /// When this data was signed last, for any client; `nil` if it was not, as far as the journal is read.
    ///
    /// - Throws: `storeReadFailed`.
    package func lastSigned(_ digest: String) throws(CertificateProviderError) -> Date? {
        var last: Date?
        try read(with: digest, "\"outcome\":\"signed\"", within: nil) { entry in
            if entry.digest == digest, entry.outcome == .signed { last = entry.time }
        }
        return last
    }

    /// How many requests of this client a rule has approved within the last `time`, whatever became of their signatures.
    ///
    /// - Throws: As ``wasSigned(_:client:within:)``.
    package func unattendedApprovals(client: Int, within time: Duration) throws(CertificateProviderError) -> Int {
        var count = 0
        try read(with: "\"approver\":\"\(JournalEntry.unattended)\"", "\"client\":\(client),", within: time) { entry in
            if entry.approver == JournalEntry.unattended, entry.client == client { count += 1 }
        }
        return count
    }

    /// The newest entries, the oldest of them first, and how many damaged lines are between them.
    ///
    /// - Throws: `storeReadFailed`.
    package func entries(
        newest count: Int
    ) throws(CertificateProviderError) -> (entries: [JournalEntry], damaged: Int) {
        guard count > 0, let (file, size) = try open() else { return ([], 0) }
        defer { close(file) }
        let first = max(0, size - window)
        // Back to the end of the line before them.
        var (start, left) = (size - 1, count)
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: Self.chunk, alignment: 16)
        defer { buffer.deallocate() }
        search: while start > first {
            let from = max(first, start - Self.chunk)
            let count = try read(file, buffer, at: from, atMost: start - from)
            guard from + count == start else { break }
            for index in (0..<count).reversed() where buffer[index] == Self.lineEnd {
                left -= 1
                if left == 0 {
                    start = from + index + 1
                    break search
                }
            }
            start = from
        }
        var (entries, damaged) = ([JournalEntry](), 0)
        try lines(of: file, from: max(start, first), with: [Self.lineEnd]) { line in
            if let entry = Self.entry(line) { entries.append(entry) } else { damaged += 1 }
        }
        return (entries, damaged)
    }

    /// Calls `visit` with the entries that have two texts in their lines.
    ///
    /// - Parameter time: `nil` for entries of any age.
    private func read(
        with first: String, _ second: String, within time: Duration?, _ visit: (JournalEntry) -> Void
    ) throws(CertificateProviderError) {
        guard let (file, size) = try open() else { return }
        defer { close(file) }
        let start = max(0, size - window)
        let limit = time.map { now().addingTimeInterval(-Double($0.components.seconds)) }
        if start > 0, let limit { try requireOlder(than: limit, file, at: start) }
        let oldest = limit.map { Array(JournalEntry.text(of: $0).utf8) }
        let second = Array(second.utf8)
        try lines(of: file, from: start, with: Array(first.utf8)) { line in
            guard Self.find(second, in: line) != nil else { return }
            // Before the line is parsed: there may be very many that are older.
            if let oldest, let text = Self.time(of: line), text.lexicographicallyPrecedes(oldest) { return }
            guard let entry = Self.entry(line) else { return }
            if let limit, entry.time <= limit { return }
            visit(entry)
        }
    }

    /// Refuses an answer about a time of which the journal has more than is read: a client could send so many requests that one that
    /// was signed is not found.
    private func requireOlder(than limit: Date, _ file: Int32, at start: Int) throws(CertificateProviderError) {
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 16, alignment: 16)
        defer { buffer.deallocate() }
        let count = try read(file, buffer, at: start, atMost: buffer.count)
        for line in buffer[..<count].split(separator: Self.lineEnd) {
            guard let entry = Self.entry(UnsafeRawBufferPointer(rebasing: line)) else { continue }
            if entry.time <= limit { return }
            break
        }
        throw CertificateProviderError(
            .storeReadFailed,
            "The journal of signing requests has grown too fast to find earlier signatures: its newest \(window >> 20) MiB do not "
                + "reach back to \(JournalEntry.text(of: limit)). Find out which client sends so many requests: "
                + "certprov requests log")
    }

    private func open() throws(CertificateProviderError) -> (file: Int32, size: Int)? {
        do throws(SafeDirectory.Refusal) {
            guard let directory = try SafeDirectory.open(directory), let file = try directory.openFile(Self.name) else {
                return nil
            }
            var status = stat()
            guard fstat(file, &status) == 0 else {
                close(file)
                throw directory.failure("\(directory.path)/\(Self.name) cannot be examined")
            }
            return (file, Int(status.st_size))
        } catch {
            throw Self.notRead(error.reason)
        }
    }

    private static func notRead(_ reason: String) -> CertificateProviderError {
        CertificateProviderError(
            .storeReadFailed, "The journal of signing requests cannot be read: \(reason.withVisibleControls).")
    }

    private static let chunk = 1 << 20

    /// Calls `visit` with each whole line, without its end, that has a text.
    private func lines(
        of file: Int32, from start: Int, with needle: [UInt8], _ visit: (UnsafeRawBufferPointer) -> Void
    ) throws(CertificateProviderError) {
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: Self.chunk, alignment: 16)
        defer { buffer.deallocate() }
        var offset = start
        while case let count = try read(file, buffer, at: offset, atMost: buffer.count), count > 0 {
            // No line is as long as that: without an end it is damaged.
            guard let end = buffer[..<count].lastIndex(of: Self.lineEnd) else {
                offset += count
                continue
            }
            var rest = buffer[...end]
            while let place = Self.find(needle, in: UnsafeRawBufferPointer(rebasing: rest)) {
                let hit = rest.startIndex + place
                let start = buffer[..<hit].lastIndex(of: Self.lineEnd).map { $0 + 1 } ?? 0
                let stop = buffer[hit...].firstIndex(of: Self.lineEnd) ?? end
                visit(UnsafeRawBufferPointer(rebasing: buffer[start..<stop]))
                rest = buffer[(stop + 1)..<(end + 1)]
            }
            offset += end + 1
        }
    }

    private func read(
        _ file: Int32, _ buffer: UnsafeMutableRawBufferPointer, at offset: Int, atMost limit: Int
    ) throws(CertificateProviderError) -> Int {
        while true {
            let count = pread(file, buffer.baseAddress, limit, off_t(offset))
            if count >= 0 { return count }
            guard errno == EINTR else { throw Self.notRead("\(directory)/\(Self.name): \(errorText(errno))") }
        }
    }

    private static func find(_ needle: [UInt8], in bytes: UnsafeRawBufferPointer) -> Int? {
        guard let base = bytes.baseAddress, let found = certprov_find(needle, needle.count, base, bytes.count) else {
            return nil
        }
        return found - base
    }

    /// The time of a line as this code writes it; `nil` for another line.
    private static func time(of line: UnsafeRawBufferPointer) -> Slice<UnsafeRawBufferPointer>? {
        let (before, after) = (Array("\"time\":\"".utf8), Array("Z\"}".utf8))
        let end = line.count - 2
        guard end - 20 - before.count >= 0, line[(end - 20 - before.count)...].starts(with: before),
            line[(end - 1)...].elementsEqual(after)
        else { return nil }
        return line[(end - 20)..<end]
    }

    /// Reads a line; `nil` for one that is damaged.
    static func entry(_ line: UnsafeRawBufferPointer) -> JournalEntry? {
        guard line.count < JournalEntry.maximumSize else { return nil }
        return try? JSONDecoder().decode(JournalEntry.self, from: Data(line))
    }
}
