import CertificateProviding
import Contracts
import Foundation
import Synchronization

/// A disk in memory, for the records and documents of a host. It is full when it is told so.
final class SimulatedDisk: IdentityStorage, DocumentKeeping {
    private struct Content {
        var records: [String: SecretBytes] = [:]
        var documents: [String: [UInt8]] = [:]
        var leased: Set<String> = []
        /// The writes until the disk is full; `nil` for a disk with room.
        var writesLeft: Int?
    }
    private let content = Mutex(Content())

    /// Has the disk be full after some writes; `nil` for room.
    func fill(after writes: Int?) { content.withLock { $0.writesLeft = writes } }

    private static func spend(_ content: inout Content) throws(ProviderError) {
        guard let left = content.writesLeft else { return }
        guard left > 0 else { throw ProviderError(.storeWriteFailed, "The disk is full.") }
        content.writesLeft = left - 1
    }

    private func with<R>(
        _ body: (inout Content) throws(ProviderError) -> R
    ) throws(ProviderError) -> R {
        let result = content.withLock { content in
            nonisolated(unsafe) let result = Result { () throws(ProviderError) in try body(&content) }
            return result
        }
        return try result.get()
    }

    // MARK: Records

    func entry(named name: String) throws(ProviderError) -> StoredIdentity? { nil }
    func setEntry(_ identity: StoredIdentity, named name: String) throws(ProviderError) {}
    func removeEntry(named name: String) throws(ProviderError) {}
    func entryNames() throws(ProviderError) -> [String] { [] }
    func recordNames() throws(ProviderError) -> [String] { content.withLock { $0.records.keys.sorted() } }
    func record(named name: String) throws(ProviderError) -> SecretBytes? {
        content.withLock { $0.records[name] }
    }

    func updateRecord(
        named name: String, _ change: (SecretBytes?) throws(ProviderError) -> SecretBytes?
    ) throws(ProviderError) {
        guard let new = try change(try record(named: name)) else { return }
        try with { content throws(ProviderError) in
            // A full disk has room for what is removed.
            if !new.isEmpty { try Self.spend(&content) }
            content.records[name] = new.isEmpty ? nil : new
        }
    }

    func leaseRecord(named name: String) throws(ProviderError) -> RecordLease? {
        let isFree = content.withLock { $0.leased.insert(name).inserted }
        guard isFree else { return nil }
        let end = End { [self] in _ = content.withLock { $0.leased.remove(name) } }
        return RecordLease(isUnsettled: false) {
            _ = end; return false
        } note: { _ in
        }
    }

    /// Calls its closure when the last reference to it is gone.
    private final class End: Sendable {
        let body: @Sendable () -> Void
        init(_ body: @escaping @Sendable () -> Void) { self.body = body }
        deinit { body() }
    }

    // MARK: Documents

    func write(_ bytes: [UInt8]) throws(ProviderError) -> DocumentReference {
        let document = DocumentReference(of: bytes)
        try with { content throws(ProviderError) in
            guard content.documents[document.sha256] == nil else { return }
            try Self.spend(&content)
            content.documents[document.sha256] = bytes
        }
        return document
    }

    func read(_ document: DocumentReference) throws(ProviderError) -> [UInt8] {
        guard let bytes = content.withLock({ $0.documents[document.sha256] }) else {
            throw ProviderError(.storeReadFailed, "\(document.sha256) is not there.", reason: .damaged)
        }
        return bytes
    }

    func contains(_ document: DocumentReference) throws(ProviderError) -> Bool {
        content.withLock { $0.documents[document.sha256] != nil }
    }

    func remove(sha256 digest: String) throws(ProviderError) {
        content.withLock { $0.documents[digest] = nil }
    }

    func all() throws(ProviderError) -> [String] { content.withLock { Array($0.documents.keys) } }
    func path(of document: DocumentReference) -> String { "/memory/\(document.sha256)" }
    func whileKept<R>(_ body: () throws(ProviderError) -> R) throws(ProviderError) -> R {
        try body()
    }
    func whileAlone<R>(_ body: () throws(ProviderError) -> R) throws(ProviderError) -> R? {
        try body()
    }
}

/// A server that a host reaches over a bad connection: requests and answers get lost, and the host's process may be killed at any
/// call.
final class BadConnection: ContractServing {
    private let server: any ContractServing
    private struct State {
        var random: Randomness
        /// How likely a call fails.
        var badness: Double
        /// What the server has accepted with a new signature: the revisions by contract and signature.
        var accepted: [String: Set<Int>] = [:]
        /// All contracts and signatures that the server has accepted.
        var had: Set<String> = []
    }
    private let state: Mutex<State>

    init(_ server: any ContractServing, seed: UInt64) {
        self.server = server
        state = Mutex(State(random: Randomness(seed), badness: 0))
    }

    func set(badness: Double) { state.withLock { $0.badness = badness } }

    /// The revisions at which the server has accepted each signature.
    var accepted: [String: Set<Int>] { state.withLock(\.accepted) }
    /// The signatures that the server has accepted, by contract and signature.
    var had: Set<String> { state.withLock(\.had) }

    private static let lost = ProviderError(.unavailable, "The connection is lost.")

    private func through<R>(
        _ call: () async throws(ProviderError) -> R
    ) async throws(ProviderError) -> R {
        let (isLostBefore, isLostAfter) = state.withLock { state in
            (state.random.chance(state.badness), state.random.chance(state.badness))
        }
        if isLostBefore { throw Self.lost }
        let result = try await call()
        if isLostAfter { throw Self.lost }
        return result
    }

    func hasDocument(_ document: DocumentReference) async throws(ProviderError) -> Bool {
        try await through { () async throws(ProviderError) in try await server.hasDocument(document) }
    }
    func putDocument(_ content: [UInt8]) async throws(ProviderError) {
        try await through { () async throws(ProviderError) in try await server.putDocument(content) }
    }
    func document(_ document: DocumentReference) async throws(ProviderError) -> [UInt8] {
        try await through { () async throws(ProviderError) in try await server.document(document) }
    }
    func put(_ version: ContractVersion, after revision: Int?) async throws(ProviderError) -> PutOutcome {
        try await through { () async throws(ProviderError) in
            let outcome = try await server.put(version, after: revision)
            if case .accepted(let revision) = outcome, let last = version.approvals.last {
                state.withLock { state in
                    state.had.formUnion(version.approvals.map { "\(version.id) \($0.pdf.sha256)" })
                    guard version.state != .abandoned else { return }
                    state.accepted["\(version.id) \(last.pdf.sha256)", default: []].insert(revision)
                }
            }
            return outcome
        }
    }
    func changes(after cursor: String?, limit: Int) async throws(ProviderError) -> ContractChanges? {
        try await through { () async throws(ProviderError) in
            try await server.changes(after: cursor, limit: limit)
        }
    }
    func requestCode(_ request: CodeRequest) async throws(ProviderError) { try await server.requestCode(request) }
    func confirmCode(_ code: String, for request: CodeRequest) async throws(ProviderError) -> String {
        try await server.confirmCode(code, for: request)
    }
}

/// A generator with a seed (SplitMix64), so that a run can be repeated.
struct Randomness: RandomNumberGenerator {
    private var state: UInt64
    init(_ seed: UInt64) { state = seed }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }

    mutating func chance(_ probability: Double) -> Bool { Double.random(in: 0..<1, using: &self) < probability }
}
