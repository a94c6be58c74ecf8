import Synchronization

/// A record that is claimed: nobody else has its claim until this value goes, or its process ends.
public final class RecordClaim: Sendable {
    private let giveBack: @Sendable (_ isInterrupted: Bool) -> Void
    private let state: Atomic<Bool>

    /// For those who implement ``IdentityStorage``.
    /// - Parameter giveBack: Called once, when the last user has let the claim go.
    public init(isInterrupted: Bool, giveBack: @escaping @Sendable (_ isInterrupted: Bool) -> Void) {
        self.state = Atomic(isInterrupted)
        self.giveBack = giveBack
    }

    deinit { giveBack(isInterrupted) }

    /// Whether a process was killed while it had the claim. Stays so, also for those who have it next, until somebody
    /// who has found out what came of it says `false`.
    ///
    /// Survives the end of a process however that came, but not always a loss of power: what must not be lost then
    /// belongs into the record.
    public var isInterrupted: Bool {
        get { state.load(ordering: .acquiring) }
        set { state.store(newValue, ordering: .releasing) }
    }
}
