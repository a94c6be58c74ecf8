package import Glibc
import Synchronization

/// Counts things at one time, such as connections: in total and for each key, such as a user.
package final class Places<Key: Hashable & Sendable>: Sendable {
    let total: Int
    private let each: Int
    private let counts = Mutex<(all: Int, of: [Key: Int])>((0, [:]))

    package init(total: Int, each: Int) { (self.total, self.each) = (total, each) }

    /// A place, until the object ends.
    package final class Place: Sendable {
        private let places: Places
        private let key: Key

        fileprivate init(_ places: Places, _ key: Key) { (self.places, self.key) = (places, key) }

        deinit {
            places.counts.withLock { counts in
                counts.all -= 1
                let rest = counts.of[key, default: 1] - 1
                counts.of[key] = rest > 0 ? rest : nil
            }
        }
    }

    /// Returns a place; `nil` if all are taken, or all that this key may have.
    package func take(_ key: Key) -> Place? {
        let isFree = counts.withLock { counts in
            guard counts.all < total, counts.of[key, default: 0] < each else { return false }
            counts.all += 1
            counts.of[key, default: 0] += 1
            return true
        }
        return isFree ? Place(self, key) : nil
    }
}

extension Places<Int> {
    /// Connections of this process, of all its sockets for other users, by the descriptors that it may have.
    package static let ofProcess = Places(
        total: {
            var limit = rlimit()
            return getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0
                ? connections(limit.rlim_cur) : 1000
        }(), each: .max)

    /// The reason for the log.
    package static let isFull =
        "the limit of descriptors permits no more connections; raise LimitNOFILE= of the unit, or ulimit -n"

    /// The connections that a limit of descriptors permits. libdispatch ends a process that has no descriptor left: each connection has two,
    /// and the other parts of the process keep 256.
    package static func connections(_ limit: rlim_t) -> Int { max(16, Int(clamping: limit) / 2 - 128) }
}
