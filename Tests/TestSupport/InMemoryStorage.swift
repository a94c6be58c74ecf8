public import CertificateProviding
import Synchronization

/// Identity storage that forgets, and that fails on demand.
public final class InMemoryStorage: IdentityStorage {
    private struct State {
        var entries: [String: StoredIdentity] = [:]
        var records: [String: SecretBytes] = [:]
        var generation: Int64 = 0
        var failure: CertificateProviderError?
    }
    private let state = Mutex(State())

    public init() {}

    /// Every following call throws `error`; `nil` ends that.
    public func fail(with error: CertificateProviderError?) { state.withLock { $0.failure = error } }

    public func entry(named name: String) throws(CertificateProviderError) -> StoredIdentity? {
        try access { $0.entries[name] }
    }

    public func version(ofEntryNamed name: String) throws(CertificateProviderError) -> EntryVersion? {
        try access { state in
            state.entries[name] == nil ? nil : EntryVersion(SIMD8(state.generation, 0, 0, 0, 0, 0, 0, 0))
        }
    }

    public func setEntry(_ identity: StoredIdentity, named name: String) throws(CertificateProviderError) {
        try access { state in
            state.entries[name] = identity
            state.generation += 1
        }
    }

    public func removeEntry(named name: String) throws(CertificateProviderError) {
        try access { state in
            state.entries[name] = nil
            state.generation += 1
        }
    }

    public func record(named name: String) throws(CertificateProviderError) -> SecretBytes? {
        try access { $0.records[name] }
    }

    public func setRecord(_ record: SecretBytes, named name: String) throws(CertificateProviderError) {
        try access { $0.records[name] = record }
    }

    private func access<T: Sendable>(_ body: (inout State) -> T) throws(CertificateProviderError) -> T {
        let result: Result<T, CertificateProviderError> = state.withLock { state in
            if let failure = state.failure { return .failure(failure) }
            return .success(body(&state))
        }
        return try result.get()
    }
}
