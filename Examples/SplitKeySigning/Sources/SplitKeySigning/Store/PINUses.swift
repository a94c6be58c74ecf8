import CertificateProviding
import FoundationEssentials
import Glibc

/// What became of PINs from configured sources. A source is known by where it is; nothing is computed from a PIN.
struct PINUses: Sendable {
    private let storage: any IdentityStorage

    init(_ storage: any IdentityStorage) { self.storage = storage }

    /// A source as it is at one moment: a change of its file makes it another one.
    struct Source: Equatable, Sendable {
        let text: String
        let description: String
        /// When a file was changed; `nil` for another source.
        let changed: Date?

        /// Whether it is another source after a change. A variable, a credential and a descriptor are known by their names.
        var isFile: Bool { changed != nil }

        /// - Throws: `fileNotFound` for a file that is not there; `configurationInvalid` for a pipe, of which nothing tells whether it has
        ///   another PIN than before.
        init(_ source: SecretSource) throws(ProviderError) {
            description = source.description
            guard let path = source.filePath else {
                (text, changed) = (source.description, nil)
                return
            }
            var status = stat()
            guard stat(path, &status) == 0 else {
                throw ProviderError(
                    .fileNotFound, "The PIN \(source) cannot be read: \(String(cString: strerror(errno))).")
            }
            guard status.st_mode & S_IFMT == S_IFREG else {
                throw ProviderError(
                    .configurationInvalid, "The PIN \(source) is not a regular file; name one, or pass a pipe as fd:N.")
            }
            changed = Date(
                timeIntervalSince1970: Double(status.st_mtim.tv_sec) + Double(status.st_mtim.tv_nsec) / 1_000_000_000)
            let time = "\(status.st_mtim.tv_sec).\(status.st_mtim.tv_nsec)"
            // The same file by another name is the same source.
            text = "file \(status.st_dev) \(status.st_ino) \(status.st_size) \(time)"
        }
    }

    private struct Record: Codable {
        /// The latest last.
        var uses: [Use] = []
    }
    private struct Use: Codable {
        let source: String
        /// Uses without a verdict, such as one that the end of the process has cut off.
        var pending = 0
        var isRejected = false
        /// Whether the authority has blocked the key, which it does for good.
        var isBlocked: Bool?
    }

    /// When what was known of a key's sources was lost.
    private struct Loss: Codable {
        var time = Date()
    }

    /// What is known of a source.
    enum Verdict {
        case usable, rejected, blocked
        /// What was known is lost: it may have been rejected.
        case unknown
        /// The authority may have counted it: the third try is for a person.
        case unanswered
    }

    /// The authority blocks a key after three wrong PINs.
    private static let maximumPending = 2
    private static let maximumSources = 16

    private static func name(_ key: String) -> String { "pin-\(key)" }
    private static func lossName(_ key: String) -> String { "lost-\(key)" }

    /// The lease that uses of a key's PIN take turns by.
    static func lease(_ key: String) -> String { name(key) }

    /// What is known of a source. A record that is damaged is removed: after that, no source is usable that may have been in it.
    func verdict(_ source: Source, for key: String) throws(ProviderError) -> Verdict {
        do throws(ProviderError) {
            let record = try record(try storage.record(named: Self.name(key)), key)
            if let use = record.uses.first(where: { $0.source == source.text }) { return Self.verdict(use) }
        } catch {
            guard error.reason == .damaged else { throw error }
            let loss = try VersionedRecord(named: Self.lossName(key)).record(of: Loss())
            try storage.updateRecord(named: Self.lossName(key)) { _ in loss }
            try storage.removeRecord(named: Self.name(key))
        }
        guard let stored = try storage.record(named: Self.lossName(key)) else { return .usable }
        let loss = try VersionedRecord<Loss>(named: Self.lossName(key)).content(of: stored)
        return source.changed.map { loss.time < $0 } == true ? .usable : .unknown
    }

    private static func verdict(_ use: Use) -> Verdict {
        if use.isRejected { return use.isBlocked == true ? .blocked : .rejected }
        return use.pending < maximumPending ? .usable : .unanswered
    }

    /// Writes down that the PIN is used now.
    ///
    /// - Returns: Whether it may be. If not, nothing is written.
    func begin(_ source: Source, for key: String) throws(ProviderError) -> Bool {
        var mayBeUsed = true
        try change(source, key) { use in
            mayBeUsed = Self.verdict(use) == .usable
            use.pending += 1
            return mayBeUsed
        }
        return mayBeUsed
    }

    /// Writes down that the PIN was wrong, or the key is blocked.
    func reject(_ source: Source, for key: String, isBlocked: Bool = false) throws(ProviderError) {
        try change(source, key) { use in
            (use.pending, use.isRejected, use.isBlocked) = (0, true, isBlocked ? true : nil)
            return true
        }
    }

    /// Writes down that the PIN was right. Other sources stay rejected.
    func accept(_ source: Source, for key: String) throws(ProviderError) {
        try change(source, key) { use in
            use.pending = 0
            return true
        }
    }

    /// Writes down that the authority has not looked at the PIN, or has said something else of it.
    func withdraw(_ source: Source, for key: String) throws(ProviderError) {
        try change(source, key) { use in
            use.pending = max(0, use.pending - 1)
            return true
        }
    }

    private func change(
        _ source: Source, _ key: String, _ body: (inout Use) -> Bool
    ) throws(ProviderError) {
        try storage.updateRecord(named: Self.name(key)) { stored throws(ProviderError) in
            var record = try self.record(stored, key)
            var use = record.uses.first { $0.source == source.text } ?? Use(source: source.text)
            guard body(&use) else { return nil }
            record.uses.removeAll { $0.source == source.text }
            if use.pending > 0 || use.isRejected { record.uses = record.uses.suffix(Self.maximumSources - 1) + [use] }
            return record.uses.isEmpty
                ? SecretBytes(copying: []) : try VersionedRecord(named: Self.name(key)).record(of: record)
        }
    }

    /// Forgets all sources, of a key that has another PIN.
    func forget(_ key: String) throws(ProviderError) {
        try storage.removeRecord(named: Self.name(key))
        try storage.removeRecord(named: Self.lossName(key))
    }

    private func record(_ stored: SecretBytes?, _ key: String) throws(ProviderError) -> Record {
        guard let stored else { return Record() }
        return try VersionedRecord<Record>(named: Self.name(key)).content(of: stored)
    }
}
