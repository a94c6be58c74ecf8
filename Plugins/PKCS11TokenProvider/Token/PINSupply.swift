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
        /// Kept once the token has accepted it, for the login after the token was away: a source may be a pipe, which
        /// can be read once, and a person is not asked twice.
        var accepted: SecretBytes?
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

    /// The PIN that the token has accepted.
    var known: SecretBytes? { state.withLock { $0.accepted } }

    /// Whether a login needs nobody: the PIN is known or configured.
    var isAtHand: Bool { isPermitted && (known != nil || value != nil || (source != nil && source != .prompt)) }

    func forget() { state.withLock { $0.accepted = nil } }

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
        let origin: PINPolicy.Origin = given == nil ? .configuration : .person
        let pin = try pin(for: slot, given: given)
        try policy.check(pin, from: origin, for: slot)
        let isProven: Bool
        do throws(CryptokiError) { isProven = try login(pin) } catch {
            if error.refusesPIN || now()?.hasFewerTries(than: slot) ?? false {
                try refuse(pin, slot)
            } else if let pin, origin == .configuration {
                try policy.rejected.remove(pin, for: slot.identity)
            }
            throw CertificateProviderError(error, token: slot.displayName)
        }
        guard let pin else { return }
        state.withLock { $0.accepted = pin }
        if isProven || origin == .configuration { try policy.rejected.remove(pin, for: slot.identity) }
    }

    /// Gives the PIN again for one operation with a key that asks each time. One thread at a time: a PIN that is wrong by
    /// now is sent by none of the others.
    func confirm(_ slot: Slot, _ login: (SecretBytes?) throws(CryptokiError) -> Void) throws(CryptokiError) {
        if slot.has(UInt(CKF_PROTECTED_AUTHENTICATION_PATH)) { return try login(nil) }
        try confirming.withLock { _ throws(CryptokiError) in
            guard let pin = known else { throw CryptokiError(function: "C_Login", code: CKR_PIN_INCORRECT) }
            do throws(CryptokiError) { try login(pin) } catch {
                // Where it cannot be written down, this process at least does not know the PIN any more.
                if error.refusesPIN { try? refuse(pin, slot) }
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

    private func refuse(_ pin: SecretBytes?, _ slot: Slot) throws(CertificateProviderError) {
        state.withLock { $0.accepted = nil }
        if let pin { try policy.rejected.insert(pin, for: slot.identity) }
    }

    /// `nil` for a token with a PIN pad, which asks by itself.
    private func pin(for slot: Slot, given: SecretBytes?) throws(CertificateProviderError) -> SecretBytes? {
        if slot.has(UInt(CKF_PROTECTED_AUTHENTICATION_PATH)) { return nil }
        if let pin = given ?? known { return pin }
        return try configured(slot)
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
}

extension Slot {
    /// Whether the token has counted a wrong PIN since it was looked at before.
    fileprivate func hasFewerTries(than before: Slot) -> Bool {
        let flags = UInt(CKF_USER_PIN_COUNT_LOW | CKF_USER_PIN_FINAL_TRY | CKF_USER_PIN_LOCKED)
        return token.flags & ~before.token.flags & flags != 0
    }
}
