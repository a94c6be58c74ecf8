import CertificateProviding
import Glibc
import Synchronization
import SystemPackage

/// Says, again and again and at the least cost, in which state one entry's file is.
///
/// It keeps a descriptor of the file: asking that one costs a third of asking by path. A file that is replaced, removed
/// or renamed shows it by its link count and change time. What the file cannot show is that a directory above it was
/// moved aside, so that it is opened anew by its path once in a while.
final class EntryWatch: Sendable {
    /// For how long a directory that was moved aside may go unnoticed.
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

    /// Returns the state of the file `name` as it was an instant ago, when it is the one that was looked at before and
    /// has not changed since; otherwise `nil`.
    func version(ofUnchanged name: String) -> EntryVersion? {
        guard let watched = watched.withLock({ $0 }), watched.name == name, now() < watched.end,
            watched.file.version() == watched.version
        else { return nil }
        return watched.version
    }

    /// Looks the file up by its path; `nil` where there is none or it cannot be opened.
    func look(at path: String, name: String) -> EntryVersion? {
        let new = OpenFile(path).flatMap { file in
            file.version().map { Watched(name: name, file: file, version: $0, end: now() + Self.validity) }
        }
        watched.withLock { $0 = new }
        return new?.version
    }

    /// Lets the file go, so that its place on the disk becomes free once it is removed.
    func end() { watched.withLock { $0 = nil } }
}

/// A descriptor that is only asked about its file.
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
