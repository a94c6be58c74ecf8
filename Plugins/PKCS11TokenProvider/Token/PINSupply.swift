import CP11Kit
import CertificateProviding
import Glibc

/// The PIN of one token: where it comes from, and whether it may be sent.
final class PINSupply: Sendable {
    private let source: SecretSource?
    private let value: SecretBytes?
    private let secrets: SecretReader
    private let policy: PINPolicy
    let isPermitted: Bool
    private let state = BlockingMutex(State())
    private let confirming = BlockingMutex(())

    private struct State {
        /// The PIN that was accepted, for the login after the token was away: the user is not asked twice. Marked as seen if
        /// the token has checked it, which it does not while another part of the process is logged in.
        var kept: PINPolicy.RememberedPIN?
        /// The content of a pipe, which can be read once. It stays until the token has answered.
        var read: SecretBytes?
    }

    /// - Parameters:
    ///   - source: The configured one; `nil` or `prompt` where only a person knows the PIN.
    ///   - value: A PIN that stands in the URI.
    ///   - isPermitted: Whether a login is permitted at all.
    init(source: SecretSource?, value: SecretBytes?, secrets: SecretReader, policy: PINPolicy, isPermitted: Bool) {
        self.source = source
        self.value = value
        self.secrets = secrets
        self.policy = policy
        self.isPermitted = isPermitted
    }

    /// Whether the token has found a PIN right that is still known here.
    var isProven: Bool { state.withLock { $0.kept?.isKnown ?? false } }

    /// Whether a login needs no person: the PIN is remembered or configured.
    var isAtHand: Bool {
        isPermitted
            && (state.withLock { $0.kept } != nil || value != nil || (source != nil && source != .prompt))
    }

    func forget() { state.withLock { $0 = State() } }

    /// Logs in with the PIN that is to be used, if it may be. Sends it once, whatever comes of it.
    ///
    /// - Parameters:
    ///   - given: A PIN from a person.
    ///   - now: Looks at the token again.
    ///   - login: Sends the PIN, `nil` for a token with a PIN pad; returns whether the token has found it right.
    func login(
        _ slot: Slot, given: SecretBytes?, now: () -> Slot?,
        _ login: (SecretBytes?) throws(CryptokiError) -> Bool
    ) throws(CryptokiError) {
        // At a PIN pad there is a person, too.
        let hasPad = slot.has(UInt(CKF_PROTECTED_AUTHENTICATION_PATH))
        do throws(ProviderError) {
            guard isPermitted else { throw notPermitted(slot.displayName) }
            try policy.check(slot, isInsisting: given != nil || hasPad)
        } catch { throw .refusal(error) }
        if hasPad {
            _ = try login(nil)
        } else if let given {
            try insist(given, slot, now: now, login)
        } else {
            try send(slot, now: now, login)
        }
    }

    private func send(
        _ slot: Slot, now: () -> Slot?, _ login: (SecretBytes?) throws(CryptokiError) -> Bool
    ) throws(CryptokiError) {
        let remembered: PINPolicy.RememberedPIN
        let attempt: TriedPINs.Attempt
        do throws(ProviderError) {
            remembered = try self.remembered(slot)
            attempt = try policy.admit(remembered, to: slot, now: now)
        } catch {
            if error.code == .pinIncorrect { forget() }
            throw .refusal(error)
        }
        let isProven: Bool
        do throws(CryptokiError) { isProven = try login(attempt.pin) } catch {
            let isLock = error.code == CKR_PIN_LOCKED && attempt.isAccepted
            if error.refusesPIN || !isLock && error.isOfSentPIN && now()?.hasFewerTries(than: attempt.slot) ?? false {
                forget()
                policy.tried.reject(attempt)
            } else if error.code == CKR_PIN_LOCKED {
                policy.tried.leaveLocked(attempt)
            } else {
                if error.leavesPINUnseen {
                    policy.tried.takeBack(attempt)
                } else {
                    policy.tried.leaveUnanswered(attempt)
                }
            }
            throw error
        }
        keep(attempt.pin, isProven: isProven, isPersons: remembered.isPersons)
        if isProven { policy.tried.accept(attempt) } else { policy.tried.takeBack(attempt) }
    }

    private func insist(
        _ pin: SecretBytes, _ slot: Slot, now: () -> Slot?, _ login: (SecretBytes?) throws(CryptokiError) -> Bool
    ) throws(CryptokiError) {
        let isProven: Bool
        do throws(CryptokiError) { isProven = try login(pin) } catch {
            if error.refusesPIN || error.isOfSentPIN && now()?.hasFewerTries(than: slot) ?? false {
                forget()
                policy.tried.reject(pin, for: slot.identity)
            }
            throw error
        }
        keep(pin, isProven: isProven, isPersons: true)
        if isProven { policy.tried.accept(pin, for: slot.identity) }
    }

    /// Gives the PIN again for one operation with a key that asks each time, by the rules of every login. One thread at
    /// a time: a PIN that is wrong by now is sent by none of the others.
    ///
    /// - Parameter now: Looks at the token; `nil` where it is away.
    func confirm(
        now: () -> Slot?, _ login: (SecretBytes?) throws(CryptokiError) -> Bool
    ) throws(CryptokiError) {
        try confirming.withLock { _ throws(CryptokiError) in
            guard let slot = now() else { throw CryptokiError(function: "C_Login", code: CKR_TOKEN_NOT_PRESENT) }
            do throws(CryptokiError) { try self.login(slot, given: nil, now: now, login) } catch {
                // Another thread has ended the connection: no PIN was sent.
                if error.isOvertaken { throw error }
                // OpenSC says so where another part of the process has logged out since C_SignInit, and has not looked at
                // the PIN.
                if error.code == CKR_OPERATION_NOT_INITIALIZED {
                    throw CryptokiError(function: "C_Login", code: CKR_USER_NOT_LOGGED_IN, origin: .logout)
                }
                throw CryptokiError(
                    function: "C_Login", code: error.code,
                    origin: .refusal(ProviderError(error, token: slot.displayName)))
            }
        }
    }

    /// Throws if a key is invisible because no login is permitted.
    func requirePermission(for token: Token) throws(ProviderError) {
        guard isPermitted || token.isLoggedIn else { throw notPermitted(token.displayName) }
    }

    private func notPermitted(_ token: String) -> ProviderError {
        ProviderError(
            .interactionRequired,
            "The key on the token '\(token)' requires a login, but 'login' is 'never'; set it to 'auto'.")
    }

    private func keep(_ pin: SecretBytes, isProven: Bool, isPersons: Bool) {
        state.withLock { state in
            let wasProven = state.kept.map { $0.isKnown && $0.pin == pin } ?? false
            state = State(kept: .init(pin: pin, isKnown: isProven || wasProven, isPersons: isPersons))
        }
    }

    private func remembered(_ slot: Slot) throws(ProviderError) -> PINPolicy.RememberedPIN {
        if let kept = state.withLock({ $0.kept }) { return kept }
        return .init(pin: try configured(slot), isKnown: false, isPersons: false)
    }

    private func configured(_ slot: Slot) throws(ProviderError) -> SecretBytes {
        guard let source, source != .prompt else {
            if let value { return value }
            throw ProviderError(
                .interactionRequired,
                "The token '\(slot.displayName)' requires its PIN; set \(policy.pinSource), or run 'certprov fetch' on a "
                    + "terminal to enter it.")
        }
        if let read = state.withLock({ $0.read }) { return read }
        let pin = try secrets.read(source)
        if source.isPipe { state.withLock { $0.read = pin } }
        return pin
    }
}

extension CryptokiError {
    /// Whether the token has looked at the PIN and does not want it.
    var refusesPIN: Bool {
        [CKR_PIN_INCORRECT, CKR_PIN_INVALID, CKR_PIN_LEN_RANGE].contains(code)
    }

    /// Whether the PIN was sent: it came to the login.
    fileprivate var isOfSentPIN: Bool {
        switch origin {
        case .notMade, .ended: false
        default: function == "C_Login"
        }
    }

    /// Whether the token has certainly not looked at the PIN, or has found nothing wrong with it. Behind whatever else
    /// a module says, and there are vendors' own codes, the answer may be lost.
    fileprivate var leavesPINUnseen: Bool {
        guard isOfSentPIN else { return true }
        if case .inferred = origin { return false }
        return [
            CKR_PIN_EXPIRED, CKR_USER_PIN_NOT_INITIALIZED, CKR_USER_TYPE_INVALID, CKR_USER_TOO_MANY_TYPES,
            CKR_USER_ANOTHER_ALREADY_LOGGED_IN, CKR_FUNCTION_NOT_SUPPORTED,
            CKR_CRYPTOKI_NOT_INITIALIZED,
            // These codes concern the start of the function (PKCS#11, section 5.1). By CKR_SESSION_HANDLE_INVALID modules also
            // mean that the session has ended in the middle of it.
            CKR_TOKEN_NOT_PRESENT, CKR_SLOT_ID_INVALID, CKR_ARGUMENTS_BAD, CKR_OPERATION_NOT_INITIALIZED,
        ].contains(code)
    }
}

extension SecretSource {
    fileprivate var isPipe: Bool {
        guard let path = filePath else { return false }
        var status = stat()
        return stat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFIFO
    }
}
