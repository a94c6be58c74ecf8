import Synchronization

/// Lets only the first of several threads act.
final class Latch: Sendable {
    private let isDone = Atomic(false)

    var hasHappened: Bool { isDone.load(ordering: .acquiring) }

    /// Whether no other call has returned true.
    func isFirst() -> Bool { !isDone.exchange(true, ordering: .acquiringAndReleasing) }
}
