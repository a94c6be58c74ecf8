import Synchronization

/// The lease of a record: while this value exists, no other process or thread can get the lease. It is released when
/// this value is, or when the process ends.
public final class RecordLease: Sendable {
    private let looksAwaited: @Sendable () -> Bool
    private let note: @Sendable (_ isUnsettled: Bool) -> Void
    private let state: Mutex<Bool>

    /// Creates a lease, for implementations of ``IdentityStorage``. The lease is held as long as the closures exist.
    /// - Parameters:
    ///   - isUnsettled: The value that was noted last.
    ///   - isAwaited: Returns whether another user has asked for the lease since this one took it.
    ///   - note: Stores the value of ``isUnsettled``. Called by one thread at a time.
    public init(
        isUnsettled: Bool, isAwaited: @escaping @Sendable () -> Bool,
        note: @escaping @Sendable (_ isUnsettled: Bool) -> Void
    ) {
        self.state = Mutex(isUnsettled)
        self.looksAwaited = isAwaited
        self.note = note
    }

    /// Whether another process, or another user in this one, waits for the lease. A hint only: a waiting process may
    /// have been unable to say so, or may have given up.
    public var isAwaited: Bool { looksAwaited() }

    /// Whether an operation is in progress that the record does not show yet, or was when its process ended. The value
    /// passes to the next holders of the lease, until one of them has found out the operation's result and sets
    /// `false`.
    ///
    /// Survives the end of the process, as far as the disk permits, but not always a power failure; data that must
    /// survive that belongs into the record.
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

extension IdentityStorage {
    /// Runs work with the lease of a record. Blocks as long as the work does.
    ///
    /// - Returns: The result of the work; `nil` while another process or thread has the lease. The work is not started
    ///   then.
    /// - Throws: `storeWriteFailed` if the lease cannot be taken, and the error of the work.
    public func withLease<Result>(
        of record: String, _ work: () throws(ProviderError) -> Result
    ) throws(ProviderError) -> Result? {
        guard let lease = try leaseRecord(named: record) else { return nil }
        defer { withExtendedLifetime(lease) {} }
        return try work()
    }
}

extension ProviderEnvironment {
    /// Runs work with the lease of a record of ``storage``. The lease is taken on ``executor``.
    ///
    /// - Returns: The result of the work; `nil` while another process or thread has the lease. The work is not started
    ///   then.
    /// - Throws: `storeWriteFailed` if the lease cannot be taken, and the error of the work.
    public func withLease<Result>(
        of record: String, _ work: () async throws(ProviderError) -> Result
    ) async throws(ProviderError) -> Result? {
        let lease = try await executor.run { [storage] () throws(ProviderError) in
            try storage.leaseRecord(named: record)
        }
        guard let lease else { return nil }
        defer { withExtendedLifetime(lease) {} }
        return try await work()
    }
}
