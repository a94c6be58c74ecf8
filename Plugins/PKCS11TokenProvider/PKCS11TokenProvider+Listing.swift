public import CertificateProviding
import CP11Kit

extension PKCS11TokenProvider: IdentityListing {
    /// Returns the identities on every token that the URI matches. Logs in where a PIN is configured and nobody has to
    /// be asked; without it shows what is public, and says what a login would add.
    public func listIdentities() async -> IdentityList {
        do throws(CertificateProviderError) {
            let tokens = try self.tokens()
            let stored = try environment.storage.entry(named: tokens.settings.entryName)
            return try await tokens.calls.run("listing") { [id] () throws(CertificateProviderError) in
                try tokens.list(provider: id, stored: stored?.certificateChain.first)
            }
        } catch {
            return IdentityList(failures: [error.attributed(to: id)])
        }
    }
}

extension Tokens {
    fileprivate func list(
        provider: ProviderID, stored: X509Certificate?
    ) throws(CertificateProviderError) -> IdentityList {
        var list = IdentityList()
        for (token, slot) in try present(&list.failures) {
            do throws(CertificateProviderError) {
                if settings.login != .never, token.isPINAtHand { try token.open(pin: nil) }
            } catch {
                list.failures.append(error)
            }
            do throws(CertificateProviderError) {
                let contents = try read(token, slot)
                list.failures += contents.failures
                list.identities += contents.candidates.map { candidate, chain in
                    ListedIdentity(
                        provider: provider, alias: String(validating: candidate.label, as: UTF8.self),
                        isStored: candidate.certificate == stored, certificateChain: chain, keyLocation: .token,
                        isKeyExportable: false, keyURI: candidate.uri)
                }
            } catch {
                list.failures.append(error)
            }
            if !token.isOpen, slot.has(UInt(CKF_LOGIN_REQUIRED)) {
                list.remarks.append(
                    "The token '\(token.displayName)' hides its private keys before login: which certificates have one "
                        + "is not known. Set 'pin-source' to see it.")
            }
        }
        list.failures = list.failures.map { $0.attributed(to: provider) }
        return list
    }
}
