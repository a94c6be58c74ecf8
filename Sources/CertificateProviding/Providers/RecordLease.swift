import Synchronization

/// A record that is claimed: no other user has its claim until this value goes, or its process ends.
public final class RecordLease: Sendable {
    private let looksAwaited: @Sendable () -> Bool
    private let note: @Sendable (_ isUnsettled: Bool) -> Void
    private let state: Mutex<Bool>

    /// For those who implement ``IdentityStorage``. The claim is held for as long as the closures are.
    /// - Parameters:
    ///   - isUnsettled: The value that was noted last.
    ///   - isAwaited: Says whether another user has asked for the claim in vain since this one has it.
    ///   - note: Keeps what ``isUnsettled`` is set to. Called by one thread at a time.
    public init(
        isUnsettled: Bool, isAwaited: @escaping @Sendable () -> Bool,
        note: @escaping @Sendable (_ isUnsettled: Bool) -> Void
    ) {
        self.state = Mutex(isUnsettled)
        self.looksAwaited = isAwaited
        self.note = note
    }

    /// Whether another process, or another user in this one, waits for the claim. Not certain: one that waits may have
    /// been unable to say so, and one that did may have gone.
    public var isAwaited: Bool { looksAwaited() }

    /// Whether something is under way that the record does not tell of, or was when its process ended. Stays as it was
    /// set, also for those who have the claim next, until one that has found out what came of it says `false`.
    ///
    /// Survives the end of a process however that came, as far as the disk permits, but not always a loss of power: what
    /// must not be lost then belongs into the record.
    public var isUnsettled: Bool {
        get { state.withLock { $0 } }
        set {
            state.withLock { state in
                guard state != newValue else { return }
                state = newValue
                note(newValue)
            }
        }
    }
}
