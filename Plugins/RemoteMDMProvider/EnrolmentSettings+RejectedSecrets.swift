import CertificateProviding
import ProviderTransport

extension EnrolmentSettings {
    /// The accounts whose secrets an enrolment reads by itself, with their sources.
    private var accounts: [(SecretsInHand.Account, SecretSource)] {
        var accounts: [(SecretsInHand.Account, SecretSource?)] = []
        if let oauth {
            accounts.append(
                (.init(kind: .clientSecret, user: oauth.clientID, authority: oauth.authority), oauth.secretSource))
        }
        if let username {
            let authority = oauth?.authority ?? server.authority
            accounts.append((.init(kind: .password, user: username, authority: authority), passwordSource))
        }
        return accounts.compactMap { account, source in
            source.flatMap { $0 == .prompt || $0.isFileDescriptor ? nil : (account, $0) }
        }
    }

    /// Returns the error of an enrolment whose password the server has rejected before; `nil` if it has not, or if that cannot be
    /// told.
    func rejectedBefore(_ environment: ProviderEnvironment) async -> ProviderError? {
        for (account, source) in accounts {
            let user = NoUserInteraction()
            guard let secret = try? await environment.secret(from: source, prompt: "", interaction: user),
                (try? await environment.isRejected(secret, for: account.name)) == true
            else { continue }
            return account.rejectedBefore
        }
        return nil
    }
}
