import Synchronization

/// Lets the calls of one key, such as a user, run one after the other, so that many of them hold up no other key.
package final class Turns<Key: Hashable & Sendable>: Sendable {
    /// Those that wait, of each key that has its turn.
    private let waiting = Mutex<[Key: [CheckedContinuation<Void, Never>]]>([:])

    package init() {}

    /// Runs `body` when the calls of the key that came before have ended.
    package func run<T>(_ key: Key, _ body: () async throws -> T) async rethrows -> T {
        await withCheckedContinuation { continuation in
            let isFree = waiting.withLock { waiting in
                let isFree = waiting[key] == nil
                if isFree { waiting[key] = [] } else { waiting[key]?.append(continuation) }
                return isFree
            }
            if isFree { continuation.resume() }
        }
        defer { end(key) }
        return try await body()
    }

    private func end(_ key: Key) {
        let next = waiting.withLock { waiting in
            guard var queue = waiting[key], !queue.isEmpty else {
                waiting[key] = nil
                return nil as CheckedContinuation<Void, Never>?
            }
            let next = queue.removeFirst()
            waiting[key] = queue
            return next
        }
        next?.resume()
    }
}
