import CertificateProviding
import Synchronization

/// A provider that does what a test says, and remembers what it was asked.
final class ScriptedProvider: CertificateProvider, DeletionAnnouncing {
    typealias Get = @Sendable (any UserInteraction) async throws(ProviderError) -> Identity

    private struct State {
        var stored: Result<Identity?, ProviderError> = .success(nil)
        var deletion: Result<Void, ProviderError> = .success(())
        /// The objects that a deletion destroys outside the store.
        var announced: [String] = []
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

    let id: ProviderID
    /// The storage that it was made with.
    var storage: (any IdentityStorage)? {
        get { state.withLock(\.storage) }
        set { state.withLock { $0.storage = newValue } }
    }
    var deletions: (any DeletionAnnouncing)? { self }
    private let state = Mutex(State())

    /// A parameter that it was made with.
    let path: String?

    init(_ id: ProviderID, path: String? = nil) {
        self.id = id
        self.path = path
    }

    var calls: [String] { state.withLock { $0.calls } }

    /// Forgets them.
    func takeCalls() -> [String] {
        state.withLock { state in
            defer { state.calls = [] }
            return state.calls
        }
    }

    func stored(_ result: Result<Identity?, ProviderError>) { state.withLock { $0.stored = result } }
    func deletion(_ result: Result<Void, ProviderError>) { state.withLock { $0.deletion = result } }
    func announce(_ sentences: [String]) { state.withLock { $0.announced = sentences } }
    func announcedDeletions() async throws(ProviderError) -> [String] { state.withLock(\.announced) }
    /// Runs something at the beginning of each deletion.
    func beforeDeletion(_ body: @escaping @Sendable () -> Void) { state.withLock { $0.beforeDeletion = body } }
    /// Tells of each call when it comes. It must not use the provider.
    func whenCalled(_ body: @escaping @Sendable (String) -> Void) { state.withLock { $0.whenCalled = body } }
    func get(_ get: @escaping Get) { state.withLock { $0.get = get } }

    func getCertificate(_ interaction: any UserInteraction) async throws(ProviderError) -> Identity {
        let get = state.withLock { state in
            state.note("get")
            return state.get
        }
        return try await get(interaction)
    }

    func getStoredCertificate() throws(ProviderError) -> Identity? {
        try state.withLock { state in
            state.note("stored")
            return state.stored
        }.get()
    }

    func deleteStoredCertificate() throws(ProviderError) {
        state.withLock(\.beforeDeletion)()
        try state.withLock { state in
            state.note("delete")
            if case .success = state.deletion { state.stored = .success(nil) }
            return state.deletion
        }.get()
    }
}
