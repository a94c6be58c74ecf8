import CP11Kit
import CertificateProviding
import Dispatch
import Synchronization

/// The open sessions with one token.
///
/// Opening a session for each signature costs as much as two signatures. One session stays open as long as the pool is
/// used: closing the last one would log everybody out (PKCS#11, section 5.6). It is only lent where there is no other.
final class SessionPool: Sendable {
    private struct State {
        var idle: [Session] = []
        /// All but the keeper: those that are idle, those that are lent, and those for writing.
        var sessions: [Session] = []
        /// The idle and the lent ones, and those that are being opened.
        var open = 0
        /// 0 where the keeper is all there is.
        var maximum: Int
        /// When to look whether other programs still hold the rest.
        var end: ContinuousClock.Instant?
        var waiting = 0
        var isKeeperLent = false
        var isEnded = false
    }

    let slot: Slot
    private let keeper: Session
    private let state: Mutex<State>
    private let ceiling: Int
    private let returned = DispatchSemaphore(value: 0)
    private let ending = Mutex(())

    /// More than this many signatures at once make no token faster.
    static let maximum = 16

    /// Opens the session that stays. Blocks.
    init(slot: Slot) throws(CryptokiError) {
        self.slot = slot
        self.keeper = try Self.openOne(slot)
        // 0 is "no limit", and the largest number "not said".
        let limit = slot.token.ulMaxSessionCount
        self.ceiling = limit == 0 ? Self.maximum : min(Self.maximum, Int(clamping: limit) - 1)
        self.state = Mutex(State(maximum: ceiling))
    }

    private static func openOne(_ slot: Slot, readWrite: Bool = false) throws(CryptokiError) -> Session {
        try slot.module.opening.withLock { _ throws(CryptokiError) in try Session(slot: slot, readWrite: readWrite) }
    }

    /// Lends a session to `body`, opening one or waiting for one where none is idle. Blocks.
    func withSession<T>(_ body: (Session) throws(CryptokiError) -> T) throws(CryptokiError) -> T {
        let session = try take()
        do throws(CryptokiError) {
            let result = try body(session)
            giveBack(session)
            return result
        } catch {
            discard(session, after: error)
            throw error
        }
    }

    /// Whether the sessions are worthless: the pool was ended, or its module was started again.
    var isOver: Bool { !keeper.isOfThisModule || state.withLock(\.isEnded) }

    /// Closes all sessions before a new connection gets the same handles: one that is lent makes no further call, and
    /// the call that it is in the middle of is waited for, for a while. Who waits for a session is told that this one is
    /// over. Blocks, also where another thread ends the pool.
    func end() {
        ending.withLock { _ in
            let (sessions, waiting) = state.withLock { state in
                defer {
                    state.isEnded = true
                    state.idle = []
                    state.sessions = []
                    state.waiting = 0
                }
                return (state.sessions + [keeper], state.waiting)
            }
            for _ in 0..<waiting { returned.signal() }
            sessions.forEach { $0.retire() }
            let deadline = DispatchTime.now() + Self.patience
            sessions.forEach { $0.closeRetired(by: deadline) }
        }
    }

    /// A call that takes longer hangs, and whoever wants to connect anew is not to hang with it.
    private static let patience = DispatchTimeInterval.seconds(2)

    private enum Turn { case use(Session), open, wait, stop }

    private func take() throws(CryptokiError) -> Session {
        while true {
            let turn: Turn = state.withLock { state in
                if state.isEnded || !keeper.isOfThisModule { return .stop }
                if let session = state.idle.popLast() { return .use(session) }
                if let end = state.end, end <= .now { (state.maximum, state.end) = (ceiling, nil) }
                if state.open < state.maximum {
                    state.open += 1
                    return .open
                }
                if state.maximum == 0, !state.isKeeperLent {
                    state.isKeeperLent = true
                    return .use(keeper)
                }
                state.waiting += 1
                return .wait
            }
            switch turn {
            case .use(let session): return session
            case .wait: returned.wait()
            case .stop: throw CryptokiError(function: "C_OpenSession", code: CKR_SESSION_CLOSED)
            case .open: if let session = try open() { return session }
            }
        }
    }

    /// Returns `nil` where the token has no further session: other programs hold the rest, and this many is what there is
    /// for now.
    private func open() throws(CryptokiError) -> Session? {
        do throws(CryptokiError) { return try openRegistered(readWrite: false) } catch {
            wake { state in
                state.open -= 1
                if error.code == CKR_SESSION_COUNT {
                    (state.maximum, state.end) = (state.open, .now + Self.shortage)
                }
            }
            guard error.code == CKR_SESSION_COUNT else { throw error }
            return nil
        }
    }

    /// How long to do with the sessions that there are.
    private static let shortage = Duration.seconds(5)

    private func openRegistered(readWrite: Bool) throws(CryptokiError) -> Session {
        let session = try Self.openOne(slot, readWrite: readWrite)
        let isEnded = state.withLock { state in
            if !state.isEnded { state.sessions.append(session) }
            return state.isEnded
        }
        guard !isEnded else {
            session.close()
            throw CryptokiError(function: "C_OpenSession", code: CKR_SESSION_CLOSED)
        }
        return session
    }

    private func giveBack(_ session: Session) {
        wake { state in
            if session === keeper { state.isKeeperLent = false } else if !state.isEnded { state.idle.append(session) }
        }
    }

    /// One more session, which is not of the pool.
    func withOneMore<T>(
        readWrite: Bool, _ body: (Session) throws(CryptokiError) -> T
    ) throws(CryptokiError) -> T {
        let session = try openRegistered(readWrite: readWrite)
        defer {
            session.close()
            state.withLock { state in state.sessions.removeAll { $0 === session } }
        }
        return try body(session)
    }

    func closeIdle() {
        // Closed outside the lock.
        let idle = state.withLock { state in
            defer { state.idle = [] }
            state.open -= state.idle.count
            state.sessions.removeAll { session in state.idle.contains { $0 === session } }
            return state.idle
        }
        idle.forEach { $0.close() }
    }

    /// An operation may still be going on in the session, and its handle may mean nothing any more.
    private func discard(_ session: Session, after error: CryptokiError) {
        if error.code == CKR_SESSION_HANDLE_INVALID || error.code == CKR_SESSION_CLOSED {
            session.abandon()
        } else if session !== keeper {
            session.close()
        }
        wake { state in
            guard session !== keeper else { return state.isKeeperLent = false }
            state.open -= 1
            state.sessions.removeAll { $0 === session }
        }
    }

    @discardableResult private func wake<T>(_ change: (inout State) -> T) -> T {
        let (result, isAwaited) = state.withLock { state in
            let result = change(&state)
            guard state.waiting > 0 else { return (result, false) }
            state.waiting -= 1
            return (result, true)
        }
        if isAwaited { returned.signal() }
        return result
    }
}
