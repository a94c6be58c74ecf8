import CP11Kit
import CertificateProviding
import Dispatch
import Synchronization

/// The open sessions with one token.
///
/// Opening a session for each signature costs as much as two signatures. One session is kept apart and never handed out:
/// closing the last one would log everybody out (PKCS#11, section 5.6).
final class SessionPool: Sendable {
    private struct State {
        var idle: [Session] = []
        /// All that are open, the one kept apart not counted.
        var open = 0
        var maximum: Int
        var waiting = 0
    }

    let slot: Slot
    private let keeper: Session
    private let state: Mutex<State>
    /// Some modules hand out the same handle twice when two threads open sessions at once.
    private let opening = Mutex(())
    private let returned = DispatchSemaphore(value: 0)

    /// More than this many signatures at once make no token faster.
    static let maximum = 16

    /// Opens the session that stays. Blocks.
    init(slot: Slot) throws(CryptokiError) {
        self.slot = slot
        self.keeper = try Session(slot: slot)
        // 0 is "no limit", and the largest number "not said".
        let limit = slot.token.ulMaxSessionCount
        let maximum = limit == 0 ? Self.maximum : max(1, min(Self.maximum, Int(clamping: limit) - 1))
        self.state = Mutex(State(maximum: maximum))
    }

    /// How many sessions the token was ever seen to give, the one kept apart not counted.
    var maximum: Int { state.withLock { $0.maximum } }

    /// Lends a session to `body`, opening one or waiting for one where none is idle. Blocks.
    func withSession<T>(_ body: (Session) throws(CryptokiError) -> T) throws(CryptokiError) -> T {
        let session = try take()
        do throws(CryptokiError) {
            let result = try body(session)
            giveBack(session)
            return result
        } catch {
            // An operation may still be going on in it, and the handle may mean nothing any more.
            discard()
            throw error
        }
    }

    private enum Turn { case use(Session), open, wait }

    private func take() throws(CryptokiError) -> Session {
        while true {
            let turn: Turn = state.withLock { state in
                if let session = state.idle.popLast() { return .use(session) }
                if state.open < state.maximum {
                    state.open += 1
                    return .open
                }
                state.waiting += 1
                return .wait
            }
            switch turn {
            case .use(let session): return session
            case .wait: returned.wait()
            case .open:
                do throws(CryptokiError) { return try open() } catch {
                    let mayWait = state.withLock { state in
                        state.open -= 1
                        guard error.code == CKR_SESSION_COUNT, state.open > 0 else { return false }
                        // Other programs hold the rest: this many is what there is.
                        state.maximum = state.open
                        return true
                    }
                    if !mayWait { throw error }
                }
            }
        }
    }

    private func open() throws(CryptokiError) -> Session {
        try opening.withLock { _ throws(CryptokiError) in try Session(slot: slot) }
    }

    private func giveBack(_ session: Session) { wake { $0.idle.append(session) } }

    private func discard() { wake { $0.open -= 1 } }

    private func wake(_ change: (inout State) -> Void) {
        let isAwaited = state.withLock { state in
            change(&state)
            guard state.waiting > 0 else { return false }
            state.waiting -= 1
            return true
        }
        if isAwaited { returned.signal() }
    }
}
