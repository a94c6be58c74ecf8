import CP11Kit
import CertificateProviding
import FoundationEssentials

extension TokenLocator {
    /// Returns the one identity that the URI means, logging in where that takes it.
    ///
    /// - Parameter pin: One that a person has just given.
    /// - Throws: `tokenNotPresent`, `notFound`, `configurationInvalid` with the URIs to choose from, and what the login
    ///   meets.
    func identity(pin: GivenPIN?) throws(CertificateProviderError) -> Identity {
        let (found, key) = try identityKey(pin: pin)
        return try identity(of: found, with: key)
    }

    /// As ``identity(pin:)``, without the chain.
    func identityKey(pin: GivenPIN?) throws(CertificateProviderError) -> (Found, TokenKey) {
        let found = try find { login, isFirst throws(CertificateProviderError) in
            // What was accepted is known by then.
            try logIn(login, isFirst ? pin : nil)
            return true
        }
        guard let found else { throw tokenNotPresent() }
        return (found, try key(of: found))
    }

    /// As ``identity(pin:)``, where that takes nobody; `nil` where somebody would have to be asked. The identity is used
    /// as it is: where nothing but a `CKA_ID` says that the key is the certificate's, or a login is not permitted that the
    /// key may want, the key signs a probe before.
    func identityAtHand() throws(CertificateProviderError) -> Identity? {
        let found = try find { login, _ throws(CertificateProviderError) in
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
        _ logIn: (_ login: Login, _ isFirst: Bool) throws(CertificateProviderError) -> Bool
    ) throws(CertificateProviderError) -> Found? {
        var failures: [CertificateProviderError] = []
        let present = try present(&failures)
        guard !present.isEmpty else { throw noToken(failures) }
        var candidates: [Found] = []
        for isFirst in [true, false] {
            if let login = try loginToUse(present) {
                guard try logIn(login, isFirst) else { return nil }
            }
            let taken = present.filter { $0.0.isLoggedIn }
            candidates = present.flatMap { read($0.0, $0.1, &failures) }
            // One that was away since it was last used shows that only now, and wants its login again.
            guard let closed = taken.first(where: { !$0.0.isLoggedIn }) else { break }
            if !isFirst, candidates.isEmpty {
                throw failures.last ?? closed.0.describe(TokenConnection.searchWithoutLogin)
            }
        }
        return try choose(candidates, failures)
    }

    /// Chooses as ``identity(pin:)`` does.
    func choose(
        _ candidates: [Found], _ failures: [CertificateProviderError]
    ) throws(CertificateProviderError) -> Found {
        let verdict = try IdentityChoice.verdict(
            on: candidates.map(fact),
            remembered: { indices throws(CertificateProviderError) in
                guard let chosen = try remembered()?.leaf.publicKey else { return [] }
                return indices.filter { candidates[$0].candidate.certificate.publicKey.isSameKey(as: chosen) }
            })
        let found: Found
        switch verdict {
        case .one(let index): found = candidates[index]
        case .none:
            throw failures.first ?? candidates.first?.token.describe(TokenConnection.searchWithoutLogin)
                ?? CertificateProviderError(
                    .notFound,
                    "No identity on the token matches '\(DisplayText.visible(settings.uri.text))'; 'certprov list' "
                        + "shows the available identities.")
        case .several(let indices): throw severalIdentities(indices.map { candidates[$0] })
        }
        // One that only a login shows.
        if found.candidate.key == nil { try found.token.pins.requirePermission(for: found.token) }
        return found
    }

    private func fact(_ found: Found) -> IdentityChoice.Candidate {
        let (certificate, token) = (found.candidate.certificate, found.token)
        let key = certificate.publicKey
        return IdentityChoice.Candidate(
            key: .init(
                token: ObjectIdentifier(token), algorithm: key.algorithm, curve: key.curve, bits: key.keyBits),
            certificate: certificate.derRepresentation,
            isOpen: settings.login == .never || token.isLoggedIn || token.needsNoLogin(for: key),
            isForClients: certificate.permitsClientAuthentication, canSign: SigningMechanism.isPossible(for: key),
            isValid: certificate.status(at: environment.now()) == .valid, start: certificate.notValidBefore,
            end: certificate.notValidAfter)
    }

    private func severalIdentities(_ candidates: [Found]) -> CertificateProviderError {
        let named = candidates.prefix(TokenReader.maximumRemarks)
        return CertificateProviderError(
            .configurationInvalid,
            "There are \(candidates.count) identities; set \(settings.names.uri) to one of: "
                + named.map { "'\($0.candidate.uri)' (\($0.candidate.certificate.summary))" }.joined(separator: ", ")
                + (named.count < candidates.count ? ", or to another that 'certprov list' shows." : "."))
    }

    /// What is remembered of the identity that was chosen last.
    struct Remembered {
        let leaf: X509Certificate
        /// `nil` where it cannot be read.
        let uri: PKCS11URI?
    }

    func remembered() throws(CertificateProviderError) -> Remembered? {
        guard let entry = try environment.storage.entry(named: settings.entryName),
            let leaf = entry.certificateChain.first
        else { return nil }
        return Remembered(leaf: leaf, uri: entry.attributes["uri"].flatMap { try? PKCS11URI($0) })
    }

    func key(of found: Found) throws(CertificateProviderError) -> TokenKey {
        let (candidate, token) = (found.candidate, found.token)
        let publicKey = candidate.certificate.publicKey
        let mechanisms = try token.withConnection { connection throws(CryptokiError) in
            SigningMechanism.all(
                for: publicKey, mechanisms: connection.mechanisms, allowed: candidate.key?.allowedMechanisms)
        }
        guard !mechanisms.isEmpty else {
            guard SigningMechanism.isPossible(for: publicKey) else {
                throw CertificateProviderError(
                    .unsupportedAlgorithm,
                    "On the token '\(token.displayName)', '\(candidate.certificate.subject)': \(publicKey.displayName) keys "
                        + "are not supported; use RSA, EC on P-256, P-384 or P-521, or Ed25519.")
            }
            throw CertificateProviderError(
                .unsupportedAlgorithm,
                "The token '\(token.displayName)' has no mechanism that signs with the \(publicKey.displayName) key.")
        }
        return TokenKey(
            publicKey: publicKey, uri: candidate.uri, mechanisms: mechanisms, id: candidate.id, token: token)
    }

    private func identity(of found: Found, with key: TokenKey) throws(CertificateProviderError) -> Identity {
        let candidate = found.candidate
        let chain = try found.token.withConnection { connection throws(CryptokiError) in
            try connection.sessions.withSession { session throws(CryptokiError) in
                var issuers = TokenReader.Issuers()
                return try TokenReader(session: session, slot: connection.slot)
                    .chain(of: candidate.certificate, &issuers)
            }
        }
        return try Identity(
            certificateChain: chain, key: key,
            provenance: .init(
                provider: PKCS11TokenProvider.id, alias: String(validating: candidate.label, as: UTF8.self),
                source: candidate.uri))
    }
}

extension X509Certificate {
    /// What tells certificates apart where their URIs do not.
    fileprivate var summary: String {
        "\(subject), serial \(serialNumberText), until \(notValidAfter.formatted(.iso8601))"
    }
}
