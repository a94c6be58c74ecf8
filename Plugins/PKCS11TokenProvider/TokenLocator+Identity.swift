import CP11Kit
import CertificateProviding
import FoundationEssentials
import Logging

extension TokenLocator {
    /// Returns the one identity that the URI means, logging in where that takes it.
    ///
    /// - Parameter pin: One that a person has just given.
    /// - Throws: `tokenNotPresent`, `notFound`, `configurationInvalid` with the URIs to choose from, and what the login
    ///   meets.
    func identity(pin: GivenPIN?) throws(ProviderError) -> Identity {
        let (found, key) = try identityKey(pin: pin)
        if let remark = remark(on: found) { environment.logger.warning("\(remark)") }
        return try identity(of: found, with: key)
    }

    /// As ``identity(pin:)``, without the chain.
    func identityKey(pin: GivenPIN?) throws(ProviderError) -> (Found, TokenKey) {
        let found = try find { login, isFirst throws(ProviderError) in
            // The accepted PIN is remembered by then.
            try logIn(login, isFirst ? pin : nil)
            return true
        }
        guard let found else { throw tokenNotPresent() }
        return (found, try key(of: found))
    }

    /// As ``identity(pin:)`` if no person is needed; `nil` if one would be asked. The identity is returned as found. If only a
    /// `CKA_ID` links the key to the certificate, or the key may need a login that is not permitted, the key first signs a
    /// probe.
    func identityAtHand() throws(ProviderError) -> Identity? {
        let found = try find { login, _ throws(ProviderError) in
            guard login.isUnattended else { return false }
            try logIn(login, nil)
            return true
        }
        guard let found else { return nil }
        let key = try key(of: found)
        let isPermitted = settings.login != .never
        if let privateKey = found.candidate.key, !privateKey.showsPublicKey || !isPermitted {
            try found.token.prove(key, asksEachTime: privateKey.needsPINEachTime && isPermitted)
        }
        return try identity(of: found, with: key)
    }

    /// - Parameter logIn: Logs in; false gives up.
    private func find(
        _ logIn: (_ login: TokenLogin, _ isFirst: Bool) throws(ProviderError) -> Bool
    ) throws(ProviderError) -> Found? {
        var failures: [ProviderError] = []
        let present = try present(&failures)
        guard !present.isEmpty else { throw noToken(failures) }
        var candidates: [Found] = []
        for isFirst in [true, false] {
            if let login = try loginToUse(present) {
                guard try logIn(login, isFirst) else { return nil }
            }
            let taken = present.filter { $0.0.isLoggedIn }
            candidates = present.flatMap { read($0.0, $0.1, &failures) }
            // A token that was away since its last use shows that only now, and wants its login again.
            guard let closed = taken.first(where: { !$0.0.isLoggedIn }) else { break }
            if !isFirst, candidates.isEmpty {
                throw failures.last ?? closed.0.describe(TokenConnection.searchWithoutLogin)
            }
        }
        return try choose(candidates, failures)
    }

    /// Chooses as ``identity(pin:)`` does.
    func choose(
        _ candidates: [Found], _ failures: [ProviderError]
    ) throws(ProviderError) -> Found {
        let verdict = try IdentityChoice.verdict(
            on: candidates.map(fact),
            chained: { indices throws(ProviderError) in
                // A search for the issuers of very many certificates would take too long.
                guard indices.count <= TokenReader.maximumRemarks else { return [] }
                var chained: [Int] = []
                for index in indices where try chain(of: candidates[index]).count > 1 { chained.append(index) }
                return chained
            },
            remembered: { indices throws(ProviderError) in
                guard let chosen = try remembered()?.leaf.publicKey else { return [] }
                return indices.filter { candidates[$0].candidate.certificate.publicKey == chosen }
            })
        var found: Found
        switch verdict {
        case .one(let index): found = candidates[index]
        case .none:
            throw failures.first ?? candidates.first?.token.describe(TokenConnection.searchWithoutLogin)
                ?? ProviderError(
                    .notFound,
                    "No identity on the token matches '\(DisplayText.visible(settings.uri.text))'; 'certprov list' "
                        + "shows the available identities.")
        case .several(let indices): throw severalIdentities(indices.map { candidates[$0] })
        }
        found = counted(found, among: candidates)
        // The key is hidden until a login.
        if found.candidate.key == nil { try found.token.pins.requirePermission(for: found.token) }
        return found
    }

    /// Notes the other certificates of the key on its token.
    private func counted(_ found: Found, among candidates: [Found]) -> Found {
        let certificate = found.candidate.certificate
        var found = found
        found.passedOver = candidates.map(\.candidate.certificate).filter { other in
            other != certificate && other.publicKey == certificate.publicKey
        }
        return found
    }

    /// Returns a remark for a person about an identity whose key has more certificates.
    func remark(on found: Found) -> String? {
        guard !found.passedOver.isEmpty else { return nil }
        let others = found.passedOver.prefix(TokenReader.maximumRemarks).map(\.summary).joined(separator: "; ")
        return "The token '\(found.token.displayName)' has more than one certificate for one key. Used: "
            + "\(found.candidate.certificate.summary). Not used: \(others). Remove those that are of no use."
    }

    private func fact(_ found: Found) -> IdentityChoice.Candidate {
        let (certificate, token) = (found.candidate.certificate, found.token)
        let key = certificate.publicKey
        return IdentityChoice.Candidate(
            key: .init(
                token: ObjectIdentifier(token), algorithm: key.algorithm, curve: key.curve, bits: key.keyBits),
            certificate: certificate.derRepresentation,
            isOpen: settings.login == .never || token.isLoggedIn || token.needsNoLogin(for: key),
            permitsUsage: certificate.permits(settings.usage), namesUsage: certificate.declares(settings.usage),
            subject: certificate.subjectDER, issuer: certificate.issuerDER,
            canSign: SigningMechanism.isPossible(for: key),
            isValid: certificate.status(at: environment.now()) == .valid, start: certificate.notValidBefore,
            end: certificate.notValidAfter)
    }

    private func severalIdentities(_ candidates: [Found]) -> ProviderError {
        let named = candidates.prefix(TokenReader.maximumRemarks)
        return ProviderError(
            .configurationInvalid,
            "There are \(candidates.count) identities; set \(settings.names.uri) to one of: "
                + named.map { "'\($0.candidate.uri)' (\($0.candidate.certificate.summary))" }.joined(separator: ", ")
                + (named.count < candidates.count ? ", or to another that 'certprov list' shows." : ".")
                + (Set(named.map(\.candidate.uri)).count < named.count
                    ? " Certificates with one URI can only be told apart by their labels: give them different ones, or remove "
                        + "all but one, with the token's own tool." : ""))
    }

    /// The remembered facts about the identity that was chosen last.
    struct RememberedIdentity {
        let leaf: X509Certificate
        /// `nil` where it cannot be read.
        let uri: PKCS11URI?
    }

    func remembered() throws(ProviderError) -> RememberedIdentity? {
        guard let entry = try environment.storage.entry(named: settings.entryName),
            let leaf = entry.certificateChain.first
        else { return nil }
        return RememberedIdentity(leaf: leaf, uri: entry.attributes["uri"].flatMap { try? PKCS11URI($0) })
    }

    func key(of found: Found) throws(ProviderError) -> TokenKey {
        let (candidate, token) = (found.candidate, found.token)
        let publicKey = candidate.certificate.publicKey
        let mechanisms = try token.withConnection { connection throws(CryptokiError) in
            SigningMechanism.all(
                for: publicKey, mechanisms: connection.mechanisms, allowed: candidate.key?.allowedMechanisms)
        }
        guard !mechanisms.isEmpty else {
            guard SigningMechanism.isPossible(for: publicKey) else {
                throw ProviderError(
                    .unsupportedAlgorithm,
                    "On the token '\(token.displayName)', '\(candidate.certificate.subject)': \(publicKey.displayName) keys "
                        + "are not supported; use RSA, EC on P-256, P-384 or P-521, or Ed25519.")
            }
            throw ProviderError(
                .unsupportedAlgorithm,
                "The token '\(token.displayName)' has no mechanism that signs with the \(publicKey.displayName) key; use another key or token."
            )
        }
        return TokenKey(
            publicKey: publicKey, uri: candidate.uri, mechanisms: mechanisms, id: candidate.key?.id ?? candidate.id,
            token: token)
    }

    private func identity(of found: Found, with key: TokenKey) throws(ProviderError) -> Identity {
        let candidate = found.candidate
        return try Identity(
            certificateChain: try chain(of: found), key: key, usage: settings.usage,
            provenance: .init(
                provider: PKCS11TokenProvider.id, alias: String(validating: candidate.label, as: UTF8.self),
                source: candidate.uri))
    }

    private func chain(of found: Found) throws(ProviderError) -> [X509Certificate] {
        try found.token.withConnection { connection throws(CryptokiError) in
            try connection.withSession { session throws(CryptokiError) in
                var issuers = TokenReader.Issuers()
                return try TokenReader(session: session, slot: connection.slot)
                    .chain(of: found.candidate.certificate, &issuers)
            }
        }
    }

    // MARK: The login before

    /// The token to log in to before its identity is used; `nil` when none has to be.
    ///
    /// - Parameter lettingSign: Whether a key that seems to need no login signs a probe.
    /// - Throws: `configurationInvalid` where several tokens may hold the identity.
    func loginToUse(
        _ present: [(Token, Slot)], lettingSign: Bool = true
    ) throws(ProviderError) -> TokenLogin? {
        guard let login = try tokenToOpen(of: present), !needsNoLogin(login, lettingSign) else { return nil }
        return login
    }

    /// Whether every identity that the URI may mean on a token has a public private key that signs without a login, as in
    /// slot 9e of a PIV card.
    private func needsNoLogin(_ login: TokenLogin, _ lettingSign: Bool) -> Bool {
        guard settings.login == .auto, settings.uri.namesObject, !login.token.isLoggedIn else { return false }
        var failures: [ProviderError] = []
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
    func tokenToOpen(of present: [(Token, Slot)]) throws(ProviderError) -> TokenLogin? {
        guard settings.login != .never else { return nil }
        let tokens = present.filter { $0.1.has(UInt(CKF_LOGIN_REQUIRED)) }
        var failures: [ProviderError] = []
        let verdict = try LoginChoice.verdict(
            on: tokens.map(\.0.isLoggedIn), namesToken: settings.uri.namesToken,
            sight: {
                // Certificates can be seen without a login, mostly.
                let holders = tokens.indices.filter { showsIdentity(tokens[$0].0, tokens[$0].1, &failures) }
                return LoginChoice.Sight(holders: holders, isComplete: failures.isEmpty)
            },
            remembered: { indices throws(ProviderError) in
                guard let uri = try remembered()?.uri else { return [] }
                return indices.filter { uri.matches(tokens[$0].1) }
            })
        switch verdict {
        case .none: return nil
        case .token(let index, let isMeant):
            return TokenLogin(token: tokens[index].0, slot: tokens[index].1, isMeant: isMeant)
        case .several(let indices): throw severalTokens(indices.map { tokens[$0] })
        case .unreadable: throw failures[0]
        }
    }

    /// Logs in.
    ///
    /// - Parameter pin: One that a person has just given; otherwise the configured one is used.
    /// - Throws: `interactionRequired` for a PIN that was given for another token, and `configurationInvalid` where a
    ///   configured one would go to a token that nothing says it is for.
    func logIn(_ login: TokenLogin, _ pin: GivenPIN?) throws(ProviderError) {
        try check(login, pin)
        do throws(CryptokiError) { try login.token.logIn(pin: pin?.secret) } catch {
            throw ProviderError(error, token: login.token.displayName)
        }
    }

    /// Throws what ``logIn(_:_:)`` does before anything is sent.
    func check(_ login: TokenLogin, _ pin: GivenPIN?) throws(ProviderError) {
        if let pin, pin.token != login.token.identity {
            throw ProviderError(
                .interactionRequired,
                "The PIN was not sent: it was entered for another token, and now '\(login.token.displayName)' is "
                    + "present; try again.")
        }
        // A PIN that this token has accepted is its own.
        if pin == nil, !login.isMeant, login.isUnattended, !login.token.pins.isProven {
            let uri = PKCS11URI.text(of: login.slot.token)
            throw ProviderError(
                .configurationInvalid,
                "The configured PIN is not sent to the token '\(login.token.displayName)', since \(settings.names.uri) does "
                    + "not name it; if the PIN is for this token, set \(settings.names.uri) to '\(uri)'.")
        }
    }

    /// Logs in without a person.
    /// - Throws: Also `interactionRequired`.
    func openUnattended(_ login: TokenLogin) throws(ProviderError) {
        guard !login.hasPad else {
            throw ProviderError(
                .interactionRequired,
                "The token '\(login.token.displayName)' requires its PIN on the reader's PIN pad; run 'certprov "
                    + "fetch' on a terminal to enter it.")
        }
        try logIn(login, nil)
    }

    /// The login that has to be made; `nil` where none has to be.
    func loginToMake() throws(ProviderError) -> TokenLogin? {
        var failures: [ProviderError] = []
        return try loginToUse(try present(&failures))
    }

    private func severalTokens(_ tokens: [(Token, Slot)]) -> ProviderError {
        let uris = tokens.map { _, slot in "'\(PKCS11URI.text(of: slot.token))'" }
        return ProviderError(
            .configurationInvalid,
            "The PIN could be for \(uris.count) tokens, and it is sent to one only; set \(settings.names.uri) to one of: "
                + uris.joined(separator: ", ") + ".")
    }
}

extension X509Certificate {
    /// The facts that tell certificates with the same URI apart.
    fileprivate var summary: String {
        "\(subject), serial \(serialNumberText), until \(notValidAfter.formatted(.iso8601))"
    }
}
