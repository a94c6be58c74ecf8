public import CertificateProviding
import Synchronization

/// Identity storage that forgets, and that fails on demand.
public final class InMemoryStorage: IdentityStorage {
    private struct State {
        var entries: [String: StoredIdentity] = [:]
        var records: [String: SecretBytes] = [:]
        var generation: Int64 = 0
        /// Whether each of those that are held is waited for.
        var claims: [String: Bool] = [:]
        var interrupted: Set<String> = []
        var failure: ProviderError?
        var isReadable = false
    }
    private let state: Mutex<State>

    public init() { state = Mutex(State()) }

    private init(_ state: State) { self.state = Mutex(state) }

    /// Every following call throws `error`, or only every one that writes; `nil` ends that.
    public func fail(with error: ProviderError?, whenReading: Bool = true) {
        state.withLock {
            $0.failure = error
            $0.isReadable = !whenReading
        }
    }

    /// Returns the state for a process that is started after one with this storage was killed at this moment.
    ///
    /// - Parameter losingPower: Forgets unflushed writes.
    public func afterCrash(losingPower: Bool = false) -> InMemoryStorage {
        InMemoryStorage(
            state.withLock { state in
                var state = state
                if losingPower { state.interrupted = [] }
                state.claims = [:]
                return state
            })
    }

    public func entry(named name: String) throws(ProviderError) -> StoredIdentity? {
        try access(writing: false) { $0.entries[name] }
    }

    /// The names of the stored entries.
    public func entryNames() throws(ProviderError) -> [String] {
        try access(writing: false) { $0.entries.keys.sorted() }
    }
    public func recordNames() throws(ProviderError) -> [String] {
        try access(writing: false) { $0.records.keys.sorted() }
    }

    public func setEntry(_ identity: StoredIdentity, named name: String) throws(ProviderError) {
        try access { state in
            state.entries[name] = identity
            state.generation += 1
        }
    }

    public func removeEntry(named name: String) throws(ProviderError) {
        try access { state in
            state.entries[name] = nil
            state.generation += 1
        }
    }

    public func record(named name: String) throws(ProviderError) -> SecretBytes? {
        try access(writing: false) { $0.records[name] }
    }

    public func updateRecord(
        named name: String, _ change: (SecretBytes?) throws(ProviderError) -> SecretBytes?
    ) throws(ProviderError) {
        try state.withLock { state throws(ProviderError) in
            if let failure = state.failure, !state.isReadable { throw failure }
            guard let new = try change(state.records[name]) else { return }
            if let failure = state.failure { throw failure }
            state.records[name] = new.isEmpty ? nil : new
        }
    }

    public func leaseRecord(named name: String) throws(ProviderError) -> RecordLease? {
        let wasInterrupted: Bool? = try access(writing: false) { state in
            guard state.claims.updateValue(true, forKey: name) == nil else { return nil }
            state.claims[name] = false
            return state.interrupted.contains(name)
        }
        return wasInterrupted.map { wasInterrupted in
            let held = Held(name: name, storage: self)
            return RecordLease(isUnsettled: wasInterrupted) {
                held.storage.state.withLock { $0.claims[name] ?? false }
            } note: { isUnsettled in
                held.storage.state.withLock { state in
                    if isUnsettled { state.interrupted.insert(name) } else { state.interrupted.remove(name) }
                }
            }
        }
    }

    /// Gives a claim back when its last user has let it go.
    private final class Held: Sendable {
        let name: String
        let storage: InMemoryStorage

        init(name: String, storage: InMemoryStorage) {
            self.name = name
            self.storage = storage
        }

        deinit { storage.state.withLock { $0.claims[name] = nil } }
    }

    private func access<T: Sendable>(
        writing: Bool = true, _ body: (inout State) -> T
    ) throws(ProviderError) -> T {
        let result: Result<T, ProviderError> = state.withLock { state in
            if let failure = state.failure, writing || !state.isReadable { return .failure(failure) }
            return .success(body(&state))
        }
        return try result.get()
    }
}
