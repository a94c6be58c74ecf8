import CP11Kit
import CertificateProviding

/// A PIN that a person has given, and the token whose name they had read then.
struct GivenPIN: Sendable {
    let secret: SecretBytes
    let token: Slot.Identity
}

extension TokenLocator {
    /// A token to log in to.
    struct TokenLogin {
        let token: Token
        let slot: Slot
        /// Whether the URI, a certificate in sight or the choice that is remembered says that it is this one. Otherwise
        /// it is merely the only one there, and may be another person's: the configured PIN is not for it.
        let isMeant: Bool

        var hasPad: Bool { slot.has(UInt(CKF_PROTECTED_AUTHENTICATION_PATH)) }

        /// How long it may take, however short the timeout is: a person at the PIN pad takes their time.
        var minimumTime: Duration { hasPad ? .seconds(120) : .zero }

        /// Whether the login needs no person, neither here nor at the reader's PIN pad.
        var isUnattended: Bool { !hasPad && token.isPINAtHand }
    }
}

extension TokenLocator.TokenLogin {
    /// Asks the person here for the PIN, where it is not known and not for the reader's own pad. Says before how many
    /// tries there may be.
    ///
    /// - Throws: `userCancelled` for a person who would rather not take the last try, and `interactionRequired`.
    func ask(_ interaction: any UserInteraction) async throws(ProviderError) -> GivenPIN? {
        guard !isUnattended else { return nil }
        let name = token.displayName
        let isLastTry = slot.has(UInt(CKF_USER_PIN_FINAL_TRY))
        guard hasPad else {
            let warning =
                isLastTry
                ? " (last try: a wrong PIN locks it)"
                : slot.hasSeenWrongPIN ? " (a wrong PIN was entered before)" : ""
            let secret = try await interaction.requestSecret("PIN for the token '\(name)'\(warning)")
            return GivenPIN(secret: secret, token: token.identity)
        }
        if isLastTry {
            let question = "One more wrong PIN locks the token '\(name)'. Enter the PIN on the reader's PIN pad?"
            guard try await interaction.confirm(question) else {
                throw ProviderError(
                    .userCancelled, "The PIN of the token '\(name)' was not requested: one try is left.")
            }
        }
        interaction.report("Waiting for the PIN of the token '\(name)' on the reader's PIN pad")
        return nil
    }
}
