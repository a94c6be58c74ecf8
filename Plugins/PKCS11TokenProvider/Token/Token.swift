import CP11Kit
import CertificateProviding
import Glibc
import Logging
import Synchronization

/// One token, wherever it is plugged in at the moment: finds it, connects to it, and connects again after it was away.
///
/// All functions block, and belong on the threads of ``calls``.
final class Token: Sendable {
    let identity: Slot.Identity
    let displayName: String
    let module: Module
    /// Kept for as long as a key of the token is.
    private let use: Module.Use?
    /// The threads for all of its calls.
    let calls: ModuleCalls
    let pins: PINSupply
    let pending: PendingKeys
    private let logsInAlways: Bool
    private let queue = TokenQueue()
    private var state: BlockingMutex<TokenQueue.State> { queue.state }
    /// One thread at a time connects and logs in.
    private let connectLock = BlockingMutex(())
    private let isShutDown = Atomic(false)

    /// - Parameter logsInAlways: Also where the token does not demand it.
    init(
        _ slot: Slot, use: Module.Use? = nil, calls: ModuleCalls, pins: PINSupply, pending: PendingKeys,
        logsInAlways: Bool = false
    ) {
        self.logsInAlways = logsInAlways
        self.identity = slot.identity
        self.displayName = slot.displayName
        self.module = slot.module
        self.use = use
        self.calls = calls
        self.pins = pins
        self.pending = pending
    }

    /// Makes, finds and destroys key pairs on it.
    var keys: TokenKeys { TokenKeys(token: self) }

    /// Lends the connection to `body`. If the token was removed or reset, connects again and calls `body` once more.
    ///
    /// - Parameter loggedIn: Whether to log in first, where the token has a login.
    /// - Throws: What the token says, `tokenNotPresent` while it is away; with `loggedIn` also `interactionRequired` where
    ///   there is no PIN, and what ``PINPolicy`` refuses.
    func withConnection<T>(
        loggedIn: Bool = false, _ body: (TokenConnection) throws(CryptokiError) -> T
    ) throws(ProviderError) -> T {
        // A failure counts if it is this connection's own, and does not if another thread has ended the connection.
        var (failures, interruptions) = (0, 0)
        // A module that may be broken is started again once.
        var isRepaired = false
        var wantsLogin = loggedIn
        while true {
            let before = module.health(of: identity)
            let connection: TokenConnection
            var failure = CryptokiError(function: "C_OpenSession", code: CKR_SESSION_CLOSED)
            // Without a permission, visible objects can be used: a public key, or one after a login of another part of the
            // process.
            let logsIn = wantsLogin && pins.isPermitted
            var hadLogin: Bool
            var isReady = true
            do throws(CryptokiError) {
                connection = try connected()
                hadLogin = connection.needsNoLogin || connection.hadLogin
                if logsIn, !hadLogin {
                    isReady = try logInOrRepair(connection, nil, since: before)
                    hadLogin = isReady
                }
            } catch { throw ProviderError(error, token: displayName) }
            let result = try module.operate { () throws(ProviderError) -> T? in
                guard isReady else { return nil }
                do throws(CryptokiError) { return try body(connection) } catch {
                    failure = error
                    return nil
                }
            }
            if let result { return result }
            let isInterrupted = connection.isOver
            let isLost = logsIn && failure.mayBeLostLogin && connection.hasLostLogin
            guard isInterrupted || isLost || failure.endsConnection else { throw describe(failure) }
            // Without the login that was there, a second look would not see what the first one did.
            let hasPad = connection.slot.has(UInt(CKF_PROTECTED_AUTHENTICATION_PATH))
            wantsLogin = wantsLogin || hadLogin && isPINAtHand && !hasPad
            // If several calls fail with one connection, one failure counts, before another of them looks at the count.
            forget(connection, noting: isInterrupted ? nil : failure)
            let isStartedAgain = !isInterrupted && !isRepaired && repair(failure, since: before)
            guard failure.isRepeatable else { throw describe(failure) }
            if isInterrupted { interruptions += 1 } else { failures += 1 }
            if isStartedAgain {
                isRepaired = true
                failures = 1
            }
            guard failures < 2, interruptions < Self.maximumInterruptions else {
                if failure.code == CKR_USER_NOT_LOGGED_IN, !isInterrupted,
                    connection.slot.has(UInt(CKF_LOGIN_REQUIRED))
                {
                    if hadLogin { throw refused(failure) }
                    if wantsLogin { try pins.requirePermission(for: self) }
                }
                // Not what the module calls it: that it wants a login, or is broken, is over with that connection.
                if isInterrupted || isLost {
                    failure = CryptokiError(function: failure.function, code: CKR_SESSION_CLOSED)
                }
                throw describe(failure)
            }
        }
    }

    /// The token does not do what its user wants, right after the login. OpenSC says this of a key that a card does not
    /// let sign (6982), and takes the login for lost then.
    private func refused(_ failure: CryptokiError) -> ProviderError {
        ProviderError(
            .rejected,
            ["C_Sign", "C_Decrypt"].contains { failure.function.hasPrefix($0) }
                ? "The token '\(displayName)' refuses to use the key, although the user is logged in; check with the "
                    + "token's own tool whether the key may be used (\(failure))."
                : "The token '\(displayName)' refuses the operation, although the user is logged in; it may require "
                    + "the SO PIN or management key: use the token's own tool (\(failure)).",
            nativeCode: Int(clamping: failure.code), underlying: failure)
    }

    private static let maximumInterruptions = 10

    /// Logs the user in, where the token has a login and it has not happened yet.
    /// - Parameter pin: One that a person has just given; otherwise the configured one is used.
    func logIn(pin: SecretBytes?) throws(CryptokiError) {
        for _ in 0..<Self.maximumInterruptions {
            let before = module.health(of: identity)
            let connection = try connected()
            if try logInOrRepair(connection, pin, since: before) { return }
            forget(connection)
        }
        throw CryptokiError(function: "C_OpenSession", code: CKR_SESSION_CLOSED)
    }

    /// Whether a login needs no person.
    var isPINAtHand: Bool { pins.isAtHand }

    /// Whether private objects can be seen now.
    var isLoggedIn: Bool { queue.connection.map { $0.needsNoLogin || $0.hadLogin } ?? false }

    func logout() {
        pins.forget()
        let current = queue.connection
        current?.logout()
        current?.end()
    }

    /// Makes no further connection.
    func refuse() {
        isShutDown.store(true, ordering: .releasing)
        pins.forget()
    }

    /// Closes the sessions, unless a thread is connecting or logging in.
    func closeIfIdle() -> Bool {
        connectLock.withLockIfAvailable { _ in _ = queue.connection?.end() } != nil
    }

    private func connected() throws(CryptokiError) -> TokenConnection {
        if let current = queue.connection { return current }
        let before = module.health(of: identity)
        do throws(CryptokiError) { return try newConnection() } catch {
            note(error)
            guard repair(error, since: before) else { throw error }
            return try newConnection()
        }
    }

    private func newConnection() throws(CryptokiError) -> TokenConnection {
        var slot = state.withLock { $0.staleStart == module.generation } ? nil : slotOfLastLook()
        if slot == nil { try bringBack() }
        return try connectLock.withLock { _ throws(CryptokiError) in
            guard !isShutDown.load(ordering: .acquiring) else { throw .ended("C_OpenSession") }
            if let current = queue.connection { return current }
            for _ in 0..<Self.maximumInterruptions {
                if let new = try connect(in: slot) { return new }
                slot = nil
            }
            throw CryptokiError(function: "C_OpenSession", code: CKR_SESSION_CLOSED)
        }
    }

    /// Called with `connectLock` locked.
    ///
    /// - Returns: `nil` where the module was started again in between, as it is to find another token: nothing was asked of
    ///   the token.
    private func connect(in known: Slot?) throws(CryptokiError) -> TokenConnection? {
        let slot = if let known { known } else { try present() }
        do throws(CryptokiError) {
            queue.connect(try TokenConnection.Link(slot: slot))
            return queue.connection
        } catch {
            if error.isOvertaken { return nil }
            throw specific(error)
        }
    }

    /// Starts the module again where it does not see the token, or its PIN, and that may help.
    ///
    /// - Throws: `CKR_TOKEN_NOT_PRESENT` where the module does not start.
    private func bringBack() throws(CryptokiError) {
        let generation = module.generation
        let isStale = state.withLock { $0.staleStart == generation }
        // The error is dropped: the next look at the slots reports it.
        guard let all = try? slots(), isStale || !all.contains(where: { $0.identity == identity }) else { return }
        do throws(CryptokiError) {
            _ = try module.startAgainToFind(beside: all, in: generation, isCertain: isStale)
        } catch { throw Self.away }
    }

    /// The slots with a token, among which this one's may be.
    private func slots() throws(CryptokiError) -> [Slot] {
        var look = try Slot.look(at: module)
        for pause in Slot.pauses where look.isFixed && !look.slots.contains(where: { $0.identity == identity }) {
            usleep(pause)
            look = try Slot.look(at: module)
        }
        return try look.slotsOrFailure
    }

    /// Starts the module again where it does not see what another program has written to the token since. Not where a person
    /// has typed the PIN in at the reader.
    ///
    /// - Returns: Whether the next reading may be another one.
    /// - Throws: `tokenNotPresent` where the module does not start.
    func readAnew() throws(ProviderError) -> Bool {
        let generation = module.generation
        guard module.readsOnce, let all = try? slots(), let own = all.first(where: { $0.identity == identity }),
            !own.has(UInt(CKF_PROTECTED_AUTHENTICATION_PATH))
        else { return false }
        do throws(CryptokiError) {
            return try module.startAgainToFind(
                beside: all.filter { $0.identity != identity }, in: generation, isCertain: true)
        } catch { throw describe(Self.away) }
    }

    /// Notes where the token was seen.
    /// - Parameter isAlone: Whether no other token looked like it.
    func wasSeen(in slot: Slot, isAlone: Bool) { state.withLock { $0.place = isAlone ? slot : nil } }

    /// The slot of the last look, if the token is in it still: a look at each of hundreds would take as many looks at all.
    private func slotOfLastLook() -> Slot? {
        guard let slot = state.withLock(\.place), let now = try? slot.lookedAtAgain(),
            now.has(UInt(CKF_TOKEN_INITIALIZED)), now.identity == identity
        else { return nil }
        return asUsed(now)
    }

    /// The slot that the token is in now.
    /// - Throws: `CKR_TOKEN_NOT_PRESENT` while it is in none.
    private func present() throws(CryptokiError) -> Slot {
        let all: [Slot]
        do throws(CryptokiError) { all = try slots() } catch {
            // A module that starts without its tokens may not start at all.
            throw error.function == "C_Initialize" ? Self.away : error
        }
        let slots = all.filter { $0.identity == identity }
        guard let slot = slots.first else {
            let (others, away) = (module.tokensInUse(of: all), Self.away)
            throw CryptokiError(
                function: away.function, code: away.code, origin: .refusal(describe(away).naming(others)))
        }
        guard slots.count == 1 else {
            throw .refusal(
                ProviderError(
                    .configurationInvalid,
                    "\(slots.count) tokens '\(displayName)' have the same serial number and cannot be told apart; remove "
                        + "all but one."))
        }
        return asUsed(slot)
    }

    /// Returns the slot with the login that the settings demand, if that needs no person.
    func asUsed(_ slot: Slot) -> Slot { logsInAlways && isPINAtHand ? slot.demandingLogin : slot }

    private static let away = CryptokiError(function: "C_GetSlotList", code: CKR_TOKEN_NOT_PRESENT)

    /// Gives up the connection to a token that is in no slot any more.
    func lose() {
        if let current = queue.connection { forget(current) }
    }

    /// Logs out before a key is destroyed, where the module would leave it in the token's memory. The next call logs in
    /// again, and so does every other user of the token in this process.
    func unloadKeys() {
        guard module.losesLoadedKeys, let current = queue.connection else { return }
        current.logout(always: true)
        forget(current)
    }

    /// Ends a connection that is of no more use; the next call makes another.
    ///
    /// - Parameter failure: Noted, unless another call has ended the connection.
    func forget(_ old: TokenConnection, noting failure: CryptokiError? = nil) {
        // No thread connects anew before the old handles are closed: the module may give the same ones again.
        connectLock.withLock { _ in
            if old.end(), let failure { note(failure) }
        }
    }

    /// As ``logIn(_:_:)``. Starts a broken module again, for the next operation: this one must not send a PIN twice.
    private func logInOrRepair(
        _ connection: TokenConnection, _ pin: SecretBytes?, since before: Module.Health
    ) throws(CryptokiError) -> Bool {
        do throws(CryptokiError) {
            return try module.whileLoggingIn { () throws(CryptokiError) in try logIn(connection, pin) }
        } catch {
            note(error)
            _ = repair(error, since: before)
            throw error
        }
    }

    private func note(_ failure: CryptokiError) {
        if failure.mayBeBrokenModule { module.noteFailure(of: failure.function, at: identity) }
    }

    /// Starts the module again where it shows the token, and two connections in a row have failed, the second a new one. A
    /// single failure is none of the module: SoftHSM fails now and then while another process logs in.
    ///
    /// - Parameter before: As it was before the second one.
    /// - Returns: Whether it was started again, by this thread or another one.
    private func repair(_ failure: CryptokiError, since before: Module.Health) -> Bool {
        let now = module.health(of: identity)
        guard failure.mayBeBrokenModule,
            now.generation != before.generation || before.failures > 0 && now.failures > 1,
            let all = try? slots(), all.contains(where: { $0.identity == identity })
        else { return false }
        do throws(CryptokiError) {
            switch try module.startAgain(
                afterFailuresOf: identity, beside: all.filter { $0.identity != identity }, in: before.generation)
            {
            case .none: return false
            case .others: break
            case .own:
                pending.logger.warning(
                    "the PKCS#11 module was started again: it failed repeatedly, in new sessions too",
                    metadata: ["module": "\(module.name)", "token": "\(displayName)", "reason": "\(failure)"])
            }
        } catch {
            pending.logger.error(
                "a PKCS#11 module that had failed repeatedly does not start again",
                metadata: ["module": "\(module.name)", "token": "\(displayName)", "reason": "\(error)"])
            return false
        }
        return true
    }

    /// - Returns: `false` where the connection is over: nothing was sent, or to a module that is to be started again.
    private func logIn(_ connection: TokenConnection, _ pin: SecretBytes?) throws(CryptokiError) -> Bool {
        guard !connection.isLoggedIn else { return true }
        do throws(CryptokiError) {
            return try connectLock.withLock { _ throws(CryptokiError) in
                guard !connection.isOver else { return false }
                guard !connection.isLoggedIn else { return true }
                let generation = module.generation
                // The flags are read anew: the PIN may have been tried elsewhere. So is the slot: the session may be another
                // token's by then.
                let slot = try present()
                guard slot.id == connection.slot.id else { return false }
                do throws(CryptokiError) { try send(pin, on: connection, in: slot) } catch {
                    guard isStale(error) else { throw error }
                    // Before a thread that waits here asks the same of it.
                    connection.end()
                    guard isFirstStale(generation) else { throw error }
                    return false
                }
                return true
            }
        } catch {
            guard error.endsConnection else { throw error }
            forget(connection)
            // Found anew by this call only where nothing was sent: it must not send a PIN twice.
            guard error.isOvertaken else { throw error }
            return false
        }
    }

    private func send(
        _ pin: SecretBytes?, on connection: TokenConnection, in slot: Slot
    ) throws(CryptokiError) {
        try pins.login(slot, given: pin, now: { try? self.present() }) { pin throws(CryptokiError) in
            do throws(CryptokiError) {
                let isProven = try connection.login(pin)
                // The module says that the user is logged in already, which is not true. Sent again and again, a wrong PIN
                // would lock the token.
                if !isProven, !pins.isProven, connection.hasLostLogin {
                    throw CryptokiError(function: "C_Login", code: CKR_USER_ALREADY_LOGGED_IN)
                }
                return isProven
            } catch { throw specific(error) }
        }
    }

    /// Whether the module knows of no user PIN though the token has one: SoftHSM reads it when it starts, and never sees one that
    /// another process has set since, or was just changing then.
    private func isStale(_ error: CryptokiError) -> Bool {
        error.code == CKR_USER_PIN_NOT_INITIALIZED
            && (try? present())?.has(UInt(CKF_USER_PIN_INITIALIZED)) == true
    }

    /// Notes that the module has not known the PIN since this start, so that the next connection starts it again.
    ///
    /// - Returns: Whether the start before knew it: one new start is tried at once, and the next one with the next operation.
    private func isFirstStale(_ generation: Int) -> Bool {
        state.withLock { state in
            defer { state.staleStart = generation }
            return state.staleStart.map { $0 < generation - 1 } ?? true
        }
    }

    /// Returns the confirmation of a key that asks for the PIN each time, in the middle of its operation.
    func confirmation(on connection: TokenConnection) -> (Session) throws(CryptokiError) -> Void {
        { session throws(CryptokiError) in
            let now = { (try? self.present()).flatMap { $0.id == connection.slot.id ? $0 : nil } }
            try self.pins.confirm(now: now) { pin throws(CryptokiError) in
                do throws(CryptokiError) {
                    return try session.login(pin, as: CK_USER_TYPE(CKU_CONTEXT_SPECIFIC))
                } catch { throw self.specific(error) }
            }
        }
    }

    /// Takes the key of a public object for one that needs no login, unless it has shown that it does.
    func expectsNoLogin(for publicKey: PublicKeyInfo) -> Bool {
        _ = queue.hasKeysWithoutLogin.isFirst()
        return state.withLock { state in
            let isExpected = state.withoutLogin[publicKey] ?? true
            state.withoutLogin[publicKey] = isExpected
            return isExpected
        }
    }

    /// Whether a key is taken for one that needs no login.
    func needsNoLogin(for publicKey: PublicKeyInfo) -> Bool {
        queue.hasKeysWithoutLogin.hasHappened && state.withLock { $0.withoutLogin[publicKey] } ?? false
    }

    /// A key has shown that it needs a login.
    func noteLogin(isNeededFor publicKey: PublicKeyInfo) { state.withLock { $0.withoutLogin[publicKey] = false } }

    /// Whether the token decrypts by a scheme; `nil` where no key has tried it.
    func knownSupport(of scheme: DecryptionScheme) -> Bool? { state.withLock { $0.decryption[scheme] } }

    /// A key has shown whether the token decrypts by a scheme.
    func note(_ isSupported: Bool, of scheme: DecryptionScheme) {
        state.withLock { $0.decryption[scheme] = isSupported }
    }

    func describe(_ error: CryptokiError) -> ProviderError {
        ProviderError(specific(error), token: displayName)
    }

    /// Looks whether the token is there if the module's code does not say the cause, and whether its device fails if the module
    /// calls the PIN incorrect: then the token has not answered. A token that is only gone has given its answer before.
    func specific(_ error: CryptokiError) -> CryptokiError {
        // The module has said nothing.
        if case .notMade = error.origin { return error }
        if error.refusesPIN {
            do throws(CryptokiError) { _ = try queue.connection?.slot.lookedAtAgain() } catch let look {
                guard look.code == CKR_DEVICE_ERROR else { return error }
                return CryptokiError(function: error.function, code: look.code, origin: .inferred)
            }
            return error
        }
        guard error.isUnspecific || error.code == CKR_DEVICE_ERROR, (try? present()) == nil else { return error }
        return CryptokiError(function: error.function, code: CKR_TOKEN_NOT_PRESENT, origin: .inferred)
    }
}
