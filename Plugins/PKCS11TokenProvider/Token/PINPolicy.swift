import CP11Kit
import CertificateProviding
import FoundationEssentials
import Logging

/// Decides whether a PIN may be sent to a token. A token locks after a few wrong ones, and some can never be unlocked.
struct PINPolicy: Sendable {
    let tried: TriedPINs
    let logger: Logger
    /// The parameter that names the PIN's source, for messages.
    var pinSource = TokenSettings.Names().pinSource

    /// A PIN from the configuration or from an earlier login.
    struct RememberedPIN {
        let pin: SecretBytes
        /// Whether this process has seen the token accept it.
        let isKnown: Bool
        /// Whether a person has typed it in, once.
        let isPersons: Bool
    }

    /// Looks at what the token says of itself.
    ///
    /// - Throws: `pinLocked`, and `pinFinalTry` where `isInsisting` is false.
    func check(_ slot: Slot, isInsisting: Bool) throws(ProviderError) {
        if slot.has(UInt(CKF_USER_PIN_LOCKED)) { throw refusal(.locked, slot.displayName) }
        if slot.has(UInt(CKF_USER_PIN_FINAL_TRY)), !isInsisting { throw refusal(.finalTry, slot.displayName) }
    }

    /// Permits by ``PINRule`` to send a PIN that was not just typed in. Writes it down before, if necessary. Blocks as
    /// ``TriedPINs/begin(_:for:look:)`` does.
    ///
    /// - Parameters:
    ///   - slot: The token as it is now.
    ///   - now: Reads the count again: another process may have tried a PIN since the last look.
    /// - Throws: As ``check(_:isInsisting:)``; `pinIncorrect` for a PIN that this token has rejected before or that is
    ///   none of its PINs; `operationNotAllowed` while another one is being tried, and before the time at which one may
    ///   be tried again whose result is not known.
    func admit(
        _ remembered: RememberedPIN, to slot: Slot, now: () -> Slot?
    ) throws(ProviderError) -> TriedPINs.Attempt {
        if !remembered.isKnown { try checkLength(of: remembered.pin, for: slot) }
        let token = slot.displayName
        switch try tried.begin(remembered, for: slot, look: now) {
        case .permitted(let attempt):
            if slot.hasSeenWrongPIN {
                logger.warning("the token reports an earlier wrong PIN", metadata: ["token": "\(token)"])
            }
            return attempt
        case .busy:
            throw ProviderError(
                .operationNotAllowed, "Another login to the token '\(token)' is in progress; try again.",
                reason: .busy)
        case .refused(let verdict): throw refusal(verdict, token)
        }
    }

    private func refusal(_ verdict: PINRule.Verdict, _ token: String) -> ProviderError {
        switch verdict {
        case .locked:
            ProviderError(
                .pinLocked,
                "The PIN of the token '\(token)' is locked; unblock it with the PUK or SO PIN, or wait if the token "
                    + "unlocks it by itself.")
        case .finalTry:
            ProviderError(
                .pinFinalTry,
                "One more wrong PIN locks the token '\(token)', so the configured PIN is not sent; log in once by hand "
                    + "with the right PIN (set \(pinSource) to prompt).")
        case .wait(let time):
            ProviderError(
                .operationNotAllowed,
                "The last logins to the token '\(token)' got no answer, so it is not known whether the configured PIN is "
                    + "right. The next try is permitted at \(time.formatted(.iso8601)); to try earlier, log in by hand "
                    + "(set \(pinSource) to prompt).")
        case .countedAsWrong:
            ProviderError(
                .pinIncorrect,
                "The last login to the token '\(token)' with the configured PIN got no answer, and the token has "
                    + "counted a wrong PIN since. The PIN is not sent while the token reports that; correct "
                    + "\(pinSource), or log in once by hand (set it to prompt).")
        case .rejected, .send:
            ProviderError(
                .pinIncorrect,
                "The token '\(token)' has rejected the configured PIN before, so it is not sent again; correct "
                    + "\(pinSource), or, if the PIN is right now, log in once by hand (set it to prompt).")
        }
    }

    /// Refuses what cannot be the PIN: an empty file, or one with something else in it. Many tokens count that as well.
    private func checkLength(of pin: SecretBytes, for slot: Slot) throws(ProviderError) {
        guard !pin.isEmpty else {
            throw ProviderError(
                .pinIncorrect, "The configured PIN for the token '\(slot.displayName)' is empty; correct \(pinSource).")
        }
        // A second line, or an editor's byte order mark: neither can be typed.
        let isText = pin.withUnsafeBytes { bytes in
            bytes.allSatisfy { $0 >= 0x20 && $0 != 0x7f } && !bytes.starts(with: [0xef, 0xbb, 0xbf])
        }
        guard isText else {
            throw ProviderError(
                .pinIncorrect,
                "The configured PIN for the token '\(slot.displayName)' contains line breaks or other control "
                    + "characters, so it is not sent; correct \(pinSource).")
        }
        let (minimum, maximum) = (slot.token.ulMinPinLen, slot.token.ulMaxPinLen)
        // Modules that know no maximum say 0 or the largest number.
        guard (1..<1 << 16).contains(maximum), minimum <= maximum else { return }
        guard minimum <= pin.count, pin.count <= maximum else {
            throw ProviderError(
                .pinIncorrect,
                "The configured PIN for the token '\(slot.displayName)' is too short or too long, so it is not sent: "
                    + "the token accepts \(minimum) to \(maximum) bytes; correct \(pinSource).")
        }
    }
}

extension Slot {
    private static let counts = UInt(CKF_USER_PIN_COUNT_LOW | CKF_USER_PIN_FINAL_TRY | CKF_USER_PIN_LOCKED)

    func countOfWrongPINs(isShown: Bool) -> PINRule.Count {
        PINRule.Count(
            isShown: isShown || hasSeenWrongPIN, isLow: hasSeenWrongPIN, isFinal: has(UInt(CKF_USER_PIN_FINAL_TRY)),
            isLocked: has(UInt(CKF_USER_PIN_LOCKED)))
    }

    /// Whether the token shows that it has counted a wrong PIN. Not all that count do.
    var hasSeenWrongPIN: Bool { has(Self.counts) }

    /// Whether the token has counted a wrong PIN since it was looked at before.
    func hasFewerTries(than before: Slot) -> Bool { token.flags & ~before.token.flags & Self.counts != 0 }
}
