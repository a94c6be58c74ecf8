import CertificateProviding
import Glibc
import Synchronization
import SystemPackage

/// Returns the state of one entry's file, cheaply and repeatedly.
///
/// It keeps a descriptor of the file open: `fstat` on it costs a third of a lookup by path. The link count and change
/// time show that the file was replaced, removed or renamed. They do not show that a directory above it was moved, so
/// the file is looked up by its path again after ``validity``.
final class EntryWatch: Sendable {
    /// How long a moved directory may go unnoticed.
    static let validity = Duration.milliseconds(100)

    private struct Watched {
        let name: String
        let file: OpenFile
        let version: EntryVersion
        let end: ContinuousClock.Instant
    }

    private let watched = Mutex<Watched?>(nil)
    private let now: @Sendable () -> ContinuousClock.Instant

    init(now: @escaping @Sendable () -> ContinuousClock.Instant) { self.now = now }

    /// Returns the state of the file `name` if it is the file of the last lookup and unchanged since; otherwise `nil`.
    func version(ofUnchanged name: String) -> EntryVersion? {
        guard let watched = watched.withLock({ $0 }), watched.name == name, now() < watched.end,
            watched.file.version() == watched.version
        else { return nil }
        return watched.version
    }

    /// Looks up the file by its path; `nil` if it does not exist or cannot be opened.
    func look(at path: String, name: String) -> EntryVersion? {
        let new = OpenFile(path).flatMap { file in
            file.version().map { Watched(name: name, file: file, version: $0, end: now() + Self.validity) }
        }
        watched.withLock { $0 = new }
        return new?.version
    }

    /// Closes the file, so that its disk space is freed after it was removed.
    func end() { watched.withLock { $0 = nil } }
}

/// A descriptor that is used for `fstat` only.
private final class OpenFile: Sendable {
    private let descriptor: Int32

    init?(_ path: String) {
        descriptor = open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC)
        if descriptor < 0 { return nil }
    }

    deinit { close(descriptor) }

    func version() -> EntryVersion? {
        var raw = CInterop.Stat()
        return fstat(descriptor, &raw) == 0 ? EntryVersion(raw) : nil
    }
}

extension EntryVersion {
    init(_ status: CInterop.Stat) {
        let (modified, changed) = (status.st_mtim, status.st_ctim)
        self.init(
            SIMD8(
                Int64(truncatingIfNeeded: status.st_dev), Int64(truncatingIfNeeded: status.st_ino),
                Int64(status.st_size), Int64(modified.tv_sec), Int64(modified.tv_nsec), Int64(changed.tv_sec),
                Int64(changed.tv_nsec), Int64(truncatingIfNeeded: status.st_nlink)))
    }
}
