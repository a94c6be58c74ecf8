import CP11Kit
import CertificateProviding
import Logging

/// Decides whether a PIN may be sent to a token. A token locks after a few wrong ones, and some can never be unlocked.
struct PINPolicy: Sendable {
    let rejected: RejectedPINs
    let logger: Logger

    /// Where a PIN came from: a person may insist, a file may not.
    enum Origin { case person, configuration }

    /// Looks at the token as it is now. A configured PIN is written down as being tried before it is: another process,
    /// or this one after a crash, does not send it as well.
    ///
    /// - Throws: `pinLocked`, `pinFinalTry`, `pinIncorrect` for a PIN that this token has rejected before, and
    ///   `operationNotAllowed` for one whose result is not known.
    func check(
        _ pin: SecretBytes?, from origin: Origin, for slot: Slot
    ) throws(CertificateProviderError) {
        let token = slot.displayName
        if slot.has(UInt(CKF_USER_PIN_LOCKED)) {
            throw CertificateProviderError(
                .pinLocked, "The PIN of the token '\(token)' is locked; unblock it with its PUK or SO PIN.")
        }
        if slot.has(UInt(CKF_USER_PIN_FINAL_TRY)), origin == .configuration {
            throw CertificateProviderError(
                .pinFinalTry,
                "One more wrong PIN locks the token '\(token)', so none is sent from a configuration; log in once by hand "
                    + "with the right one.")
        }
        if slot.has(UInt(CKF_USER_PIN_COUNT_LOW)) {
            logger.warning("the token has seen a wrong PIN", metadata: ["token": "\(token)"])
        }
        // Flags lie, so what was rejected is remembered here as well.
        guard let pin, origin == .configuration else { return }
        switch try rejected.reserve(pin, for: slot.identity) {
        case .free: return
        case .rejected:
            throw CertificateProviderError(
                .pinIncorrect,
                "The token '\(token)' has rejected the configured PIN before, and it is not sent again; correct "
                    + "'pin-source'.")
        case .reserved:
            throw CertificateProviderError(
                .operationNotAllowed,
                "Another login to the token '\(token)' with this PIN has not come to its end; try again, and where it was "
                    + "interrupted for good, log in once by hand.")
        }
    }
}
