import CLinux
package import CertificateProviding
package import FoundationEssentials
import Glibc
import IdentityStore
import Synchronization

/// The journal of signing requests: a JSON line for each request that passed step 11, in `journal.jsonl`, and older ones in
/// `journal.1.jsonl`, `journal.2.jsonl` and so on.
///
/// A request that gets a signature is written before the key is used, as `interrupted`, and its outcome in place afterwards: there is
/// no signature that the journal does not know. Several processes write it at once. All calls block on the disk.
///
/// Files are only renamed and removed, never copied. None is removed that has a signature, an interruption or an approval without a person
/// of the last day. A line that is damaged counts as absent.
package struct RequestJournal: Sendable {
    package static let name = "journal.jsonl"

    struct Limits: Sendable {
        /// Of a file, in bytes: then the next one begins.
        var file = 16 << 20
        /// Of the older files together: then the oldest go.
        var older = 48 << 20
        /// Lines of one client without a signature: bounded, so that it cannot fill the disk.
        var linesPerMinute = 30
    }

    /// How long the same data is not signed again without a person.
    package static let memory = Duration.seconds(86_400)

    private let directory: String
    private let now: @Sendable () -> Date
    private let files: FileSystem
    private let limits: Limits
    private let omissions = Omissions()

    /// - Parameter directory: Created when the first line is written, with mode 0700.
    package init(directory: String, now: @escaping @Sendable () -> Date = { Date() }) {
        self.init(directory: directory, now: now, files: .system)
    }

    init(directory: String, now: @escaping @Sendable () -> Date, files: FileSystem, limits: Limits = .init()) {
        (self.directory, self.now, self.files, self.limits) = (directory, now, files, limits)
    }

    // MARK: - Writing

    /// Adds a line for a request that got no signature. It is on disk when this returns.
    ///
    /// A client that has its lines of this minute gets none, and its next one says how many are missing.
    ///
    /// - Throws: `storeWriteFailed`; `operationNotAllowed`, with the reason `busy`, if another process holds the lock for long.
    package func append(_ entry: JournalEntry) throws(ProviderError) {
        // A journal that cannot be read cannot be written either, which says why.
        guard (try? linesOfLastMinute(of: entry.client)) ?? 0 < limits.linesPerMinute else {
            return omissions.add(1, to: entry.client)
        }
        var entry = entry
        entry.omitted = omissions.take(of: entry.client)
        do throws(ProviderError) {
            try withLock { directory throws(ProviderError) in
                _ = close(try add(entry, width: 0, in: directory).file)
            }
        } catch {
            omissions.add(entry.omitted, to: entry.client)
            throw error
        }
    }

    /// Adds a line, as `interrupted`, for a request whose signature is about to be made. It is on disk when this returns, and its
    /// outcome has room there: a full disk shows here.
    ///
    /// - Throws: As ``append(_:)``: the key must not be used then.
    package func begin(_ entry: JournalEntry) throws(ProviderError) -> OpenEntry {
        try withLock { directory throws(ProviderError) in try begin(entry, in: directory) }
    }

    /// The result of ``beginUnattended(_:perHour:)``.
    package enum Reservation: Sendable {
        case begun(OpenEntry)
        /// The same data was signed for the client within ``RequestJournal/memory``, or is being signed.
        case repeated
        /// So many requests of the client were approved without a person in the last hour.
        case tooMany(Int)
    }

    /// Adds a line as ``begin(_:)`` does, for a request that no person approves, unless it is a repetition or one too many. No other
    /// process adds one in between.
    ///
    /// - Throws: As ``append(_:)``, and `storeReadFailed`.
    package func beginUnattended(
        _ entry: JournalEntry, perHour limit: Int
    ) throws(ProviderError) -> Reservation {
        try withLock { directory throws(ProviderError) in
            if try wasSigned(entry.digest, client: entry.client, within: Self.memory) { return .repeated }
            let count = try unattendedApprovals(client: entry.client, within: .seconds(3600))
            return count < limit ? .begun(try begin(entry, in: directory)) : .tooMany(count)
        }
    }

    private func begin(
        _ entry: JournalEntry, in directory: SafeDirectory
    ) throws(ProviderError) -> OpenEntry {
        var entry = entry
        entry.outcome = .interrupted
        let (file, outcome) = try add(entry, width: OpenEntry.width, in: directory)
        return OpenEntry(file: file, outcome: outcome, path: "\(directory.path)/\(Self.name)", files: files)
    }

    /// How many requests of a client have no line since its last one.
    private final class Omissions: Sendable {
        private let counts = Mutex<[Int: Int]>([:])

        func add(_ count: Int, to client: Int) { counts.withLock { $0[client, default: 0] += count } }
        func take(of client: Int) -> Int { counts.withLock { $0.removeValue(forKey: client) ?? 0 } }
    }

    /// A line that waits for its outcome. Without one it stays `interrupted`.
    package final class OpenEntry: Sendable {
        /// Room for every response code.
        fileprivate static let width = 40

        private let file: Int32
        private let place: off_t
        private let path: String
        private let files: FileSystem

        fileprivate init(file: Int32, outcome: off_t, path: String, files: FileSystem) {
            (self.file, place, self.path, self.files) = (file, outcome, path, files)
        }

        deinit { close(file) }

        /// Replaces the outcome in place. It is on disk when this returns.
        ///
        /// - Throws: `storeWriteFailed`: no reply may have the signature then.
        package func finish(outcome: JournalEntry.Outcome) throws(ProviderError) {
            var bytes = JournalEntry.quoted(outcome)
            guard bytes.count <= Self.width else {
                throw ProviderError(.internal, "The journal has no room for the outcome '\(outcome)'.")
            }
            bytes += repeatElement(UInt8(ascii: " "), count: Self.width - bytes.count)
            // A removed file would be written, and the line lost.
            var status = stat()
            guard fstat(file, &status) == 0, status.st_nlink > 0 else {
                throw RequestJournal.notWritten("\(path) was removed by another process")
            }
            guard lseek(file, place, SEEK_SET) == place,
                bytes.withUnsafeBytes({ files.write(file, $0) }) == bytes.count, files.synchronize(file) == 0
            else { throw RequestJournal.notWritten("\(path) cannot be written to: \(errorText(errno))") }
        }
    }

    private func withLock<Result>(
        _ body: (SafeDirectory) throws(ProviderError) -> Result
    ) throws(ProviderError) -> Result {
        let directory: SafeDirectory
        let lock: StoreLock
        do throws(SafeDirectory.Refusal) {
            directory = try SafeDirectory.create(self.directory, files)
            lock = try StoreLock(in: directory, timeout: StoreLock.timeout, files)
        } catch {
            throw Self.notWritten(error.reason, isBusy: error.isBusy)
        }
        defer { withExtendedLifetime(lock) {} }
        return try body(directory)
    }

    /// Writes a line at the end of the journal and flushes it. After a failure the journal is as it was before. Call it with the lock held.
    ///
    /// - Returns: The journal, open for writing, and the place of the line's outcome.
    private func add(
        _ entry: JournalEntry, width: Int, in directory: SafeDirectory
    ) throws(ProviderError) -> (file: Int32, outcome: off_t) {
        let line = try entry.line(width: width)
        do throws(SafeDirectory.Refusal) {
            try rotate(directory)
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
            throw Self.notWritten(error.reason)
        }
    }

    /// Begins a new file if this one is large, and removes the oldest that have nothing of the last day.
    ///
    /// An outcome that is open finds its place in the renamed file. A kill in between leaves more files than needed, until the next time.
    private func rotate(_ directory: SafeDirectory) throws(SafeDirectory.Refusal) {
        func size(of name: String) -> Int {
            var status = stat()
            let isFile = fstatat(directory.descriptor, name, &status, AT_SYMLINK_NOFOLLOW) == 0
            return isFile && status.st_mode & S_IFMT == S_IFREG ? Int(status.st_size) : 0
        }
        guard size(of: Self.name) >= limits.file else { return }
        let next = (try Self.olderFiles(in: directory).last ?? 0) + 1
        guard files.rename(directory.descriptor, Self.name, Self.name(of: next)) == 0 else {
            throw directory.failure("\(directory.path)/\(Self.name) cannot be renamed")
        }
        try directory.flush(files)
        var older = try Self.olderFiles(in: directory).map {
            (name: Self.name(of: $0), size: size(of: Self.name(of: $0)))
        }
        var left = older.reduce(0) { $0 + $1.size }
        // The newest stays, so that the log does not begin anew.
        _ = older.popLast()
        for file in older where left > limits.older && !isNeeded(file.name, in: directory) {
            if files.unlink(directory.descriptor, file.name) == 0 { left -= file.size }
        }
    }

    private static func name(of older: Int) -> String { "journal.\(older).jsonl" }

    /// The numbers of the older files, the oldest first.
    private static func olderFiles(in directory: SafeDirectory) throws(SafeDirectory.Refusal) -> [Int] {
        try directory.entries().compactMap { entry in
            let parts = entry.split(separator: ".", omittingEmptySubsequences: false)
            guard parts.count == 3, let number = Int(parts[1]), (1..<Int.max).contains(number) else { return nil }
            return name(of: number) == entry ? number : nil
        }.sorted()
    }

    /// Whether a file has a line that a request without a person depends on. One that cannot be read has.
    private func isNeeded(_ name: String, in directory: SafeDirectory) -> Bool {
        guard let descriptor = try? directory.openFile(name) else { return true }
        let file = File(descriptor)
        var isNeeded = false
        let limit = Limit(now().addingTimeInterval(-Double(Self.memory.components.seconds)))
        let words = ["outcome": ["signed", "interrupted"], "approver": [JournalEntry.unattended]]
        let texts = words.flatMap { key, values in values.map { "\"\(key)\":\"\($0)\"" } }
        do throws(ProviderError) {
            for text in texts where !isNeeded {
                try lines(of: file, from: 0, with: Array(text.utf8)) { line in
                    isNeeded = isNeeded || Self.entry(line, after: limit) != nil
                }
            }
        } catch { return true }
        return isNeeded
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

    fileprivate static func notWritten(_ reason: String, isBusy: Bool = false) -> ProviderError {
        SafeDirectory.Refusal(reason: reason, isBusy: isBusy).error(
            .storeWriteFailed,
            "The journal of signing requests cannot be written, so nothing is signed: \(reason.withVisibleControls).")
    }

    // MARK: - Reading

    /// Whether this data was signed for this client within the last `time`, or a process ended, or is, while it signs. An entry of the future
    /// counts: the clock has been set back.
    ///
    /// - Throws: `storeReadFailed`.
    package func wasSigned(
        _ digest: String, client: Int, within time: Duration
    ) throws(ProviderError) -> Bool {
        var found = false
        try read(with: digest, "\"client\":\(client),", within: time) { entry in
            found =
                found
                || entry.digest == digest && entry.client == client
                    && [.signed, .interrupted].contains(entry.outcome)
        }
        return found
    }

    /// When this data was signed last, for any client; `nil` if it was not, as far as there are files.
    ///
    /// - Throws: `storeReadFailed`.
    package func lastSigned(_ digest: String) throws(ProviderError) -> Date? {
        var last: Date?
        try read(with: digest, "\"outcome\":\"signed\"", within: nil) { entry in
            if entry.digest == digest, entry.outcome == .signed { last = entry.time }
        }
        return last
    }

    /// How many requests of this client a rule has approved within the last `time`, whatever became of their signatures.
    ///
    /// - Throws: As ``wasSigned(_:client:within:)``.
    package func unattendedApprovals(client: Int, within time: Duration) throws(ProviderError) -> Int {
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
    ) throws(ProviderError) -> (entries: [JournalEntry], damaged: Int) {
        var (entries, damaged) = ([JournalEntry](), 0)
        for file in try openFiles() {
            let left = count - entries.count - damaged
            guard left > 0 else { break }
            var older: [JournalEntry] = []
            try lines(of: file, from: try start(of: file, lines: left), with: [Self.lineEnd]) { line in
                if let entry = Self.entry(line) { older.append(entry) } else { damaged += 1 }
            }
            entries = older + entries
        }
        return (entries, damaged)
    }

    /// The place in a file where its last lines begin.
    private func start(of file: File, lines wanted: Int) throws(ProviderError) -> Int {
        // Back to the end of the line before them.
        var (start, left) = (file.size - 1, wanted)
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: Self.chunk, alignment: 16)
        defer { buffer.deallocate() }
        while start > 0 {
            let from = max(0, start - Self.chunk)
            let count = try read(file, buffer, at: from, atMost: start - from)
            guard from + count == start else { break }
            for index in (0..<(start - from)).reversed() where buffer[index] == Self.lineEnd {
                left -= 1
                if left == 0 { return from + index + 1 }
            }
            start = from
        }
        return 0
    }

    /// How many lines a client has of the last minute: of the newest mebibyte, which is more than one client has.
    private func linesOfLastMinute(of client: Int) throws(ProviderError) -> Int {
        guard let file = try openFiles().first else { return 0 }
        let (start, end) = (now().addingTimeInterval(-60), now().addingTimeInterval(60))
        var count = 0
        try lines(of: file, from: max(0, file.size - Self.chunk), with: Array("\"client\":\(client),".utf8)) { line in
            if let entry = Self.entry(line), entry.client == client, entry.time > start, entry.time < end { count += 1 }
        }
        return count
    }

    /// Calls `visit` with the entries that have two texts in their lines, the oldest first.
    ///
    /// - Parameter time: `nil` for entries of any age.
    private func read(
        with first: String, _ second: String, within time: Duration?, _ visit: (JournalEntry) -> Void
    ) throws(ProviderError) {
        let limit = time.map { Limit(now().addingTimeInterval(-Double($0.components.seconds))) }
        let second = Array(second.utf8)
        for file in try openFiles().reversed() {
            try lines(of: file, from: 0, with: Array(first.utf8)) { line in
                if Self.find(second, in: line) != nil, let entry = Self.entry(line, after: limit) { visit(entry) }
            }
        }
    }

    /// A file that is open for reading, and its size then.
    private final class File {
        let descriptor: Int32
        let status: stat

        init(_ descriptor: Int32) {
            self.descriptor = descriptor
            var status = stat()
            fstat(descriptor, &status)
            self.status = status
        }

        deinit { close(descriptor) }

        var size: Int { Int(status.st_size) }
    }

    /// The files of the journal, the newest first.
    private func openFiles() throws(ProviderError) -> [File] {
        do throws(SafeDirectory.Refusal) {
            guard let directory = try SafeDirectory.open(directory) else { return [] }
            // The newest before the names are read: it may be renamed in between, and is there twice then, but never missing.
            var found = try directory.openFile(Self.name).map { [File($0)] } ?? []
            for number in try Self.olderFiles(in: directory).reversed() {
                // One that was removed had nothing of interest.
                guard let descriptor = try directory.openFile(Self.name(of: number)) else { continue }
                let file = File(descriptor)
                if !found.contains(where: { $0.status.st_ino == file.status.st_ino }) { found.append(file) }
            }
            return found
        } catch {
            throw Self.notRead(error.reason)
        }
    }

    private static func notRead(_ reason: String) -> ProviderError {
        ProviderError(
            .storeReadFailed, "The journal of signing requests cannot be read: \(reason.withVisibleControls).")
    }

    private static let chunk = 1 << 20

    /// Calls `visit` with each whole line, without its end, that has a text.
    private func lines(
        of file: File, from start: Int, with needle: [UInt8], _ visit: (UnsafeRawBufferPointer) -> Void
    ) throws(ProviderError) {
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
        _ file: File, _ buffer: UnsafeMutableRawBufferPointer, at offset: Int, atMost limit: Int
    ) throws(ProviderError) -> Int {
        while true {
            let count = pread(file.descriptor, buffer.baseAddress, limit, off_t(offset))
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

    /// Reads a line; `nil` for one that is damaged, or older.
    private static func entry(_ line: UnsafeRawBufferPointer, after limit: Limit?) -> JournalEntry? {
        guard let limit else { return entry(line) }
        // Before the line is parsed: there may be very many that are older.
        if let text = time(of: line), text.lexicographicallyPrecedes(limit.text) { return nil }
        return entry(line).flatMap { $0.time > limit.time ? $0 : nil }
    }

    /// A time, also as lines have it.
    private struct Limit {
        let time: Date
        let text: [UInt8]

        init(_ time: Date) { (self.time, text) = (time, Array(JournalEntry.text(of: time).utf8)) }
    }

    /// Reads a line; `nil` for one that is damaged.
    static func entry(_ line: UnsafeRawBufferPointer) -> JournalEntry? {
        guard line.count < JournalEntry.maximumSize else { return nil }
        return try? JSONDecoder().decode(JournalEntry.self, from: Data(line))
    }
}
