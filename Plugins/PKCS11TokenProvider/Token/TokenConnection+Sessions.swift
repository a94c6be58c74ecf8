import CP11Kit
import CertificateProviding
import Dispatch
import Glibc

extension TokenConnection {
    /// The slot of a connection, and the session that stays open as long as the connection does: closing the last one would end
    /// the login of all parts of the process (PKCS#11, section 5.6). An operation gets it only where the token permits no other session.
    final class Link: Sendable {
        let slot: Slot
        let keeper: Session
        let mechanisms: TokenMechanisms
        /// How many sessions there may be beside the keeper.
        let ceiling: Int

        /// Opens the session that stays. Blocks.
        init(slot: Slot) throws(CryptokiError) {
            self.slot = slot
            // 0 is "no limit", and the largest number "not said".
            let limit = slot.token.ulMaxSessionCount
            ceiling = limit == 0 ? maximumSessions : min(maximumSessions, Int(clamping: limit) - 1)
            let keeper = try Self.openKeeper(slot, isOnly: ceiling == 0)
            self.keeper = keeper
            do throws(CryptokiError) {
                mechanisms = try slot.module.control("C_GetMechanismList") { () throws(CryptokiError) in
                    try TokenMechanisms(of: slot)
                }
            } catch {
                // Ended before the next try: there may be no other session.
                keeper.close()
                throw error
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
    }

    /// More than this many signatures at once make no token faster.
    static let maximumSessions = 16

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

    private func take(writing: Bool) throws(CryptokiError) -> Session {
        var place: DispatchSemaphore?
        while true {
            let turn = link.keeper.isOfThisModule ? withOpen { $0.turn(at: &place, writing: writing, link) } : nil
            switch turn {
            case .use(let session):
                session.lend()
                return session
            case .wait(let place): try wait(at: place)
            case nil: throw Self.isClosed
            case .open(let old):
                old?.close()
                if let session = try open(writing: writing) {
                    session.lend()
                    return session
                }
            }
        }
    }

    private static let isClosed = CryptokiError(
        function: "C_OpenSession", code: CKR_SESSION_CLOSED, origin: .notMade)

    /// Waits to be first of those that wait and to be called, for as long as this call's caller waits.
    private func wait(at place: DispatchSemaphore) throws(CryptokiError) {
        let deadline = ModuleCalls.deadline.map { DispatchTime($0) } ?? .distantFuture
        guard place.wait(timeout: deadline) == .timedOut else { return }
        withOpen { open in
            open.waiting.removeAll { $0 === place }
            // It may have been called in this moment.
            open.wakeFirst()
        }
        throw CryptokiError(function: "C_OpenSession", code: CKR_SESSION_COUNT, origin: .notMade)
    }

    /// Returns `nil` where the token has no further session: other programs hold the rest, and this many is what there
    /// is for now.
    private func open(writing: Bool) throws(CryptokiError) -> Session? {
        let session: Session
        do throws(CryptokiError) { session = try openBesideKeeper(writing: writing) } catch {
            let remaining = withOpen { open in
                open.count -= 1
                if error.code == CKR_SESSION_COUNT { (open.maximum, open.end) = (open.count, .now + Self.shortage) }
                open.wakeFirst()
                return open.count
            }
            // None will be given back that could make room for one to write with.
            guard error.code == CKR_SESSION_COUNT, remaining ?? 0 > 0 || !writing else { throw error }
            return nil
        }
        guard withOpen({ $0.sessions.append(session) }) != nil else {
            session.close()
            throw Self.isClosed
        }
        return session
    }

    /// Opens a session with the token in the slot now. As long as the keeper's session exists, it is the token of this
    /// connection: that session ends when a token is taken out, whichever is put in.
    private func openBesideKeeper(writing: Bool) throws(CryptokiError) -> Session {
        let session = try Session.open(slot, readWrite: writing)
        do throws(CryptokiError) {
            guard try isKeeperGone() else { return session }
            throw Self.isClosed
        } catch {
            session.close()
            throw error
        }
    }

    private func isKeeperGone() throws(CryptokiError) -> Bool {
        let isFree = withOpen { open in
            defer { open.isKeeperLent = true }
            return !open.isKeeperLent
        }
        // The operation that has it will notice.
        guard isFree == true else { return false }
        defer {
            withOpen { open in
                open.isKeeperLent = false
                open.wakeFirst()
            }
        }
        return try slot.module.control("C_GetSessionInfo") { [keeper = link.keeper] in keeper.isGone }
    }

    /// How long to do with the sessions that there are.
    private static let shortage = Duration.seconds(5)

    private func giveBack(_ session: Session, closing: Bool) {
        let (isUsable, isKeeper) = (session.giveBack(), session === link.keeper)
        // Outside the lock. The keeper stays, whatever happened in it, as long as the connection does.
        if !isUsable || closing && !isKeeper { session.close() }
        withOpen { open in
            if isKeeper {
                open.isKeeperLent = false
            } else if closing || !isUsable {
                open.count -= 1
                open.sessions.removeAll { $0 === session }
            } else {
                open.idle.append(session)
            }
            open.wakeFirst()
        }
    }

    /// Closes all sessions, before another connection gets the same handles, as ``Session/close()``. One that is lent makes no
    /// further call, and is closed when it is given back. Those that wait for one get `CKR_SESSION_CLOSED`.
    ///
    /// - Returns: Whether it was still the token's connection.
    @discardableResult
    func end() -> Bool {
        let open = withOpen { open in
            defer { open = TokenQueue.Open() }
            return open
        }
        guard let open else { return false }
        open.waiting.forEach { $0.signal() }
        for session in open.sessions + [link.keeper] where !session.retire() { session.close() }
        return true
    }
}
