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
    /// The name that p11-kit has for it, or its path.
    let name: String
    /// Valid as long as `owner`.
    private let library: CryptokiLibrary
    private let owner: LoadedModules
    private let place: ModuleRegistry
    private let controlThread = ControlThread()
    private let operations = Operations()
    /// Each is made with whatever session there is then, also after a new start.
    private let logins = Operations()
    /// Whether this thread is in the middle of an operation.
    @TaskLocal private static var isOperating = false
    private let process = getpid()
    private let starts = Atomic(0)
    private let state = BlockingMutex(State())
    /// Whether a failure or a repair is remembered, so that successes count. Set with `state` locked.
    private let isAiling = Atomic(false)
    /// Set on the control thread: no call is made any more.
    private let hasEnded = Latch()
    /// Set on the control thread. No call is made while it is false: p11-kit crashes where a session opens before its own
    /// start of the module, which another part of the process may have started.
    private let isInitialized = Atomic(true)

    private struct State {
        /// The open sessions, by their handles.
        var sessions: [CK_SESSION_HANDLE: Session] = [:]
        /// The slots with a login of this process.
        var loggedIn: Set<CK_SLOT_ID> = []
        /// How many have logged in to each token, of all providers.
        var logins: [Slot.Identity: Int] = [:]
        /// When it was started again to find a token, lately.
        var recentStarts: [ContinuousClock.Instant] = []
        /// How often functions have failed in a row with a token as in a broken module.
        var failures: [Slot.Identity: [String: Int]] = [:]
        /// The starts because of a token, until it signs after the pause that followed.
        var repairs: [Slot.Identity: Repairs] = [:]
        /// The functions that have returned from the library. A library does some things once, in the first call of one
        /// of them, such as OpenSSL's registration of an exit handler.
        var returned: Set<String> = []

        mutating func noteSuccess(of function: String, at token: Slot.Identity) {
            failures[token]?[function] = nil
            if failures[token]?.isEmpty == true { failures[token] = nil }
            // The last failure that counts. One signature right after each start is not a success.
            if function == "C_Sign", let next = repairs[token]?.next, next <= .now { repairs[token] = nil }
        }
    }

    private func change<T: Sendable>(_ body: (inout State) -> T) -> T {
        state.withLock { state in
            defer { isAiling.store(!state.failures.isEmpty || !state.repairs.isEmpty, ordering: .releasing) }
            return body(&state)
        }
    }

    private struct Repairs {
        /// No further start before.
        var next: ContinuousClock.Instant
        /// Between the next start and the one after it.
        var pause = Duration.seconds(1)
    }

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
        self.library = try CryptokiLibrary(starting: functions, name: name, lock: place.libraryLock)
        self.name = name
        self.owner = owner
        self.place = place
        ModuleEnd.registerAtExit()
    }

    /// The module's description of itself (`C_GetInfo`).
    var info: CK_INFO { library.info }

    /// Whether it reads a token once, and sees what another program writes there only after a new start. OpenSC does
    /// (seen in 0.23).
    var readsOnce: Bool { library.readsOnce }

    /// Runs deferred close and finalize work.
    var cleanup: DeferredCleanup { owner.cleanup }

    /// False in a child process after a fork: the module belongs to the parent.
    var isOfThisProcess: Bool { getpid() == process }

    /// How often the module was started again. Handles and sessions of an earlier start are invalid.
    var generation: Int { starts.load(ordering: .acquiring) }

    /// Starts the module again where that can help: one that runs in another process does not come back by itself when
    /// that process ends, and one that other code in this process has finalised does not either. Blocks.
    ///
    /// - Parameters:
    ///   - error: What a call that concerns no token ended with.
    ///   - generation: As it was before that call: of several threads that saw it fail one starts it.
    /// - Throws: `error`, where it is of another kind; what the start ends with.
    func restart(after error: CryptokiError, in generation: Int) throws(CryptokiError) {
        if case .ended = error.origin { throw error }
        // A thread in the middle of an operation would wait for itself.
        guard !Self.isOperating, error.endsConnection, library.isRemote || error.code == CKR_CRYPTOKI_NOT_INITIALIZED,
            try startAgain(by: .now + Self.timeout, in: generation, if: { true })
        else { throw error }
    }

    /// Starts the module again to find a token that it has shown before and does not show now: SoftHSM, for one, looks for its
    /// tokens when it starts, and never again at one that was gone. p11-kit does not restart a module that another part of the
    /// process uses. Blocks.
    ///
    /// Does nothing while the user is logged in to another of its tokens or an operation is in progress, nor more than three
    /// times a second: with most modules a restart only takes time. A login to a token that is away does not count, even if its
    /// provider has not noticed yet.
    ///
    /// - Parameters:
    ///   - present: The tokens that it sees.
    ///   - generation: As it was before that look: of several threads that miss a token one starts it.
    ///   - isCertain: Whether it is known that nothing else helps. Then operations in progress are waited for longer.
    /// - Returns: Whether it was started again.
    /// - Throws: When it does not start.
    func startAgainToFind(
        beside present: [Slot], in generation: Int, isCertain: Bool
    ) throws(CryptokiError) -> Bool {
        guard tokensInUse(of: present).isEmpty else { return false }
        let deadline = ContinuousClock.now + (isCertain ? Self.timeout : Self.timeoutForOthers)
        let isStarted = try logins.pause(by: deadline) { () throws(CryptokiError) in
            try startAgain(by: deadline, in: generation) { [self] in
                state.withLock { state in
                    // The wait may have been for a login.
                    guard present.allSatisfy({ state.logins[$0.identity] == nil }) else { return false }
                    state.recentStarts.removeAll { ContinuousClock.now - $0 >= .seconds(1) }
                    guard state.recentStarts.count < Self.startsPerSecond else { return false }
                    state.recentStarts.append(.now)
                    return true
                }
            }
        }
        return isStarted ?? (self.generation != generation)
    }

    /// Starts the module again where a function fails in each new session though the token is there: the connection to
    /// a TPM or an HSM has broken, and some modules make another one only when they start. Blocks.
    ///
    /// - Operations and logins under way are waited for as long as for ``restart(after:in:)``.
    /// - Not while a person is logged in to another token by its PIN pad: that login cannot be made again. Any other one can.
    /// - The first restart is immediate, the next ones 1, 2, 4 … seconds apart, an hour at most, also if the module was not
    ///   started. The pauses are reset once the token signs after such a pause, or after an hour without a failure.
    ///
    /// - Parameters:
    ///   - token: The one whose calls have failed.
    ///   - others: The other tokens that it sees.
    ///   - generation: As it was before the failures: of several threads that see them one starts it.
    /// - Returns: Whether it was started again: `own` by this thread.
    /// - Throws: When it does not start.
    func startAgain(
        afterFailuresOf token: Slot.Identity, beside others: [Slot], in generation: Int
    ) throws(CryptokiError) -> Repair {
        // A thread in the middle of an operation would wait for itself.
        guard !Self.isOperating, isRepairDue(of: token) || self.generation != generation else { return .none }
        let isOwn = Latch()
        // Noted at the end: threads that arrive before then wait for the same start. A start without success counts as well,
        // since the other tokens have waited too.
        defer { if isOwn.hasHappened || self.generation == generation { noteRepair(of: token) } }
        let deadline = ContinuousClock.now + Self.timeout
        let isStarted = try logins.pause(by: deadline) { () throws(CryptokiError) in
            try startAgain(by: deadline, in: generation) { [self] in
                guard !tokensInUse(of: others).contains(where: { $0.has(UInt(CKF_PROTECTED_AUTHENTICATION_PATH)) })
                else { return false }
                return isOwn.isFirst()
            }
        }
        guard isStarted ?? (self.generation != generation) else { return .none }
        return isOwn.hasHappened ? .own : .others
    }

    enum Repair { case none, own, others }

    /// Notes that a function has failed as in a broken module, with a connection that no other failure has ended.
    func noteFailure(of function: String, at token: Slot.Identity) {
        change { $0.failures[token, default: [:]][function, default: 0] += 1 }
    }

    /// Whether it may have broken, as a token shows it.
    struct Health {
        let generation: Int
        /// How many connections have failed in a row. A function that has succeeded since does not count.
        let failures: Int
    }

    func health(of token: Slot.Identity) -> Health {
        guard isAiling.load(ordering: .acquiring) else { return Health(generation: generation, failures: 0) }
        return state.withLock { state in
            Health(generation: generation, failures: state.failures[token]?.values.reduce(0, +) ?? 0)
        }
    }

    private func isRepairDue(of token: Slot.Identity) -> Bool {
        state.withLock { $0.repairs[token].map { $0.next <= .now } ?? true }
    }

    private func noteRepair(of token: Slot.Identity) {
        change { state in
            let now = ContinuousClock.now
            state.repairs = state.repairs.filter { now < $0.value.next + Self.longestPause }
            let repairs = state.repairs[token] ?? Repairs(next: now)
            guard repairs.next <= now else { return }
            state.repairs[token] = Repairs(
                next: now + repairs.pause, pause: min(repairs.pause * 2, Self.longestPause))
        }
    }

    private static let longestPause = Duration.seconds(3600)

    /// Returns the tokens that the user is logged in to.
    func tokensInUse(of present: [Slot]) -> [Slot] {
        let logins = state.withLock(\.logins)
        return present.filter { logins[$0.identity] != nil }
    }

    private static let startsPerSecond = 3

    /// The wait for operations and logins before a start, during which new ones wait too.
    private static let timeout = Duration.seconds(2)
    private static let timeoutForOthers = Duration.milliseconds(100)

    /// Starts the module again, on the control thread, when no operation is under way and none begins.
    ///
    /// - Parameter isMeant: Asked when everything else is ready for it.
    /// - Returns: Whether the module was started in time, by this thread or another.
    private func startAgain(
        by deadline: ContinuousClock.Instant, in generation: Int, if isMeant: @escaping @Sendable () -> Bool
    ) throws(CryptokiError) -> Bool {
        let isStarted = try operations.pause(by: deadline) { () throws(CryptokiError) in
            try control("C_Initialize") { [self] () throws(CryptokiError) in
                guard self.generation == generation else { return true }
                // A module that has ended while this thread waited would run without an owner.
                guard !hasEnded.hasHappened, isMeant() else { return false }
                isInitialized.store(false, ordering: .releasing)
                library.finalize()
                // Also if the start fails: earlier handles and sessions are invalid.
                change { state in
                    (state.sessions, state.loggedIn, state.failures) = ([:], [], [:])
                    starts.add(1, ordering: .acquiringAndReleasing)
                }
                try library.initialize()
                isInitialized.store(true, ordering: .releasing)
                return true
            }
        }
        return isStarted ?? (self.generation != generation)
    }

    /// Calls `body`, in whose middle the module is not started again. Not to be nested.
    ///
    /// - Throws: Also `operationNotAllowed` where the module has been shut down.
    func operate<T>(_ body: () throws(ProviderError) -> T) throws(ProviderError) -> T {
        let result = try operations.run { () throws(ProviderError) in
            try Self.$isOperating.withValue(true) { Result { () throws(ProviderError) in try body() } }.get()
        }
        guard let result else { throw .modulesEnded }
        return result
    }

    /// Calls `body`, which logs in and writes the answer down. Meanwhile the module is not started again to find another
    /// token, and it does not end.
    ///
    /// - Throws: Also `operationNotAllowed` where the module has been shut down.
    func whileLoggingIn<T>(_ body: () throws(CryptokiError) -> T) throws(CryptokiError) -> T {
        guard let result = try logins.run(body) else { throw .ended("C_Login") }
        return result
    }

    /// Runs `job` on the control thread. Blocks, where another job hangs until shortly after the caller of this thread's
    /// work has given up: that is what it is told then.
    ///
    /// - Parameter function: The one that is called there, for errors.
    func control<T: Sendable>(
        _ function: String, _ job: @escaping @Sendable () throws(CryptokiError) -> T
    ) throws(CryptokiError) -> T {
        guard let result = try controlThread.run(by: ModuleCalls.deadline.map { $0 + .milliseconds(500) }, job) else {
            throw CryptokiError(function: function, code: CKR_FUNCTION_FAILED, origin: .notMade)
        }
        return result
    }

    /// Runs `job` on the control thread, after what waits for it already and before what comes later.
    func controlLater(_ job: @escaping @Sendable () -> Void) { controlThread.submit(job) }

    /// Whether another provider of this process uses the module.
    var isShared: Bool { place.isShared(self) }

    /// A provider's use of the module, for as long as the provider or one of its keys keeps this. The last use ends the
    /// module.
    final class Use: Sendable {
        let module: Module
        private let end = Latch()

        /// Only for ``ModuleRegistry``, which counts the uses.
        init(_ module: Module) { self.module = module }

        deinit {
            guard !end.hasHappened else { return }
            module.cleanup.run { [module] in module.place.leave(module, by: .now + ModuleEnd.limit) }
        }

        /// Ends the use before this object goes. Blocks, as ``ModuleRegistry/leave(_:by:)``.
        func leave(by deadline: ContinuousClock.Instant) {
            guard end.isFirst() else { return }
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
        [operations, logins].forEach { $0.shut() }
        guard operations.isIdle(by: deadline - Self.reserve), logins.isIdle(by: deadline - Self.reserve) else {
            return false
        }
        return controlThread.run(by: deadline) { [self] in
            guard hasEnded.isFirst() else { return }
            let open = state.withLock { state in
                OpenSessions(slots: state.sessions.mapValues(\.slot), loggedIn: state.loggedIn)
            }
            library.end(open, isWithProcess: isWithProcess)
            state.withLock { $0.sessions = [:] }
        } != nil
    }

    /// The part of the time that remains for single calls after the wait for operations.
    private static let reserve = Duration.milliseconds(50)

    /// Records that a session is open.
    /// - Returns: The one that had its handle, and was not closed here: the module has dropped it.
    func register(_ session: Session) -> Session? {
        state.withLock { $0.sessions.updateValue(session, forKey: session.handle) }
    }

    /// Records that a session is closed.
    /// - Returns: Whether it was open: its handle was not given to another one, and it was not unregistered before.
    func unregister(_ session: Session) -> Bool {
        state.withLock { state in
            guard state.sessions[session.handle] === session else { return false }
            state.sessions[session.handle] = nil
            // Closing the last session logs out.
            if !state.sessions.values.contains(where: { $0.slot == session.slot }) {
                state.loggedIn.remove(session.slot)
            }
            return true
        }
    }

    /// Records that this process has logged in, or out.
    func notesLogin(at slot: CK_SLOT_ID, isLoggedIn: Bool) {
        state.withLock { state in
            if isLoggedIn { state.loggedIn.insert(slot) } else { state.loggedIn.remove(slot) }
        }
    }

    /// Whether this process is logged in to a token and the token's only sessions in it are the caller's. On the control
    /// thread.
    ///
    /// - Parameter count: The number of the caller's sessions.
    func isLogin(at slot: CK_SLOT_ID, onlyOf count: Int) -> Bool {
        guard !hasEnded.hasHappened else { return false }
        let open = state.withLock { state in
            OpenSessions(slots: state.sessions.mapValues(\.slot), loggedIn: state.loggedIn)
        }
        guard open.loggedIn.contains(slot), open.slots.values.count(where: { $0 == slot }) == count else {
            return false
        }
        return library.hasNoSessions(but: open, at: slot)
    }

    /// Marks a token as logged in for as long as this object exists.
    final class KeptLogin: Sendable {
        private let module: Module
        private let token: Slot.Identity

        init(_ slot: Slot) {
            (module, token) = (slot.module, slot.identity)
            module.state.withLock { [token] in $0.logins[token, default: 0] += 1 }
        }

        deinit {
            module.state.withLock { [token] state in
                let remaining = (state.logins[token] ?? 0) - 1
                state.logins[token] = remaining > 0 ? remaining : nil
            }
        }
    }

    /// Calls a function of the module, on the control thread or in the middle of an operation. Blocks for as long as the
    /// module likes.
    ///
    /// - Parameters:
    ///   - token: Whose session it is about, where it is about one.
    ///   - isFirst: Whether the function may not have returned before.
    ///   - body: Gets the function list, and calls the function that `name` names.
    func call(
        _ name: String, at token: Slot.Identity? = nil, isFirst: Bool = true,
        _ body: (borrowing CK_FUNCTION_LIST) -> CK_RV?
    ) throws(CryptokiError) {
        guard !hasEnded.hasHappened else { throw .ended(name) }
        guard isInitialized.load(ordering: .acquiring) else {
            throw CryptokiError(function: name, code: CKR_CRYPTOKI_NOT_INITIALIZED, origin: .notMade)
        }
        let result = library.call(body) ?? CKR_FUNCTION_NOT_SUPPORTED
        if isFirst || isAiling.load(ordering: .acquiring) {
            let isFirst = change { state in
                if result == CKR_OK, let token { state.noteSuccess(of: name, at: token) }
                return state.returned.insert(name).inserted
            }
            if isFirst { ModuleEnd.registerAtExit() }
        }
        guard result == CKR_OK else { throw CryptokiError(function: name, code: result) }
    }
}
