import CP11Kit
import CertificateProviding
import Synchronization

/// The PIN of one token: where it comes from, and whether it may be sent.
final class PINSupply: Sendable {
    private let source: SecretSource?
    private let value: SecretBytes?
    private let secrets: SecretReader
    private let policy: PINPolicy
    let isPermitted: Bool
    private let state = Mutex(State())
    private let confirming = Mutex(())

    private struct State {
        /// Kept once a login has come of it, for the login after the token was away: a source may be a pipe, which can be
        /// read once, and a person is not asked twice.
        var kept: SecretBytes?
        /// Whether the token has looked at it: where somebody else in this process was logged in, it has not.
        var isProven = false
    }

    /// - Parameters:
    ///   - source: The configured one; `nil` or `prompt` where only a person knows the PIN.
    ///   - value: A PIN that stands in the URI.
    ///   - isPermitted: Whether anybody may log in at all.
    init(source: SecretSource?, value: SecretBytes?, secrets: SecretReader, policy: PINPolicy, isPermitted: Bool) {
        self.source = source
        self.value = value
        self.secrets = secrets
        self.policy = policy
        self.isPermitted = isPermitted
    }

    /// Whether the token has found a PIN right that is still known here.
    var isProven: Bool { state.withLock { $0.isProven } }

    /// Whether a login needs nobody: the PIN is known or configured.
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
    ) throws(CertificateProviderError) {
        guard isPermitted else { throw notPermitted(slot.displayName) }
        // At a PIN pad there is a person, too.
        let hasPad = slot.has(UInt(CKF_PROTECTED_AUTHENTICATION_PATH))
        try policy.check(slot, isInsisting: given != nil || hasPad)
        if hasPad {
            do throws(CryptokiError) { _ = try login(nil) } catch {
                throw CertificateProviderError(error, token: slot.displayName)
            }
        } else if let given {
            try insist(given, slot, now: now, login)
        } else {
            try send(remembered(slot), slot, now: now, login)
        }
    }

    private func send(
        _ remembered: PINPolicy.Remembered, _ slot: Slot, now: () -> Slot?,
        _ login: (SecretBytes?) throws(CryptokiError) -> Bool
    ) throws(CertificateProviderError) {
        let attempt = try policy.admit(remembered, to: slot, now: now)
        let isProven: Bool
        do throws(CryptokiError) { isProven = try login(attempt.pin) } catch {
            if error.refusesPIN || now()?.hasFewerTries(than: slot) ?? false {
                forget()
                policy.tried.reject(attempt)
            } else {
                policy.tried.takeBack(attempt, isSure: !error.mayHideAnswer)
            }
            throw CertificateProviderError(error, token: slot.displayName)
        }
        keep(attempt.pin, isProven: isProven)
        if isProven { policy.tried.accept(attempt) } else { policy.tried.takeBack(attempt, isSure: true) }
    }

    private func insist(
        _ pin: SecretBytes, _ slot: Slot, now: () -> Slot?, _ login: (SecretBytes?) throws(CryptokiError) -> Bool
    ) throws(CertificateProviderError) {
        let isProven: Bool
        do throws(CryptokiError) { isProven = try login(pin) } catch {
            if error.refusesPIN || now()?.hasFewerTries(than: slot) ?? false { refuse(pin, slot) }
            throw CertificateProviderError(error, token: slot.displayName)
        }
        keep(pin, isProven: isProven)
        if isProven { policy.tried.accept(pin, for: slot.identity) }
    }

    /// Gives the PIN again for one operation with a key that asks each time. One thread at a time: a PIN that is wrong by
    /// now is sent by none of the others.
    func confirm(_ slot: Slot, _ login: (SecretBytes?) throws(CryptokiError) -> Void) throws(CryptokiError) {
        if slot.has(UInt(CKF_PROTECTED_AUTHENTICATION_PATH)) { return try login(nil) }
        try confirming.withLock { _ throws(CryptokiError) in
            guard let pin = state.withLock({ $0.kept }), !policy.tried.isRejected(pin, for: slot.identity) else {
                forget()
                throw CryptokiError(function: "C_Login", code: CKR_PIN_INCORRECT)
            }
            do throws(CryptokiError) { try login(pin) } catch {
                if error.refusesPIN { refuse(pin, slot) }
                throw error
            }
        }
    }

    /// Throws where a key is not to be seen because nobody may log in.
    func requirePermission(for token: Token) throws(CertificateProviderError) {
        guard isPermitted || token.isOpen else { throw notPermitted(token.displayName) }
    }

    private func notPermitted(_ token: String) -> CertificateProviderError {
        CertificateProviderError(
            .interactionRequired,
            "The key on the token '\(token)' works only after a login, which 'login' forbids; set it to 'auto'.")
    }

    private func keep(_ pin: SecretBytes, isProven: Bool) {
        state.withLock { $0 = State(kept: pin, isProven: isProven || ($0.isProven && $0.kept == pin)) }
    }

    private func refuse(_ pin: SecretBytes, _ slot: Slot) {
        forget()
        policy.tried.reject(pin, for: slot.identity)
    }

    private func remembered(_ slot: Slot) throws(CertificateProviderError) -> PINPolicy.Remembered {
        let state = state.withLock { $0 }
        if let kept = state.kept { return .init(pin: kept, isKnown: state.isProven) }
        return .init(pin: try configured(slot), isKnown: false)
    }

    private func configured(_ slot: Slot) throws(CertificateProviderError) -> SecretBytes {
        guard let source, source != .prompt else {
            if let value { return value }
            throw CertificateProviderError(
                .interactionRequired,
                "The token '\(slot.displayName)' wants its PIN; set 'pin-source', or obtain the identity where a person can "
                    + "be asked.")
        }
        return try secrets.read(source)
    }
}

extension CryptokiError {
    /// Whether the token has looked at the PIN and does not want it.
    fileprivate var refusesPIN: Bool {
        [CKR_PIN_INCORRECT, CKR_PIN_INVALID, CKR_PIN_LEN_RANGE, CKR_PIN_LOCKED].contains(code)
    }

    /// Whether the token may have looked at the PIN, with its answer lost on the way.
    fileprivate var mayHideAnswer: Bool {
        isUnspecific || [CKR_DEVICE_ERROR, CKR_DEVICE_REMOVED, CKR_TOKEN_NOT_PRESENT].contains(code)
    }
}
