import CP11Kit
import CertificateProviding
import Glibc
import Synchronization

/// A module that a URI may mean: started at its first use, and visited for a limited time where there are others.
final class ModuleReference: Sendable {
    let name: String
    /// Valid as long as `owner`.
    nonisolated(unsafe) private let functions: UnsafeMutablePointer<CK_FUNCTION_LIST>
    private let owner: LoadedModules
    private let state = BlockingMutex(State())
    private let visits: ModuleCalls
    /// The threads on which this provider uses the tokens.
    let calls: ModuleCalls

    private struct State {
        var start = Start.none
        /// The visits that did not end in time.
        var overdue: [Visit] = []
    }

    private enum Start {
        case none, done(Module.Use)
        /// The URI does not match it.
        case unwanted
        /// The provider has been shut down.
        case left
    }

    private final class Visit: Sendable {
        let isGoingOn = Atomic(false)
    }

    /// - Parameter timeout: Of calls; of a visit half of that, which leaves something for the others.
    init(
        _ functions: UnsafeMutablePointer<CK_FUNCTION_LIST>, name: String, owner: LoadedModules, timeout: Duration
    ) {
        self.functions = functions
        self.name = name
        self.owner = owner
        self.visits = ModuleCalls(timeout: timeout / 2, threads: 4)
        self.calls = ModuleCalls(timeout: timeout)
    }

    /// The module, initialised; `nil` where the URI does not match it. One that did not start may do so next time.
    /// Blocks for as long as it likes.
    func module(for uri: PKCS11URI) throws(ProviderError) -> Module? {
        do throws(CryptokiError) {
            if case .none = state.withLock(\.start) { try start(for: uri) }
            switch state.withLock(\.start) {
            case .done(let use): return use.module
            case .none, .unwanted: return nil
            case .left: throw .ended("C_Initialize")
            }
        } catch {
            if case .ended = error.origin { throw .modulesEnded }
            throw ProviderError(
                .unavailable,
                "The PKCS#11 module '\(name)' cannot be initialised (\(error)); check its configuration, and the service that it "
                    + "uses.",
                nativeCode: Int(clamping: error.code), underlying: error)
        }
    }

    private func start(for uri: PKCS11URI) throws(CryptokiError) {
        // Several threads share the module, and its registry starts it for the first.
        let use = try Module.shared(functions, name: name, owner: owner)
        let isWanted = uri.matches(use.module.info)
        let isLate = state.withLock { state in
            guard case .none = state.start else { return true }
            state.start = isWanted ? .done(use) : .unwanted
            return false
        }
        // The provider was shut down before the module was loaded, or another thread was first.
        if isLate { use.leave(by: .now + ModuleEnd.limit) }
    }

    /// Ends this provider's use of the module.
    func leave(by deadline: ContinuousClock.Instant) {
        let use = state.withLock { state -> Module.Use? in
            defer { state.start = .left }
            if case .done(let use) = state.start { return use }
            return nil
        }
        use?.leave(by: deadline)
    }

    /// As ``Module/readsOnce``.
    var readsOnce: Bool { CryptokiLibrary.file(of: functions).map(CryptokiLibrary.readsOnce) ?? false }

    func isStarted(as module: Module) -> Bool { use(of: module) != nil }

    /// Returns this provider's use of the module, if the reference is to this one.
    func use(of module: Module) -> Module.Use? {
        state.withLock { state in
            if case .done(let use) = state.start, use.module === module { return use }
            return nil
        }
    }

    /// Runs `work` with the module on a thread of the module's own, and calls `completion` once: with its result, or at the
    /// timeout. Calls it at once if an earlier visit is overdue and still in progress.
    func visit<T: Sendable>(
        _ work: @escaping @Sendable () throws(ProviderError) -> T,
        completion: @escaping @Sendable (Result<T, ProviderError>) -> Void
    ) {
        let hangs = state.withLock { state in
            state.overdue.removeAll { !$0.isGoingOn.load(ordering: .acquiring) }
            return !state.overdue.isEmpty
        }
        guard !hangs else { return completion(.failure(timedOut("still hangs"))) }
        let visit = Visit()
        visits.start("searching the module") { () throws(ProviderError) in
            visit.isGoingOn.store(true, ordering: .releasing)
            defer { visit.isGoingOn.store(false, ordering: .releasing) }
            return try work()
        } completion: { [self] outcome in
            guard visit.isGoingOn.load(ordering: .acquiring) else { return completion(outcome) }
            state.withLock { $0.overdue.append(visit) }
            completion(.failure(timedOut("did not answer within \(visits.timeout)")))
        }
    }

    private func timedOut(_ what: String) -> ProviderError {
        ProviderError(
            .timedOut, "The PKCS#11 module '\(name)' \(what); check whether its device or service hangs.")
    }
}
