import CP11Kit
import CertificateProviding
import Dispatch
import Synchronization

/// An open session with a token, which its pool closes.
///
/// Used by one operation at a time, which its pool ensures: modules crash when two threads share one. The control thread opens
/// and closes it. No call is made with it once it is over: its handle may be another session's by then, since the module gives
/// it out again after the token was away.
final class Session: Sendable {
    let module: Module
    let handle: CK_SESSION_HANDLE
    let slot: CK_SLOT_ID
    private let token: Slot.Identity
    private let generation: Int
    /// Whether an operation has it, and whether no thread makes a further call with it.
    private let state = Atomic<UInt8>(0)
    private static let (lent, over): (UInt8, UInt8) = (1, 2)
    /// Signalled where an operation ends in it that was over before.
    private let isReturned = DispatchSemaphore(value: 0)
    // Unsafe: the operation that has the session calls its functions, one after the other, and hands it on through a lock.
    nonisolated(unsafe) private var called: Set<String> = []

    /// On the control thread.
    private init(slot: Slot, readWrite: Bool) throws(CryptokiError) {
        var handle: CK_SESSION_HANDLE = 0
        let flags = CK_FLAGS(CKF_SERIAL_SESSION) | (readWrite ? CK_FLAGS(CKF_RW_SESSION) : 0)
        token = slot.identity
        try slot.module.call("C_OpenSession", at: token) { $0.C_OpenSession?(slot.id, flags, nil, nil, &handle) }
        self.module = slot.module
        self.slot = slot.id
        self.generation = module.generation
        self.handle = handle
    }

    /// Opens a session whose handle no other session has. Blocks.
    static func open(_ slot: Slot, readWrite: Bool) throws(CryptokiError) -> Session {
        try slot.module.control("C_OpenSession") { () throws(CryptokiError) in
            for _ in 0..<3 {
                let session = try Session(slot: slot, readWrite: readWrite)
                guard let former = slot.module.register(session), former.isStillUsed() else { return session }
                // An operation may have begun or ended something in it.
                session.closeNow()
            }
            throw CryptokiError(function: "C_OpenSession", code: CKR_SESSION_CLOSED, origin: .notMade)
        }
    }

    /// Whether the module that has given the handle is still the one that runs.
    var isOfThisModule: Bool { module.generation == generation }

    /// Calls a function with the handle. Blocks for as long as the module likes.
    ///
    /// - Throws: `CKR_SESSION_CLOSED` where the session is over, without a call.
    func call(_ name: String, _ body: (borrowing CK_FUNCTION_LIST) -> CK_RV?) throws(CryptokiError) {
        guard isOfThisModule, state.load(ordering: .acquiring) & Self.over == 0 else {
            throw CryptokiError(function: name, code: CKR_SESSION_CLOSED, origin: .notMade)
        }
        try module.call(name, at: token, isFirst: called.insert(name).inserted, body)
    }

    // MARK: Whose it is

    func lend() { state.bitwiseOr(Self.lent, ordering: .acquiringAndReleasing) }

    /// - Returns: Whether it can be lent again.
    func giveBack() -> Bool {
        let before = state.bitwiseAnd(~Self.lent, ordering: .acquiringAndReleasing).oldValue
        guard before & Self.over != 0 else { return true }
        isReturned.signal()
        return false
    }

    /// Lets no further call begin.
    /// - Returns: Whether an operation has it still, which may be in the middle of a call.
    @discardableResult
    func retire() -> Bool {
        state.bitwiseOr(Self.over, ordering: .acquiringAndReleasing).oldValue & Self.lent != 0
    }

    /// Whether an operation has used it while its handle was given to another session: the module has dropped it before.
    /// Waits for the end of that operation, for a while.
    private func isStillUsed() -> Bool {
        let isLent = retire()
        if isLent { _ = isReturned.wait(timeout: .now() + Self.timeout) }
        return isLent
    }

    private static let timeout = DispatchTimeInterval.seconds(2)

    // MARK: The end

    /// Closes the session, once: after this returns, but before another one opens. Also where the caller's time is over,
    /// or the module would keep the session.
    func close() {
        guard module.isOfThisProcess else { return }
        module.controlLater { self.closeNow() }
    }

    /// Closes the session. Logs out before, where this is the last session of this process with the token: most modules do
    /// so by themselves then. Blocks. For a thread whose work has no deadline.
    func closeLoggingOut() {
        guard module.isOfThisProcess else { return }
        try? module.control("C_CloseSession") { () throws(CryptokiError) in
            if self.module.isLogin(at: self.slot, onlyOf: 1) { self.logOutNow() }
            self.closeNow()
        }
    }

    /// Logs out, which counts for all sessions with the token. Blocks.
    func logOut() { try? module.control("C_Logout") { () throws(CryptokiError) in self.logOutNow() } }

    private func logOutNow() {
        do throws(CryptokiError) { try call("C_Logout") { $0.C_Logout?(handle) } } catch {
            // The end of the module does it.
            if case .ended = error.origin { return }
        }
        module.notesLogin(at: slot, isLoggedIn: false)
    }

    /// On the control thread.
    private func closeNow() {
        retire()
        guard isOfThisModule, module.unregister(self) else { return }
        try? module.call("C_CloseSession") { $0.C_CloseSession?(handle) }
    }

    /// Leaves the session as it is: the module has it no more, and its handle may already be another session's.
    func abandon() {
        retire()
        if isOfThisModule { _ = module.unregister(self) }
    }

    /// Whether the module has this session no more. Blocks. For a session that no operation has.
    var isGone: Bool {
        var info = CK_SESSION_INFO()
        do throws(CryptokiError) {
            try call("C_GetSessionInfo") { $0.C_GetSessionInfo?(handle, &info) }
            return false
        } catch {
            if case .notMade = error.origin { return true }
            return error.isOfNoSession || [CKR_DEVICE_REMOVED, CKR_TOKEN_NOT_PRESENT].contains(error.code)
        }
    }

    // MARK: Login

    /// Logs in, where that has not happened yet. Blocks: on the control thread, but where other tokens of the module are to
    /// go on, at a PIN pad where a person takes their time, and for the one operation that has begun in this session.
    /// - Returns: Whether the token has looked at the PIN, and found it right.
    func login(_ pin: SecretBytes?, as user: CK_USER_TYPE) throws(CryptokiError) -> Bool {
        do throws(CryptokiError) {
            if pin == nil || user == CK_USER_TYPE(CKU_CONTEXT_SPECIFIC) {
                try send(pin, as: user)
            } else {
                try module.control("C_Login") { () throws(CryptokiError) in try self.send(pin, as: user) }
            }
            return true
        } catch {
            guard error.code == CKR_USER_ALREADY_LOGGED_IN else { throw error }
            return false
        }
    }

    private func send(_ pin: SecretBytes?, as user: CK_USER_TYPE) throws(CryptokiError) {
        guard let pin else { return try call("C_Login") { $0.C_Login?(handle, user, nil, 0) } }
        try pin.withUnsafeBytes { bytes throws(CryptokiError) in
            // The standard's parameter is not const, and modules do not write to it.
            let text = UnsafeMutablePointer(mutating: bytes.bindMemory(to: UInt8.self).baseAddress)
            try call("C_Login") { $0.C_Login?(handle, user, text, CK_ULONG(bytes.count)) }
        }
    }
}
