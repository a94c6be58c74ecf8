import CertificateProviding
import Logging
import NIOHTTP1
import ProviderTransport

/// The account of this host with a server (RFC 8555, section 7.3). Identities of one server share it.
///
/// Its key and its URL are stored. All else is asked for.
struct ACMEAccount: Sendable {
    /// Signs in the name of the account.
    let signer: RequestSigner
    /// The list of the account's orders, if the server has one.
    let orders: String?
    let url: String
}

/// An account as the server has it (section 7.1.2).
private struct AccountObject: Decodable {
    let status: ACMEStatus?
    let contact: [String]?
    let orders: String?
}

/// Finds, makes and closes the account.
struct ACMEAccounts {
    let client: ACMEClient
    let interaction: any UserInteraction
    private var settings: ACMESettings { client.settings }
    private var environment: ProviderEnvironment { client.environment }
    private var recordName: String { "account-\(settings.accountName)" }
    private var keys: OwnedKeys { OwnedKeys(settings.accountKeyStore, environment, record: recordName) }
    private var external: ExternalAccount { ExternalAccount(client: client, interaction: interaction) }
    private var place: AccountPlace { AccountPlace(settings, environment) }

    /// Returns the account, which is made if there is none.
    ///
    /// - Throws: `configurationInvalid` for terms that are not agreed to, and for a missing external account; `rejected` for an
    ///   account that was closed, and where the server refuses to make one.
    func account() async throws(ProviderError) -> ACMEAccount {
        if let signer = try await knownSigner() {
            return if let known = try await open(signer) { known } else { try await make(signer) }
        }
        let account = try await environment.withLease(of: recordName) {
            () async throws(ProviderError) -> ACMEAccount in
            // Another process may have made it by now.
            if let signer = try await knownSigner() {
                return if let known = try await open(signer) { known } else { try await make(signer) }
            }
            let agreed = try await agreedTerms()
            let key = try await keys.make(
                NewKey(try keyType(), label: "ACME account at \(client.serverName)"), interaction)
            return try await make(try RequestSigner(key), agreed: agreed)
        }
        if let account { return account }
        throw ProviderError(
            .operationNotAllowed,
            "Another process is making the account with \(client.serverName); wait until it has finished.",
            reason: .busy)
    }

    /// Returns the account; `nil` if there is none that is open.
    func existing() async throws(ProviderError) -> ACMEAccount? {
        guard let signer = try await knownSigner(), case .open(let account) = try await find(signer) else { return nil }
        return account
    }

    /// Closes the account for good, and destroys its key. One that the server has closed already is forgotten.
    func close() async throws(ProviderError) {
        var open: ACMEAccount?
        do throws(ProviderError) { open = try await existing() } catch {
            if error.reason != .closedAccount { throw error }
        }
        if let account = open {
            let response = try await client.post(
                try JSONText.encode(["status": ACMEStatus.deactivated]), to: account.url, by: account.signer)
            guard response.status == 200 else {
                throw client.refusal(response, of: "the request to close the account")
            }
        }
        try await environment.executor.run { [keys, place] () throws(ProviderError) in
            try keys.destroyAllStored(and: nil)
            try place.forget()
        }
    }

    private func knownSigner() async throws(ProviderError) -> RequestSigner? {
        let recorded = try await environment.executor.run { [keys] () throws(ProviderError) in
            try keys.recorded()
        }
        guard let reference = recorded.last else { return nil }
        guard let key = try await keys.key(for: reference, interaction) else {
            environment.logger.warning(
                "the key of the account is no longer in its key store; a new account is made",
                metadata: ["server": "\(client.serverName)"])
            return nil
        }
        if !keys.isConfigured(reference) {
            environment.logger.warning(
                """
                the account's key is not in the key store of 'account-key', and is used; for an account with a key there, run \
                'certprov delete --force' and then 'certprov fetch'
                """,
                metadata: ["key": "\(DisplayText.visible(String(reference.uri.prefix { $0 != "?" })))"])
        }
        return try RequestSigner(key)
    }

    /// P-256, or the first type that the store makes.
    private func keyType() throws(ProviderError) -> KeyType {
        let makes = settings.accountKeyStore.makes
        guard let type = KeyType.allCases.first(where: { makes[$0]?.contains(.signing) == true }) else {
            throw ProviderError(
                .unsupportedAlgorithm, "The key store of 'account-key' makes no keys that sign; set another one.")
        }
        return type
    }

    private struct NewAccount: Encodable {
        var onlyReturnExisting: Bool?
        var termsOfServiceAgreed: Bool?
        var contact: [String]?
        var externalAccountBinding: RequestSigner.Flattened?
    }

    private enum Found {
        case open(ACMEAccount)
        /// With the server's reason.
        case closed(String?)
        case none
    }

    private func open(_ signer: RequestSigner) async throws(ProviderError) -> ACMEAccount? {
        switch try await find(signer) {
        case .open(let account): account
        case .closed(let reason): throw closed(reason)
        case .none: nil
        }
    }

    /// Finds the account of a key: by its stored URL, else by the key (section 7.3.1).
    private func find(_ signer: RequestSigner) async throws(ProviderError) -> Found {
        if let known = try await atStoredURL(signer) { return known }
        let directory = try await client.directory()
        var request = NewAccount(onlyReturnExisting: true)
        var response = try await client.post(
            try JSONText.encode(request), to: directory.newAccount, by: signer, isRepeatable: true)
        if response.problem?.kind == "externalAccountRequired" {
            // Some servers look at the binding before they look for the account.
            request.externalAccountBinding = try await external.binding(of: signer, to: directory)
            response = try await client.post(
                try JSONText.encode(request), to: directory.newAccount, by: signer, isRepeatable: true)
        }
        if response.problem?.kind == "accountDoesNotExist" { return .none }
        guard (200...299).contains(response.status) else {
            if response.problem?.kind == "unauthorized", request.externalAccountBinding == nil {
                return .closed(response.problem?.text)
            }
            throw client.refusal(response, of: "the request for the account", advice: external.advice)
        }
        let object = try response.json(AccountObject.self, from: settings.directory)
        return try await found(try await account(signer, response.headers.first(name: "Location"), object), object)
    }

    /// Reads the account at its stored URL, which needs no external account. `nil` if the key says more: no URL of this key is stored,
    /// or the server does not show an account there.
    private func atStoredURL(_ signer: RequestSigner) async throws(ProviderError) -> Found? {
        let thumbprint = try signer.webKey.thumbprint()
        let known = try await environment.executor.run { [place] () throws(ProviderError) in
            try place.url(ofKey: thumbprint)
        }
        guard let url = known else { return nil }
        var signer = signer
        signer.identification = .account(url)
        guard let response = try? await client.post(to: url, by: signer), response.status == 200,
            let object = try? response.json(AccountObject.self, from: settings.directory)
        else { return nil }
        return try await found(ACMEAccount(signer: signer, orders: object.orders, url: url), object)
    }

    /// Tells the server a changed contact.
    private func found(
        _ account: ACMEAccount, _ object: AccountObject
    ) async throws(ProviderError) -> Found {
        if let status = object.status, status != .valid { return .closed("its status is \(status.rawValue)") }
        if !settings.contact.isEmpty, let contact = object.contact, Set(contact) != Set(settings.contact) {
            let update = try await client.post(
                try JSONText.encode(NewAccount(contact: settings.contact)), to: account.url, by: account.signer)
            guard update.status == 200 else {
                throw client.refusal(update, of: "the change of the account's contact", advice: "check 'contact'")
            }
        }
        return .open(account)
    }

    /// Stores the URL of the account.
    private func account(
        _ signer: RequestSigner, _ location: String?, _ object: AccountObject
    ) async throws(ProviderError) -> ACMEAccount {
        guard let location, !location.isEmpty else {
            throw ProviderError(
                .protocolError,
                "\(client.serverName) does not name the URL of the account; look for the reason in the server's log.")
        }
        let thumbprint = try signer.webKey.thumbprint()
        try await environment.executor.run { [place] () throws(ProviderError) in
            try place.store(location, ofKey: thumbprint)
        }
        var signer = signer
        signer.identification = .account(location)
        return ACMEAccount(signer: signer, orders: object.orders, url: location)
    }

    private func closed(_ reason: String?) -> ProviderError {
        ProviderError(
            .rejected,
            """
            \(client.serverName) does not accept this host's account\(reason.map { ": \(DisplayText.visible(String($0.prefix(1000))))" } ?? ""). \
            An account that was closed cannot be opened again; to have a new one made, run: certprov delete --force
            """, reason: .closedAccount)
    }

    private func make(
        _ signer: RequestSigner, agreed: Bool? = nil
    ) async throws(ProviderError) -> ACMEAccount {
        let directory = try await client.directory()
        var account = NewAccount()
        let isAgreed = if let agreed { agreed } else { try await agreedTerms() }
        if isAgreed { account.termsOfServiceAgreed = true }
        if !settings.contact.isEmpty { account.contact = settings.contact }
        if settings.eabKeyID != nil || directory.meta?.externalAccountRequired == true {
            account.externalAccountBinding = try await external.binding(of: signer, to: directory)
        }
        let response = try await client.post(
            try JSONText.encode(account), to: directory.newAccount, by: signer, isRepeatable: true)
        guard (200...299).contains(response.status) else {
            throw client.refusal(response, of: "the request for an account", advice: external.advice)
        }
        let object = try response.json(AccountObject.self, from: settings.directory)
        return try await self.account(signer, response.headers.first(name: "Location"), object)
    }

    /// Returns whether the server has terms, which the user agrees to.
    ///
    /// - Throws: `configurationInvalid` for terms that are not agreed to.
    private func agreedTerms() async throws(ProviderError) -> Bool {
        guard let terms = try await client.directory().meta?.termsOfService else { return settings.agreedTerms != nil }
        let shown = DisplayText.visible(String(terms.prefix(500)))
        if settings.agreedTerms == "true" || settings.agreedTerms == terms { return true }
        if settings.agreedTerms != nil {
            throw ProviderError(
                .configurationInvalid,
                "The terms of service of \(client.serverName) are \(shown), and 'agree-terms' has another URL. Read them, and set "
                    + "'agree-terms' to this URL if you agree."
            )
        }
        guard interaction.canAsk else {
            throw ProviderError(
                .configurationInvalid,
                "\(client.serverName) makes an account for those who agree to its terms of service: \(shown). Read them, and set "
                    + "'agree-terms' to this URL if you agree, or run 'certprov fetch' on a terminal.")
        }
        guard
            try await interaction.confirm("Do you agree to the terms of service of \(client.serverName), \(shown) ?")
        else {
            throw ProviderError(
                .userCancelled, "The terms of \(client.serverName) were not agreed to; no account was made.")
        }
        return true
    }
}

extension ProviderError.Reason {
    /// The server does not accept the account any more.
    fileprivate static let closedAccount = Self(rawValue: "closedAccount")
}
