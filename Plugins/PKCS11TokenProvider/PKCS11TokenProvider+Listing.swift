package import CertificateProviding
import CP11Kit

extension PKCS11TokenProvider: IdentityListing {
    /// The provider itself.
    package var listing: (any IdentityListing)? { self }

    /// Returns the identities on all tokens that the URI matches. Logs in if the PIN is configured; does not prompt.
    /// Without a login it returns the public objects, with remarks on what a login would add.
    package func listIdentities() async -> IdentityList {
        do throws(ProviderError) {
            let tokens = try self.tokens()
            let stored = try environment.storage.entry(named: tokens.settings.entryName)
            return try await tokens.calls.run("listing") { [id] () throws(ProviderError) in
                try tokens.list(provider: id, stored: stored?.certificateChain.first)
            }
        } catch {
            return IdentityList(failures: [error.attributed(to: id)])
        }
    }
}

extension TokenLocator {
    fileprivate func list(
        provider: ProviderID, stored: X509Certificate?
    ) throws(ProviderError) -> IdentityList {
        var list = IdentityList()
        if settings.uri.pinValue != nil { list.remarks.append(TokenSettings.pinValueIsUnsafe) }
        let present = try present(&list.failures)
        if present.isEmpty, list.failures.isEmpty {
            // The URI names a token, and it is missing. If any token will do, there is nothing to list.
            if lacksReaderService || settings.uri.text.count > "pkcs11:".count {
                list.failures.append(tokenNotPresent())
            } else {
                list.remarks.append(remarkOnNoToken)
            }
        }
        logIn(present, &list)
        let listing = self.list(present)
        list.failures += listing.failures
        list.remarks += listing.remarks
        list.otherObjects = listing.otherObjects
        for (token, slot) in present {
            if !token.isLoggedIn, slot.has(UInt(CKF_LOGIN_REQUIRED)) {
                list.remarks.append(
                    "The token '\(token.displayName)' hides its private keys until login, so it is unknown which "
                        + "certificates have one.\(wayToSeeKeys(on: token, slot))")
            }
        }
        let choice = choice(listing.found.map(\.found), present, list.failures)
        func listed(_ found: Found, _ chain: [X509Certificate]) -> ListedIdentity {
            // Without the login, only the last choice is known.
            let isStored =
                if case .success(let chosen) = choice { chosen.isSame(as: found) } else {
                    found.candidate.certificate == stored
                }
            return ListedIdentity(
                provider: provider, alias: String(validating: found.candidate.label, as: UTF8.self),
                isStored: isStored, certificateChain: chain, keyLocation: .token, isKeyExportable: false,
                keyURI: found.candidate.uri, usage: settings.usage)
        }
        list.identities = listing.found.map(listed)
        list.choice = choice.map { chosen in
            listed(chosen, listing.found.first { $0.found.isSame(as: chosen) }?.chain ?? [])
        }
        if case .success(let chosen) = choice, let remark = remark(on: chosen) { list.remarks.append(remark) }
        list.failures = list.failures.map { $0.attributed(to: provider) }
        return list
    }

    /// Returns the advice that makes a listing show private keys. If a PIN is configured, another message says why it was not
    /// used.
    private func wayToSeeKeys(on token: Token, _ slot: Slot) -> String {
        if slot.has(UInt(CKF_PROTECTED_AUTHENTICATION_PATH)) {
            return " Its PIN is entered on the reader's PIN pad, which a listing does not use."
        }
        if settings.login == .never { return " Set 'login' to 'auto' to see the keys." }
        return token.isPINAtHand ? "" : " Set \(settings.names.pinSource) to see the keys."
    }

    /// Logs in where a PIN is configured and it is clear for which token.
    private func logIn(_ present: [(Token, Slot)], _ list: inout IdentityList) {
        do throws(ProviderError) {
            guard let login = try loginForListing(present) else { return }
            try logIn(login, nil)
        } catch {
            list.failures.append(error)
        }
    }

    /// - Returns: Also `nil` where nothing says which of several tokens the PIN is for: no fault of a listing.
    private func loginForListing(_ present: [(Token, Slot)]) throws(ProviderError) -> TokenLogin? {
        do throws(ProviderError) {
            guard let login = try loginToUse(present, lettingSign: false), login.isUnattended else { return nil }
            try check(login, nil)
            return login
        } catch {
            if error.code == .configurationInvalid { return nil }
            throw error
        }
    }

    private func choice(
        _ all: [Found], _ present: [(Token, Slot)], _ failures: [ProviderError]
    ) -> Result<Found, ProviderError> {
        Result { () throws(ProviderError) in
            guard !present.isEmpty else { throw noToken(failures) }
            if let login = try loginToUse(present, lettingSign: false) {
                try check(login, nil)
                throw ProviderError(
                    .interactionRequired, "The token '\(login.token.displayName)' requires its PIN first.")
            }
            return try choose(all, failures)
        }
    }
}
