import CP11Kit
import CertificateProviding

/// A PIN that a person has given, and the token whose name they had read then.
struct GivenPIN: Sendable {
    let secret: SecretBytes
    let token: Slot.Identity
}

extension TokenLocator {
    /// A token to log in to.
    struct Login {
        let token: Token
        let slot: Slot
        /// Whether the URI, a certificate in sight or the choice that is remembered says that it is this one. Otherwise
        /// it is merely the only one there: somebody's own, perhaps, which a configured PIN is not for.
        let isMeant: Bool

        fileprivate var hasPad: Bool { slot.has(UInt(CKF_PROTECTED_AUTHENTICATION_PATH)) }

        /// Whether nobody has to be asked, here or at the reader's own pad.
        var isUnattended: Bool { !hasPad && token.isPINAtHand }
    }

    /// The token to log in to before its identity is used; `nil` when none has to be.
    ///
    /// - Parameter lettingSign: Whether a key that seems to need no login signs a probe.
    /// - Throws: `configurationInvalid` where several tokens may hold the identity.
    func loginToUse(
        _ present: [(Token, Slot)], lettingSign: Bool = true
    ) throws(CertificateProviderError) -> Login? {
        guard let login = try tokenToOpen(of: present), !needsNoLogin(login, lettingSign) else { return nil }
        return login
    }

    /// Whether every identity that the URI may mean on a token has a public private key that signs without a login, as in
    /// slot 9e of a PIV card.
    private func needsNoLogin(_ login: Login, _ lettingSign: Bool) -> Bool {
        guard settings.login == .auto, settings.uri.namesObject, !login.token.isLoggedIn else { return false }
        var failures: [CertificateProviderError] = []
        let keys = read(login.token, login.slot, &failures) { reader, contents throws(CryptokiError) in
            try contents.candidates.map { candidate throws(CryptokiError) -> Found? in
                guard let key = candidate.key, !key.needsPINEachTime,
                    try reader.session.flag(CKA_PRIVATE, of: key.handle) == false
                else { return nil }
                return Found(candidate: candidate, token: login.token)
            }
        }
        guard let keys, !keys.isEmpty, failures.isEmpty else { return false }
        return keys.allSatisfy { found in
            guard let found, login.token.expectsNoLogin(for: found.candidate.certificate.publicKey) else {
                return false
            }
            guard lettingSign else { return true }
            return (try? key(of: found)).map(login.token.signsWithoutLogin) ?? false
        }
    }

    /// The token to log in to; `nil` when none has to be.
    ///
    /// - Throws: `configurationInvalid` where several tokens may hold the identity.
    func tokenToOpen(of present: [(Token, Slot)]) throws(CertificateProviderError) -> Login? {
        guard settings.login != .never else { return nil }
        let tokens = present.filter { $0.1.has(UInt(CKF_LOGIN_REQUIRED)) }
        var failures: [CertificateProviderError] = []
        let verdict = try LoginChoice.verdict(
            on: tokens.map(\.0.isLoggedIn), namesToken: settings.uri.namesToken,
            sight: {
                // Certificates can be seen without a login, mostly.
                let holders = tokens.indices.filter { showsIdentity(tokens[$0].0, tokens[$0].1, &failures) }
                return LoginChoice.Sight(holders: holders, isComplete: failures.isEmpty)
            },
            remembered: { indices throws(CertificateProviderError) in
                guard let uri = try remembered()?.uri else { return [] }
                return indices.filter { uri.matches(tokens[$0].1) }
            })
        switch verdict {
        case .none: return nil
        case .token(let index, let isMeant):
            return Login(token: tokens[index].0, slot: tokens[index].1, isMeant: isMeant)
        case .several(let indices): throw severalTokens(indices.map { tokens[$0] })
        case .unreadable: throw failures[0]
        }
    }

    /// Logs in.
    ///
    /// - Parameter pin: One that a person has just given; otherwise the configured one is used.
    /// - Throws: `interactionRequired` for a PIN that was given for another token, and `configurationInvalid` where a
    ///   configured one would go to a token that nothing says it is for.
    func logIn(_ login: Login, _ pin: GivenPIN?) throws(CertificateProviderError) {
        try check(login, pin)
        try login.token.logIn(pin: pin?.secret)
    }

    /// Throws what ``logIn(_:_:)`` does before anything is sent.
    func check(_ login: Login, _ pin: GivenPIN?) throws(CertificateProviderError) {
        if let pin, pin.token != login.token.identity {
            throw CertificateProviderError(
                .interactionRequired,
                "The PIN was not sent: it was entered for another token, and now '\(login.token.displayName)' is "
                    + "present; try again.")
        }
        // A PIN that this token has accepted is its own.
        if pin == nil, !login.isMeant, login.isUnattended, !login.token.pins.isProven {
            let uri = PKCS11URI.text(of: login.slot.token)
            throw CertificateProviderError(
                .configurationInvalid,
                "The configured PIN is not sent to the token '\(login.token.displayName)', since \(settings.names.uri) does "
                    + "not name it; if the PIN is for this token, set \(settings.names.uri) to '\(uri)'.")
        }
    }

    /// Logs in where that takes nobody.
    /// - Throws: Also `interactionRequired`.
    func openUnattended(_ login: Login) throws(CertificateProviderError) {
        guard !login.hasPad else {
            throw CertificateProviderError(
                .interactionRequired,
                "The token '\(login.token.displayName)' requires its PIN on the reader's PIN pad; run 'certprov "
                    + "fetch' on a terminal to enter it.")
        }
        try logIn(login, nil)
    }

    /// The login that has to be made; `nil` where none has to be.
    func loginToMake() throws(CertificateProviderError) -> Login? {
        var failures: [CertificateProviderError] = []
        return try loginToUse(try present(&failures))
    }

    private func severalTokens(_ tokens: [(Token, Slot)]) -> CertificateProviderError {
        let uris = tokens.map { _, slot in "'\(PKCS11URI.text(of: slot.token))'" }
        return CertificateProviderError(
            .configurationInvalid,
            "The PIN could be for \(uris.count) tokens, and it is sent to one only; set \(settings.names.uri) to one of: "
                + uris.joined(separator: ", ") + ".")
    }
}

extension TokenLocator.Login {
    /// Asks the person here for the PIN, where it is not known and not for the reader's own pad. Says before how many
    /// tries there may be.
    ///
    /// - Throws: `userCancelled` for a person who would rather not take the last try, and `interactionRequired`.
    func ask(_ interaction: any UserInteraction) async throws(CertificateProviderError) -> GivenPIN? {
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
                throw CertificateProviderError(
                    .userCancelled, "The PIN of the token '\(name)' was not requested: one try is left.")
            }
        }
        interaction.report("Waiting for the PIN of the token '\(name)' on the reader's PIN pad")
        return nil
    }
}
