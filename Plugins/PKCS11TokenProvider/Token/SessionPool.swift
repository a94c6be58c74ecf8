import CP11Kit
import CertificateProviding
import Dispatch
import Glibc

/// The open sessions with one token.
///
/// Opening a session for each signature costs as much as two signatures. One session stays open as long as the pool is used:
/// closing the last one would end the login of all parts of the process (PKCS#11, section 5.6). It is lent only if there is no
/// other.
///
/// Threads without a session wait in a queue: first come, first served. Otherwise a thread that has just given one back
/// would take it again before the others are awake.
final class SessionPool: Sendable {
    let slot: Slot
    private let keeper: Session
    private let state: BlockingMutex<State>
    private let ceiling: Int

    /// More than this many signatures at once make no token faster.
    static let maximum = 16

    /// Opens the session that stays. Blocks.
    init(slot: Slot) throws(CryptokiError) {
        self.slot = slot
        // 0 is "no limit", and the largest number "not said".
        let limit = slot.token.ulMaxSessionCount
        self.ceiling = limit == 0 ? Self.maximum : min(Self.maximum, Int(clamping: limit) - 1)
        self.keeper = try Self.openKeeper(slot, isOnly: ceiling == 0)
        self.state = BlockingMutex(State(maximum: ceiling))
    }

    deinit {
        let sessions = state.withLock { state in state.isEnded ? nil : state.sessions }
        guard let sessions else { return }
        slot.module.cleanup.run { [keeper] in
            sessions.forEach { $0.close() }
            keeper.closeLoggingOut()
        }
    }

    /// - Parameter isOnly: Whether the token has no other session: then it is for everything that the token permits.
    private static func openKeeper(_ slot: Slot, isOnly: Bool) throws(CryptokiError) -> Session {
        let end = ContinuousClock.now + keeperTimeout
        var isForWriting = isOnly
        while true {
            do throws(CryptokiError) { return try Session.open(slot, readWrite: isForWriting) } catch {
                if isForWriting, error.code == CKR_TOKEN_WRITE_PROTECTED {
                    isForWriting = false
                } else {
                    guard error.code == CKR_SESSION_COUNT, .now < end else { throw error }
                    usleep(10_000)
                }
            }
        }
    }

    /// Sessions that another part of the process has given up may still be closing.
    private static let keeperTimeout = Duration.milliseconds(500)

    /// Lends a session to `body`, opening one or waiting for one where none is idle. Blocks.
    ///
    /// Not to be called within `body`, which may have the only session there is.
    ///
    /// - Parameter writing: Lends one for reading and writing, which is opened for `body` alone: writing is rare.
    func withSession<T>(
        writing: Bool = false, _ body: (Session) throws(CryptokiError) -> T
    ) throws(CryptokiError) -> T {
        let session = try take(writing: writing)
        do throws(CryptokiError) {
            let result = try body(session)
            giveBack(session, closing: writing)
            return result
        } catch {
            if error.isOfNoSession { session.abandon() }
            // Something may still be going on in it.
            giveBack(session, closing: true)
            throw error
        }
    }

    /// Whether the sessions are worthless: the pool was ended, or its module was started again.
    var isOver: Bool { !keeper.isOfThisModule || state.withLock(\.isEnded) }

    /// Closes all sessions, as ``Session/close()``. One that is lent makes no further call, and is closed when it is given
    /// back. Waiters get `CKR_SESSION_CLOSED`.
    func end() {
        let sessions = state.withLock { state in
            defer {
                state.queue.forEach { $0.signal() }
                state = State(maximum: 0)
                state.isEnded = true
            }
            return state.sessions + [keeper]
        }
        for session in sessions where !session.retire() { session.close() }
    }

    private func take(writing: Bool) throws(CryptokiError) -> Session {
        var place: DispatchSemaphore?
        while true {
            let turn = state.withLock { state -> Turn? in
                guard !state.isEnded, keeper.isOfThisModule else { return nil }
                return state.turn(at: &place, writing: writing, ceiling: ceiling, keeper: keeper)
            }
            switch turn {
            case .use(let session):
                session.lend()
                return session
            case .wait(let place): try wait(at: place)
            case nil: throw CryptokiError(function: "C_OpenSession", code: CKR_SESSION_CLOSED, origin: .notMade)
            case .open(let old):
                old?.close()
                if let session = try open(writing: writing) {
                    session.lend()
                    return session
                }
            }
        }
    }

    /// Waits to be first in the queue and to be called, for as long as this call's caller waits.
    private func wait(at place: DispatchSemaphore) throws(CryptokiError) {
        let deadline = ModuleCalls.deadline.map { DispatchTime($0) } ?? .distantFuture
        guard place.wait(timeout: deadline) == .timedOut else { return }
        state.withLock { state in
            state.queue.removeAll { $0 === place }
            // It may have been called in this moment.
            state.wakeFirst()
        }
        throw CryptokiError(function: "C_OpenSession", code: CKR_SESSION_COUNT, origin: .notMade)
    }

    /// Returns `nil` where the token has no further session: other programs hold the rest, and this many is what there
    /// is for now.
    private func open(writing: Bool) throws(CryptokiError) -> Session? {
        let session: Session
        do throws(CryptokiError) { session = try openBesideKeeper(writing: writing) } catch {
            let remaining = state.withLock { state in
                state.open -= 1
                if error.code == CKR_SESSION_COUNT {
                    (state.maximum, state.end) = (state.open, .now + Self.shortage)
                }
                state.wakeFirst()
                return state.open
            }
            // None will be given back that could make room for one to write with.
            guard error.code == CKR_SESSION_COUNT, remaining > 0 || !writing else { throw error }
            return nil
        }
        let isEnded = state.withLock { state in
            if !state.isEnded { state.sessions.append(session) }
            return state.isEnded
        }
        guard !isEnded else {
            session.close()
            throw CryptokiError(function: "C_OpenSession", code: CKR_SESSION_CLOSED, origin: .notMade)
        }
        return session
    }

    /// Opens a session with the token in the slot now. As long as the keeper's session exists, it is the token of this
    /// connection: that session ends when a token is taken out, whichever is put in.
    private func openBesideKeeper(writing: Bool) throws(CryptokiError) -> Session {
        let session = try Session.open(slot, readWrite: writing)
        do throws(CryptokiError) {
            guard try isKeeperGone() else { return session }
            throw CryptokiError(function: "C_OpenSession", code: CKR_SESSION_CLOSED, origin: .notMade)
        } catch {
            session.close()
            throw error
        }
    }

    private func isKeeperGone() throws(CryptokiError) -> Bool {
        let isFree = state.withLock { state in
            defer { state.isKeeperLent = true }
            return !state.isKeeperLent
        }
        // The operation that has it will notice.
        guard isFree else { return false }
        defer {
            state.withLock { state in
                state.isKeeperLent = false
                state.wakeFirst()
            }
        }
        return try slot.module.control("C_GetSessionInfo") { [keeper] in keeper.isGone }
    }

    /// How long to do with the sessions that there are.
    private static let shortage = Duration.seconds(5)

    private func giveBack(_ session: Session, closing: Bool) {
        let isUsable = session.giveBack()
        // Outside the lock. The keeper stays, whatever happened in it, as long as the pool does.
        if !isUsable || closing && session !== keeper { session.close() }
        state.withLock { state in
            if session === keeper {
                state.isKeeperLent = false
            } else if closing || !isUsable {
                state.open -= 1
                state.sessions.removeAll { $0 === session }
            } else if !state.isEnded {
                state.idle.append(session)
            }
            state.wakeFirst()
        }
    }
}
