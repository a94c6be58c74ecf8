import CertificateProviding
import FoundationEssentials
import IdentityStore

/// The user's password at the platform server. One that the server has rejected is not sent again by itself, and one that gets no
/// answer only a few times: some servers lock the user after a few.
struct ServerPassword: Sendable {
    let configuration: LogonConfiguration
    let registrar: Registrar
    let vault: VaultAccess

    /// The user with the password of the vault, or with that of `Registration.password-source` if the server has rejected the one
    /// of the vault and the source has another one by now.
    func principal(_ record: ConnectionRecord) async throws(ProviderError) -> PlatformClient.Principal {
        guard let name = record.username else { throw ConnectionRecord.damaged }
        if record.isPasswordRejected == true {
            try await registrar.renewing.run { () async throws(ProviderError) in
                try await renew(of: name)
            }
        }
        let password = try await registrar.executor.run { () throws(ProviderError) in
            try ConnectionRecord.password(in: registrar.vault)
        }
        guard let password else { throw ConnectionRecord.damaged }
        return .user(
            name,
            SentPassword(
                secret: password, beforeSending: nil,
                note: { verdict in if verdict == .rejected { await note(rejected: password) } }))
    }

    /// Takes the password of the source, if the server has not rejected that, too.
    private func renew(of name: String) async throws(ProviderError) {
        guard let record = try await registrar.record() else { throw ConnectionRecord.damaged }
        // Another process may have renewed it.
        guard record.isPasswordRejected == true else { return }
        let source = configuration.registration.passwordSource
        if let source, source != .prompt, let new = try await vault.secret(source, NoUserInteraction(), "") {
            let credentials = Self.credentials(record, new)
            if try await !isRejected(credentials) { return try await confirm(new, record, isAutomatic: true) }
        }
        throw ProviderError(
            .rejected,
            "The server has rejected the password of '\(name)', so it is not sent again; set the new one: certprov password"
        )
    }

    /// Asks the server whether it accepts a password, and keeps it in the vault then.
    ///
    /// - Parameter isAutomatic: Whether no user has just typed it.
    /// - Throws: `rejected`, also for one of a source that the server has rejected before.
    func change(
        to password: SecretBytes, _ record: ConnectionRecord, isAutomatic: Bool
    ) async throws(ProviderError) {
        if isAutomatic, try await isRejected(Self.credentials(record, password)) {
            throw ProviderError(
                .rejected,
                "The server has rejected this password of '\(record.username ?? "")' before, so it is not sent again; correct its "
                    + "source, or type it: certprov password")
        }
        try await confirm(password, record, isAutomatic: isAutomatic)
    }

    private func confirm(
        _ password: SecretBytes, _ record: ConnectionRecord, isAutomatic: Bool
    ) async throws(ProviderError) {
        guard let name = record.username, let id = ConnectionID(record.connectionID) else {
            throw ConnectionRecord.damaged
        }
        let client = try registrar.client(configuration, of: record)
        // The sessions know the former one.
        registrar.forgetConnections()
        let trial = onTrial(
            password, of: name, Self.credentials(record, password), isAutomatic: isAutomatic,
            toTryEarlier: "certprov password")
        try await client.confirm(id, from: .user(name, trial))
        try await registrar.executor.run { () throws(ProviderError) in
            // The password first: with the former one, it would be marked as right.
            try ConnectionRecord.write(password: password, to: registrar.vault)
            try ConnectionRecord.write(isRejected: false, password, to: registrar.vault)
        }
    }

    private func isRejected(_ credentials: SecretBytes) async throws(ProviderError) -> Bool {
        try await registrar.executor.run { () throws(ProviderError) in
            try ConnectionRecord.storage(of: registrar.vault).rejectedSecrets().contains(credentials, for: "")
        }
    }

    private func note(rejected password: SecretBytes) async {
        // If it cannot be written down, the password is sent once more.
        try? await registrar.executor.run { () throws(ProviderError) in
            guard let record = try ConnectionRecord.read(from: registrar.vault) else { return }
            let credentials = Self.credentials(record, password)
            try ConnectionRecord.storage(of: registrar.vault).updateRejectedSecrets { $0.insert(credentials, for: "") }
            try ConnectionRecord.write(isRejected: true, password, to: registrar.vault)
        }
    }

    // MARK: - Passwords that the server has not accepted yet

    /// A password that is written down before it is sent, unless a user has just typed it: its answer may be lost, and be a refusal.
    private func onTrial(
        _ password: SecretBytes, of user: String, _ credentials: SecretBytes, isAutomatic: Bool,
        toTryEarlier command: String
    ) -> SentPassword {
        let (vault, now, server) = (registrar.vault, registrar.now, configuration.host ?? "the server")
        let storage = ConnectionRecord.storage(of: vault)
        let beforeSending: @Sendable () async throws(ProviderError) -> Void = {
            () async throws(ProviderError) in
            try await registrar.executor.run { () throws(ProviderError) in
                let time = now()
                // A password that a user types begins anew.
                guard isAutomatic else {
                    try? storage.updateRejectedSecrets { $0.removeTries(credentials, for: "") }
                    return
                }
                let tries = try storage.updateRejectedSecrets { $0.addTry(credentials, for: "", at: time) }
                guard let tries else { return }
                throw ProviderError(
                    .operationNotAllowed,
                    "A password of '\(user)' was sent to \(server) \(tries.count) times without an answer, so it is not known "
                        + "whether it is right. The next try may be at \(tries.next.formatted(.iso8601)); to try earlier, type it: "
                        + command,
                    retryAfter: .seconds(tries.next.timeIntervalSince(time)))
            }
        }
        return SentPassword(secret: password, beforeSending: beforeSending) { verdict in
            // If it cannot be written down, the password waits for its next try.
            try? await registrar.executor.run { () throws(ProviderError) in
                try storage.updateRejectedSecrets {
                    switch verdict {
                    case .accepted: $0.remove(credentials, for: "")
                    case .rejected: $0.insert(credentials, for: "")
                    case .errorOfServer: $0.removeTries(credentials, for: "")
                    }
                }
                if verdict == .rejected { try ConnectionRecord.write(isRejected: true, password, to: vault) }
            }
        }
    }

    /// The password of an attempt to register.
    func onTrial(_ password: SecretBytes, of run: RegistrationRun, at place: String) -> SentPassword {
        onTrial(
            password, of: run.username ?? "", Self.credentials(of: run, at: place),
            isAutomatic: run.isPasswordAutomatic, toTryEarlier: "certprov register --ask")
    }

    /// - Throws: `rejected` for what the server has rejected before.
    func requireNotRejected(_ run: RegistrationRun, at place: String) async throws(ProviderError) {
        guard try await isRejected(Self.credentials(of: run, at: place)) else { return }
        throw ProviderError(
            .rejected,
            "The server has rejected the password of '\(run.username ?? "")' before, so it is not sent again; correct it in "
                + "Registration.password-source, or run: certprov register --ask")
    }

    private static func credentials(of run: RegistrationRun, at place: String) -> SecretBytes {
        credentials(place, run.username, run.password, run.activationCode)
    }

    private static func credentials(_ record: ConnectionRecord, _ password: SecretBytes) -> SecretBytes {
        credentials(record.place ?? "", record.username, password, nil)
    }

    /// Returns the subject of a rejection: the password for this place and user, with this activation code.
    private static func credentials(
        _ place: String, _ user: String?, _ password: SecretBytes?, _ code: SecretBytes?
    ) -> SecretBytes {
        var bytes: [UInt8] = Array("\(place)\0\(user ?? "")\0".utf8)
        defer { for index in bytes.indices { bytes[index] = 0 } }
        for secret in [password, code] {
            secret?.withUnsafeBytes { bytes.append(contentsOf: $0) }
            bytes.append(0)
        }
        return SecretBytes(copying: bytes)
    }
}
