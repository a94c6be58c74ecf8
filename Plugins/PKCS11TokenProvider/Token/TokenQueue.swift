import CP11Kit
import CertificateProviding
import Dispatch

/// The one lock of a token in a provider: its connection, with the sessions and the threads that wait for one, and the facts
/// that were found out about the token.
///
/// A session is idle here, or the operation's that has taken it, and no other thread's.
final class TokenQueue: Sendable {
    let state = BlockingMutex(State())
    /// Whether a key has been looked at as one that may sign without a login.
    let hasKeysWithoutLogin = Latch()

    struct State {
        var open = Open()
        /// The token's slot at the last look, if no other one looked like it.
        var place: Slot?
        /// Whether the keys of public objects sign without a login, as far as that was needed.
        var withoutLogin: [PublicKeyInfo: Bool] = [:]
        /// The start of the module since which it says of a token with a user PIN that there is none.
        var staleStart: Int?
        /// Whether it decrypts by schemes for which its list of mechanisms does not say it.
        var decryption: [DecryptionScheme: Bool] = [:]
    }

    /// The state of the connection, gone as a whole when it ends.
    struct Open {
        /// `nil` without a connection.
        var link: TokenConnection.Link?
        var login: Module.KeptLogin?
        /// Whether it is this connection's: otherwise another part of the process has logged in, and logs out.
        var isLoginOwn = false
        /// The keys that were found, by the public key, after login: the same handle may later mean another key.
        var keys: [PublicKeyInfo: TokenConnection.Key] = [:]
        var idle: [Session] = []
        /// All but the keeper: those that are idle and those that are lent.
        var sessions: [Session] = []
        /// How many they are, with those that are being opened.
        var count = 0
        /// 0 where the keeper is all there is.
        var maximum = 0
        /// When to look whether other programs still hold the rest.
        var end: ContinuousClock.Instant?
        /// The threads that wait for a session: first come, first served. Otherwise a thread that has just given one back
        /// would take it again before the others are awake.
        var waiting: [DispatchSemaphore] = []
        var isKeeperLent = false

        /// Lets the first that waits look again.
        func wakeFirst() { waiting.first?.signal() }
    }

    deinit {
        let open = state.withLock(\.open)
        guard let link = open.link else { return }
        link.slot.module.cleanup.run { [sessions = open.sessions] in
            sessions.forEach { $0.close() }
            link.keeper.closeLoggingOut()
        }
    }

    /// The connection as it is now; `nil` where there is none.
    var connection: TokenConnection? {
        state.withLock { state in
            guard let link = state.open.link else { return nil }
            return TokenConnection(
                queue: self, link: link, hadLogin: state.open.login != nil, knownKeys: state.open.keys)
        }
    }

    /// Begins a connection. Call it only while the token has none.
    func connect(_ link: TokenConnection.Link) {
        state.withLock { $0.open = Open(link: link, maximum: link.ceiling) }
    }
}

extension TokenQueue.Open {
    enum Turn {
        case use(Session), wait(DispatchSemaphore)
        case open(closing: Session? = nil)
    }

    /// - Parameter place: The caller's among those that wait, where it has one.
    mutating func turn(
        at place: inout DispatchSemaphore?, writing: Bool, _ link: TokenConnection.Link
    ) -> Turn {
        if waiting.first === place, let turn = next(writing, link) {
            if place != nil {
                waiting.removeFirst()
                // There may be more than one.
                wakeFirst()
            }
            place = nil
            return turn
        }
        let own = place ?? DispatchSemaphore(value: 0)
        if place == nil { waiting.append(own) }
        place = own
        return .wait(own)
    }

    /// Returns the turn of the first waiter; `nil` if it has to wait.
    private mutating func next(_ writing: Bool, _ link: TokenConnection.Link) -> Turn? {
        if !writing, let session = idle.popLast() { return .use(session) }
        if let end, end <= .now { (maximum, self.end) = (link.ceiling, nil) }
        // The keeper does not write where others took the rest.
        let mustOpen = writing && count == 0 && link.ceiling > 0
        if count < maximum || mustOpen {
            count += 1
            return .open()
        }
        // For reading they were all lent.
        if let old = idle.popLast() {
            sessions.removeAll { $0 === old }
            return .open(closing: old)
        }
        guard maximum == 0, !writing || link.ceiling == 0, !isKeeperLent else { return nil }
        isKeeperLent = true
        return .use(link.keeper)
    }
}
