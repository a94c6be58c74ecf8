import Glibc

/// Counts how often a file is opened (inotify).
final class OpenCount {
    private let descriptor: Int32

    init(of path: String) throws {
        descriptor = inotify_init1(O_NONBLOCK | O_CLOEXEC)
        // With the closing between, two openings are not taken for one.
        guard descriptor >= 0, inotify_add_watch(descriptor, path, UInt32(IN_OPEN | IN_CLOSE)) >= 0 else {
            throw CancellationError()
        }
    }

    deinit { close(descriptor) }

    /// The number since the last call.
    var count: Int {
        var events = [inotify_event](repeating: inotify_event(), count: 4096)
        let size = MemoryLayout<inotify_event>.stride
        let bytes = read(descriptor, &events, events.count * size)
        return events.prefix(max(0, bytes) / size).count { $0.mask & UInt32(IN_OPEN) != 0 }
    }
}
