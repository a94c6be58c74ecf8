import CP11Kit
import CertificateProviding
import Synchronization

/// The PIN of one token: where it comes from, and whether it may be sent.
final class PINSupply: Sendable {
    private let source: SecretSource?
    private let value: SecretBytes?
    private let secrets: SecretReader
    private let policy: PINPolicy
    private let state = Mutex(State())

    private struct State {
        /// Kept once the token has accepted it, for the login after the token was away: a source may be a pipe, which
        /// can be read once, and a person is not asked twice.
        var accepted: SecretBytes?
    }

    /// - Parameters:
    ///   - source: The configured one; `nil` or `prompt` where only a person knows the PIN.
    ///   - value: A PIN that stands in the URI.
    init(source: SecretSource?, value: SecretBytes?, secrets: SecretReader, policy: PINPolicy) {
        self.source = source
        self.value = value
        self.secrets = secrets
        self.policy = policy
    }

    /// The PIN that the token has accepted.
    var known: SecretBytes? { state.withLock { $0.accepted } }

    /// Whether a login needs nobody: the PIN is known or configured.
    var isAtHand: Bool { known != nil || value != nil || (source != nil && source != .prompt) }

    func forget() { state.withLock { $0.accepted = nil } }

    /// Logs in with the PIN that is to be used, if it may be. Sends it once, whatever comes of it.
    ///
    /// - Parameters:
    ///   - given: A PIN from a person.
    ///   - login: Sends the PIN, `nil` for a token with a PIN pad.
    func login(
        _ slot: Slot, given: SecretBytes?, _ login: (SecretBytes?) throws(CryptokiError) -> Void
    ) throws(CertificateProviderError) {
        let origin: PINPolicy.Origin = given == nil ? .configuration : .person
        let pin = try pin(for: slot, given: given)
        try policy.check(pin, from: origin, for: slot)
        do throws(CryptokiError) {
            try login(pin)
        } catch {
            if error.code == CKR_PIN_INCORRECT || error.code == CKR_PIN_INVALID || error.code == CKR_PIN_LEN_RANGE {
                state.withLock { $0.accepted = nil }
                if let pin { try policy.rejected.insert(pin, for: slot.identity) }
            }
            throw CertificateProviderError(error, token: slot.displayName)
        }
        if let pin {
            state.withLock { $0.accepted = pin }
            if origin == .person { try policy.rejected.remove(pin, for: slot.identity) }
        }
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
