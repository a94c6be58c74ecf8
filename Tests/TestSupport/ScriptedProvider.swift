public import CertificateProviding
import Synchronization

/// A provider that does what a test says, and remembers what it was asked. It has the abilities that a test gives it an answer for,
/// and announces deletions.
public final class ScriptedProvider: CertificateProvider {
    public typealias Get = @Sendable (any UserInteraction) async throws(ProviderError) -> Identity

    private struct State {
        var stored: Result<Identity?, ProviderError> = .success(nil)
        var deletion: Result<Void, ProviderError> = .success(())
        /// The objects that a deletion destroys outside the store.
        var announced: Result<[String], ProviderError> = .success([])
        var replacement: Result<Void, ProviderError>?
        var list: IdentityList?
        var get: Get = { _ throws(ProviderError) in
            throw ProviderError(.notFound, "There is nothing.")
        }
        var calls: [String] = []
        var storage: (any IdentityStorage)?
        var beforeDeletion: @Sendable () -> Void = {}
        var whenCalled: @Sendable (String) -> Void = { _ in }

        mutating func note(_ call: String) {
            calls.append(call)
            whenCalled(call)
        }
    }

    public let id: ProviderID
    /// The storage that it was made with.
    public var storage: (any IdentityStorage)? {
        get { state.withLock(\.storage) }
        set { state.withLock { $0.storage = newValue } }
    }
    private let state = Mutex(State())

    /// A parameter that it was made with.
    public let path: String?

    public init(_ id: ProviderID, path: String? = nil) {
        self.id = id
        self.path = path
    }

    /// The entry for a registry that gives out this one.
    public func descriptor(_ parameters: [ParameterDescriptor] = []) -> ProviderDescriptor {
        ProviderDescriptor(
            id: id, displayName: "Test", summary: "Test.", parameters: parameters
        ) { [self] environment, _ in
            storage = environment.storage
            return self
        }
    }

    public var calls: [String] { state.withLock { $0.calls } }

    /// Forgets them.
    public func takeCalls() -> [String] {
        state.withLock { state in
            defer { state.calls = [] }
            return state.calls
        }
    }

    public func stored(_ result: Result<Identity?, ProviderError>) { state.withLock { $0.stored = result } }
    public func deletion(_ result: Result<Void, ProviderError>) { state.withLock { $0.deletion = result } }
    public func announce(_ result: Result<[String], ProviderError>) { state.withLock { $0.announced = result } }
    public func replacement(_ result: Result<Void, ProviderError>) { state.withLock { $0.replacement = result } }
    public func list(_ list: IdentityList) { state.withLock { $0.list = list } }
    /// Runs something at the beginning of each deletion.
    public func beforeDeletion(_ body: @escaping @Sendable () -> Void) { state.withLock { $0.beforeDeletion = body } }
    /// Tells of each call when it comes. It must not use the provider.
    public func whenCalled(_ body: @escaping @Sendable (String) -> Void) { state.withLock { $0.whenCalled = body } }
    public func get(_ get: @escaping Get) { state.withLock { $0.get = get } }

    public func getCertificate(_ interaction: any UserInteraction) async throws(ProviderError) -> Identity {
        let get = state.withLock { state in
            state.note("get")
            return state.get
        }
        return try await get(interaction)
    }

    public func getStoredCertificate() throws(ProviderError) -> Identity? {
        try state.withLock { state in
            state.note("stored")
            return state.stored
        }.get()
    }

    public func deleteStoredCertificate() throws(ProviderError) {
        state.withLock(\.beforeDeletion)()
        try state.withLock { state in
            state.note("delete")
            if case .success = state.deletion { state.stored = .success(nil) }
            return state.deletion
        }.get()
    }
}

extension ScriptedProvider: DeletionAnnouncing, IdentityListing, ReplacedIdentityDiscarding {
    public var deletions: (any DeletionAnnouncing)? { self }
    public var listing: (any IdentityListing)? { state.withLock(\.list).map { _ in self } }
    public var replacement: (any ReplacedIdentityDiscarding)? { state.withLock(\.replacement).map { _ in self } }

    public func announcedDeletions() async throws(ProviderError) -> [String] { try state.withLock(\.announced).get() }
    public func listIdentities() async -> IdentityList { state.withLock(\.list) ?? IdentityList() }

    public func discardReplaced(
        by identity: Identity, _ interaction: any UserInteraction
    ) async throws(ProviderError) { try state.withLock(\.replacement)?.get() }
}

/// A provider as those of servers: each request brings another identity, which it stores.
public final class StoringProvider: CertificateProvider {
    public let id: ProviderID
    private let storage: any IdentityStorage
    private let issue: @Sendable () throws -> Identity

    public init(_ id: ProviderID, _ storage: any IdentityStorage, issue: @escaping @Sendable () throws -> Identity) {
        (self.id, self.storage, self.issue) = (id, storage, issue)
    }

    public func getCertificate(_ interaction: any UserInteraction) async throws(ProviderError) -> Identity {
        do {
            let identity = try issue()
            let key = try identity.key.exporter?.pkcs8Representation()
            try storage.setEntry(
                StoredIdentity(certificateChain: identity.certificateChain, privateKey: key), named: "identity")
            return identity
        } catch { throw error as? ProviderError ?? ProviderError(.internal, "\(error)") }
    }

    public func getStoredCertificate() throws(ProviderError) -> Identity? {
        guard let entry = try storage.entry(named: "identity"), let key = entry.privateKey else { return nil }
        return try Identity(
            certificateChain: entry.certificateChain, key: SoftwareKey(pkcs8: key, location: .store),
            provenance: .init(provider: id))
    }

    public func deleteStoredCertificate() throws(ProviderError) { try storage.removeEntry(named: "identity") }
}
