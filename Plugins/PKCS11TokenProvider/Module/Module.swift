import CP11Kit
import CertificateProviding
import Glibc
import Synchronization

/// A PKCS#11 module that p11-kit has loaded: one vendor's library, or one that runs in another process (`remote:`).
///
/// There is one for all providers of the process that load the library: see ``ModuleRegistry``. p11-kit counts who else
/// uses it, so that finalising it here takes nothing from another part of the process. After a fork the child makes no
/// call: some modules share a device's connection with the parent, which would break.
final class Module: Sendable {
    /// What p11-kit calls it, or its path.
    let name: String
    /// Valid as long as `owner`.
    private let library: CryptokiLibrary
    private let owner: LoadedModules
    private let place: ModuleRegistry
    /// Held while a session is opened: some modules hand out the same handle twice when two threads open sessions at
    /// once.
    let opening = Mutex(())
    /// Who has got each session handle last, of all providers.
    let holders = SessionHolders()
    private let process = getpid()
    private let starts = Atomic(0)
    /// Of the calls into the module.
    private let calls = Gate()
    /// Of what takes several calls, whose handles and login a new start would take away in between.
    private let operations = Gate()
    /// When it was started again to find a token, lately.
    private let starting = Mutex<[ContinuousClock.Instant]>([])
    /// How many have logged in to each token, of all providers.
    private let logins = Mutex<[Slot.Identity: Int]>([:])
    private let open = Mutex(OpenSessions())
    /// The functions that have returned from the library. A library does some things once, in the first call of one of
    /// them, such as OpenSSL's registration of an exit handler.
    private let returned = Mutex<Set<String>>([])
    private let hasEnded = Atomic(false)

    /// Returns the one module of this process for a library, started where it does not run. Blocks.
    ///
    /// - Throws: When the module does not initialise.
    static func shared(
        _ functions: CryptokiLibrary.Functions, name: String, owner: LoadedModules
    ) throws(CryptokiError) -> Use {
        let place = ModuleRegistry.of(CryptokiLibrary.file(of: functions) ?? name)
        return try place.use { () throws(CryptokiError) in
            try Module(functions, name: name, owner: owner, place: place)
        }
    }

    init(
        _ functions: CryptokiLibrary.Functions, name: String, owner: LoadedModules, place: ModuleRegistry
    ) throws(CryptokiError) {
        self.library = try CryptokiLibrary(starting: functions, name: name)
        self.name = name
        self.owner = owner
        self.place = place
        ModuleEnd.registerAtExit()
    }

    /// What the module says of itself.
    var info: CK_INFO { library.info }

    /// Where what nobody uses any more is given back.
    var releases: DeferredCleanup { owner.releases }

    /// Whether this is no child of the process that has the module.
    var isOfThisProcess: Bool { getpid() == process }

    /// How often the module was started again. What was got of it before is worthless afterwards.
    var generation: Int { starts.load(ordering: .acquiring) }

    /// Starts the module again where that can help: one that runs in another process does not come back by itself when
    /// that process ends, and one that somebody else has finalised does not either.
    ///
    /// - Parameters:
    ///   - error: What a call that concerns no token ended with.
    ///   - generation: As it was before that call: of several threads that saw it fail one starts it.
    /// - Throws: `error`, where it is of another kind; what the start ends with.
    func restart(after error: CryptokiError, in generation: Int) throws(CryptokiError) {
        if case .ended = error.origin { throw error }
        guard error.endsConnection, library.isRemote || error.code == CKR_CRYPTOKI_NOT_INITIALIZED else { throw error }
        let isStarted = try starting.withLock { _ throws(CryptokiError) in
            guard self.generation == generation else { return true }
            return try startAgain(timeout: Self.timeout)
        }
        guard isStarted else { throw error }
    }

    /// Starts the module again where it does not see a token any more that it has seen before: SoftHSM, for one, looks
    /// for its tokens when it starts, and never again at one that was gone. Where another part of the process uses the
    /// module, p11-kit keeps it as it is.
    ///
    /// Not while somebody is logged in to another of its tokens or in the middle of something, and at most three times a
    /// second: for most modules this is nothing but slow. A login to a token that is away counts for nothing,
    /// whichever provider has not noticed yet: it is over.
    ///
    /// Not to be called with a lock that somebody may wait for in the middle of an operation.
    ///
    /// - Parameters:
    ///   - present: The tokens that it sees.
    ///   - generation: As it was before that look: of several threads that miss a token one starts it.
    /// - Returns: Whether it was started again.
    /// - Throws: When it does not start.
    func startAgainToFind(beside present: [Slot], in generation: Int) throws(CryptokiError) -> Bool {
        guard tokensInUse(of: present).isEmpty else { return false }
        return try starting.withLock { recent throws(CryptokiError) in
            guard self.generation == generation else { return true }
            recent.removeAll { ContinuousClock.now - $0 >= .seconds(1) }
            guard recent.count < Self.startsPerSecond else { return false }
            defer { recent.append(.now) }
            let isStarted = try operations.close(timeout: Self.timeoutForOthers) { () throws(CryptokiError) in
                // What was waited for may have been a login.
                guard tokensInUse(of: present).isEmpty else { return false }
                return try startAgain(timeout: Self.timeoutForOthers)
            }
            return isStarted ?? false
        }
    }

    /// Those of the tokens that somebody is logged in to.
    func tokensInUse(of present: [Slot]) -> [Slot] {
        let logins = logins.withLock { $0 }
        return present.filter { logins[$0.identity] != nil }
    }

    private static let startsPerSecond = 3

    /// For how long calls that are inside the module are waited for before it is started again.
    private static let timeout = Duration.seconds(2)
    private static let timeoutForOthers = Duration.milliseconds(100)

    /// Starts the module again, when no call is inside it and none begins. Called with `starting` locked.
    ///
    /// - Returns: Whether that came to pass in time.
    private func startAgain(timeout: Duration) throws(CryptokiError) -> Bool {
        try calls.close(timeout: timeout) { () throws(CryptokiError) in
            library.finalize()
            open.withLock { $0 = OpenSessions() }
            // Also where it does not start: what was got before is worthless.
            starts.add(1, ordering: .acquiringAndReleasing)
            try library.initialize()
            return true
        } ?? false
    }

    /// Calls `body`, in whose middle the module is not started again to find another token. Not to be nested.
    ///
    /// - Throws: Also `operationNotAllowed` where the module has been shut down.
    func operate<T>(_ body: () throws(CertificateProviderError) -> T) throws(CertificateProviderError) -> T {
        let result = try operations.pass(waiting: { starting.withLock { _ in } }, body)
        guard let result else { throw .modulesEnded }
        return result
    }

    /// Whether another provider of this process uses the module.
    var isShared: Bool { place.isShared(self) }

    /// A provider's use of the module, for as long as the provider or one of its keys keeps this. The last use ends the
    /// module.
    final class Use: Sendable {
        let module: Module
        private let hasLeft = Atomic(false)

        /// Only for ``ModuleRegistry``, which counts the uses.
        init(_ module: Module) { self.module = module }

        deinit {
            guard !hasLeft.load(ordering: .acquiring) else { return }
            module.releases.run { [module] in module.place.leave(module, by: .now + ModuleEnd.limit) }
        }

        /// Ends the use before this object goes. Blocks, as ``ModuleRegistry/leave(_:by:)``.
        func leave(by deadline: ContinuousClock.Instant) {
            guard !hasLeft.exchange(true, ordering: .acquiringAndReleasing) else { return }
            module.place.leave(module, by: deadline)
        }
    }

    /// Ends the module: refuses new operations, waits for those under way, logs out, closes the sessions and finalises
    /// the library.
    ///
    /// Blocks until `deadline` for operations under way, so that the answer to a login is recorded. Then blocks for as
    /// long as logging out, closing and finalising take.
    ///
    /// - Parameter isWithProcess: Whether the process ends too.
    /// - Returns: Whether no thread is inside the library. Otherwise nothing is finalised.
    func end(by deadline: ContinuousClock.Instant, isWithProcess: Bool) -> Bool {
        operations.shut()
        _ = operations.isEmpty(by: deadline - Self.reserve)
        calls.shut()
        guard calls.isEmpty(by: deadline) else { return false }
        // The answer to a login may still be on its way to the disk.
        _ = operations.isEmpty(by: deadline)
        // Another thread may be starting the module again.
        starting.withLock { _ in
            guard !hasEnded.exchange(true, ordering: .acquiringAndReleasing) else { return }
            library.end(open.withLock { $0 }, isWithProcess: isWithProcess)
        }
        return true
    }

    /// The part of the time that remains for single calls after the wait for operations.
    private static let reserve = Duration.milliseconds(50)

    /// Records that a session is open, or closed.
    func notes(_ session: CK_SESSION_HANDLE, at slot: CK_SLOT_ID, isOpen: Bool) {
        open.withLock { open in
            open.slots[session] = isOpen ? slot : nil
            // Closing the last session logs out.
            if !isOpen, !open.slots.values.contains(slot) { open.loggedIn.remove(slot) }
        }
    }

    /// Records that this process has logged in, or out.
    func notesLogin(at slot: CK_SLOT_ID, isLoggedIn: Bool) {
        open.withLock { open in
            if isLoggedIn { open.loggedIn.insert(slot) } else { open.loggedIn.remove(slot) }
        }
    }

    /// Whether this process is logged in to a token and the token's only sessions in it are the caller's. Blocks.
    ///
    /// - Parameter count: The number of the caller's sessions.
    func isLogin(at slot: CK_SLOT_ID, onlyOf count: Int) -> Bool {
        let open = open.withLock { $0 }
        guard open.loggedIn.contains(slot), open.slots.values.count(where: { $0 == slot }) == count else {
            return false
        }
        return calls.pass(waiting: { starting.withLock { _ in } }) { library.hasNoSessions(but: open, at: slot) }
            ?? false
    }

    /// Somebody is logged in to a token of the module for as long as this is kept.
    final class Login: Sendable {
        private let module: Module
        private let token: Slot.Identity

        init(_ slot: Slot) {
            (module, token) = (slot.module, slot.identity)
            module.logins.withLock { [token] in $0[token, default: 0] += 1 }
        }

        deinit {
            module.logins.withLock { [token] logins in
                let remaining = (logins[token] ?? 0) - 1
                logins[token] = remaining > 0 ? remaining : nil
            }
        }
    }

    /// Calls a function of the module. Blocks for as long as the module likes.
    ///
    /// - Parameters:
    ///   - generation: The start that the call's handles are of; `nil` where it has none.
    ///   - body: Gets the function list, and calls the function that `name` names.
    func call(
        _ name: String, in generation: Int? = nil, _ body: (borrowing CK_FUNCTION_LIST) -> CK_RV?
    ) throws(CryptokiError) {
        let result = try calls.pass(waiting: { starting.withLock { _ in } }) { () throws(CryptokiError) in
            if let generation, generation != self.generation {
                throw CryptokiError(function: name, code: CKR_SESSION_CLOSED, origin: .notMade)
            }
            return library.call(body) ?? CKR_FUNCTION_NOT_SUPPORTED
        }
        guard let result else { throw .ended(name) }
        if returned.withLock({ $0.insert(name).inserted }) { ModuleEnd.registerAtExit() }
        guard result == CKR_OK else { throw CryptokiError(function: name, code: result) }
    }
}
