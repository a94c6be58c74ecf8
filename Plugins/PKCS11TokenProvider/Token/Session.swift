import CP11Kit
import CertificateProviding
import Dispatch
import Synchronization

/// An open session with a token, which its pool closes.
///
/// Goes from thread to thread but is used by one at a time, which its pool sees to: modules crash when two share one.
/// Once it has been retired no call is made with it: its handle may be another session's by then. The same once the
/// module has given its handle to another, of whichever provider: the token was away, or reset.
final class Session: Sendable {
    let module: Module
    let handle: CK_SESSION_HANDLE
    let slot: CK_SLOT_ID
    private let generation: Int
    private let phase = Atomic(Phase.idle)
    private let left = DispatchSemaphore(value: 0)

    private enum Phase: UInt8, AtomicRepresentable {
        case idle, calling
        /// Retired in the middle of a call.
        case leaving
        /// As long as nobody waits for that call: its own thread closes the session.
        case late
        /// In the middle of a call, and the handle is another session's.
        case replaced
        /// Not closed yet.
        case retired
        case closed
    }

    /// Called with the module's `opening` locked.
    private init(slot: Slot, readWrite: Bool) throws(CryptokiError) {
        var handle: CK_SESSION_HANDLE = 0
        let generation = slot.module.generation
        let flags = CK_FLAGS(CKF_SERIAL_SESSION) | (readWrite ? CK_FLAGS(CKF_RW_SESSION) : 0)
        try slot.module.call("C_OpenSession", in: generation) { $0.C_OpenSession?(slot.id, flags, nil, nil, &handle) }
        self.module = slot.module
        self.slot = slot.id
        self.generation = generation
        self.handle = handle
        slot.module.notes(handle, at: slot.id, isOpen: true)
    }

    /// Takes the handle from the session that had it before: it is gone, whatever its owner knows. Called with the
    /// module's `opening` locked.
    ///
    /// - Returns: Whether no call of that one can have met this one.
    private func takesHandle() -> Bool { module.holders.replace(with: self, for: handle)?.giveUpHandle() ?? true }

    deinit { module.holders.remove(ObjectIdentifier(self), from: handle) }

    /// Whether the module that has given the handle is still the one that runs.
    var isOfThisModule: Bool { module.generation == generation }

    /// Calls a function with the handle. Blocks for as long as the module likes.
    ///
    /// - Throws: `CKR_SESSION_CLOSED` where the session is over, without a call.
    func call(_ name: String, _ body: (borrowing CK_FUNCTION_LIST) -> CK_RV?) throws(CryptokiError) {
        guard moves(from: .idle, to: .calling) else {
            throw CryptokiError(function: name, code: CKR_SESSION_CLOSED, origin: .notMade)
        }
        var isThere = false
        defer { leave(isThere) }
        try module.call(name, in: generation, body)
        isThere = true
    }

    /// - Parameter isThere: Whether the session was still there when the call worked.
    private func leave(_ isThere: Bool) {
        if moves(from: .calling, to: .idle) { return }
        if moves(from: .leaving, to: .retired) || moves(from: .replaced, to: .closed) {
            left.signal()
        } else if isThere {
            // The token may have been away since.
            close(from: .late)
        }
    }

    /// Closes the session, once. Blocks.
    func close() {
        guard module.isOfThisProcess else { return }
        close(from: .idle)
    }

    /// As ``close()``. Logs out before, where this is the last session of this process with the token: most modules do so
    /// by themselves then.
    func closeLoggingOut() {
        guard module.isOfThisProcess else { return }
        if module.isLogin(at: slot, onlyOf: 1) { logOut() }
        close(from: .idle)
    }

    /// Logs out, which counts for all sessions with the token.
    func logOut() {
        do throws(CryptokiError) { try call("C_Logout") { $0.C_Logout?(handle) } } catch {
            // The end of the module does it.
            if case .ended = error.origin { return }
        }
        module.notesLogin(at: slot, isLoggedIn: false)
    }

    /// Nobody gets the handle anew between the look at who has it and the call.
    private func close(from phase: Phase) { module.opening.withLock { _ in closeNow(from: phase) } }

    /// Called with the module's `opening` locked.
    private func closeNow(from phase: Phase) {
        guard moves(from: phase, to: .closed) else { return }
        do throws(CryptokiError) {
            try module.call("C_CloseSession", in: generation) { $0.C_CloseSession?(handle) }
        } catch {
            // The end of the module does it; that of another start has nothing of it.
            if case .ended = error.origin { return }
            if case .notMade = error.origin { return }
        }
        module.notes(handle, at: slot, isOpen: false)
    }

    /// Opens a session whose handle nobody else uses. Blocks.
    static func open(_ slot: Slot, readWrite: Bool) throws(CryptokiError) -> Session {
        try slot.module.opening.withLock { _ throws(CryptokiError) in
            for _ in 0..<3 {
                let session = try Session(slot: slot, readWrite: readWrite)
                if session.takesHandle() { return session }
                // Somebody may have begun or ended something in it.
                session.closeNow(from: .idle)
            }
            throw CryptokiError(function: "C_OpenSession", code: CKR_SESSION_CLOSED, origin: .notMade)
        }
    }

    /// Whether the module has this session no more. Not asked in the middle of another call, which will tell. Blocks.
    var isGone: Bool {
        var info = CK_SESSION_INFO()
        do throws(CryptokiError) {
            try call("C_GetSessionInfo") { $0.C_GetSessionInfo?(handle, &info) }
            return false
        } catch {
            if case .notMade = error.origin {
                // The other call may have ended since.
                return ![.idle, .calling, .leaving].contains(phase.load(ordering: .acquiring))
            }
            return error.isOfNoSession || [CKR_DEVICE_REMOVED, CKR_TOKEN_NOT_PRESENT].contains(error.code)
        }
    }

    /// Leaves the session as it is: it is gone, and its handle may already be another session's.
    func abandon() {
        guard moves(from: .idle, to: .closed), isOfThisModule else { return }
        module.notes(handle, at: slot, isOpen: false)
    }

    /// Lets no further call begin, from whichever thread.
    func retire() {
        while !moves(from: .idle, to: .retired), !moves(from: .calling, to: .leaving) {
            if phase.load(ordering: .acquiring).rawValue >= Phase.leaving.rawValue { return }
        }
    }

    /// Closes a retired session when the call that is going on has ended. To one that takes longer it is left.
    func closeRetired(by deadline: DispatchTime) {
        guard hasLeft(by: deadline) || !moves(from: .leaving, to: .late) else { return }
        close(from: .retired)
    }

    /// Waits for the end of a call after which no other can begin.
    private func hasLeft(by deadline: DispatchTime) -> Bool {
        let phase = phase.load(ordering: .acquiring)
        guard phase == .leaving || phase == .replaced else { return true }
        guard left.wait(timeout: deadline) == .success else { return false }
        // Others may wait for the same.
        left.signal()
        return true
    }

    /// Lets no further call begin, and waits for the one that is going on, for a while.
    private func giveUpHandle() -> Bool {
        while true {
            let phase = phase.load(ordering: .acquiring)
            switch phase {
            case .idle, .retired: if moves(from: phase, to: .closed) { return true }
            case .calling, .leaving:
                // One that does not end has met its own session, or hangs before it meets any.
                if moves(from: phase, to: .replaced) { return !hasLeft(by: .now() + Self.timeout) }
            case .late: if moves(from: .late, to: .replaced) { return true }
            case .replaced, .closed: return true
            }
        }
    }

    private static let timeout = DispatchTimeInterval.seconds(2)

    private func moves(from old: Phase, to new: Phase) -> Bool {
        phase.compareExchange(expected: old, desired: new, ordering: .acquiringAndReleasing).exchanged
    }
}
