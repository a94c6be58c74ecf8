import CertificateProviding
import IdentityStore
import ProviderTransport

/// The user's password at the platform server. One that the server has rejected is not sent again by itself: some servers lock the
/// user after a few.
struct ServerPassword: Sendable {
    let configuration: LogonConfiguration
    let registrar: Registrar
    let vault: VaultAccess

    /// The user with the password of the vault, or with that of `Registration.password-source` if the server has rejected the one
    /// of the vault and the source has another one by now.
    func principal(_ record: ConnectionRecord) async throws(CertificateProviderError) -> PlatformClient.Principal {
        guard let name = record.username else { throw ConnectionRecord.damaged }
        if record.isPasswordRejected == true {
            try await registrar.renewing.run { () async throws(CertificateProviderError) in
                try await renew(of: name)
            }
        }
        let password = try await registrar.executor.run { () throws(CertificateProviderError) in
            try ConnectionRecord.password(in: registrar.vault)
        }
        guard let password else { throw ConnectionRecord.damaged }
        return .user(name, password)
    }

    /// Takes the password of the source, if the server has not rejected that, too.
    private func renew(of name: String) async throws(CertificateProviderError) {
        guard let record = try await registrar.record() else { throw ConnectionRecord.damaged }
        // Another process may have renewed it.
        guard record.isPasswordRejected == true else { return }
        let source = configuration.registration.passwordSource
        if let source, source != .prompt, let new = try await vault.secret(source, NoUserInteraction(), "") {
            let credentials = Self.credentials(record, new)
            let isRejected = try await registrar.executor.run { () throws(CertificateProviderError) in
                try ConnectionRecord.isRejected(credentials, in: registrar.vault)
            }
            if !isRejected { return try await change(to: new, record) }
        }
        throw CertificateProviderError(
            .rejected,
            "The server has rejected the password of '\(name)', so it is not sent again; set the new one: certprov password"
        )
    }

    /// Asks the server whether it accepts a password, and keeps it in the vault then.
    func change(
        to password: SecretBytes, _ record: ConnectionRecord
    ) async throws(CertificateProviderError) {
        guard let name = record.username, let id = ConnectionID(record.connectionID) else {
            throw ConnectionRecord.damaged
        }
        let client = try registrar.client(configuration, of: record)
        // The sessions know the former one.
        registrar.forgetConnections()
        do throws(CertificateProviderError) {
            try await client.confirm(id, from: .user(name, password))
        } catch {
            if error.isRejectedPassword { await note(rejected: password) }
            throw error
        }
        try await registrar.executor.run { () throws(CertificateProviderError) in
            // The password first: with the former one, it would be marked as right.
            try ConnectionRecord.write(password: password, to: registrar.vault)
            try ConnectionRecord.write(isRejected: false, password, to: registrar.vault)
        }
    }

    /// Runs what sends the principal's password, and notes a rejection of it.
    func notingRejection<T>(
        of principal: PlatformClient.Principal, _ body: () async throws(CertificateProviderError) -> T
    ) async throws(CertificateProviderError) -> T {
        do throws(CertificateProviderError) { return try await body() } catch {
            if case .user(_, let password) = principal, error.isRejectedPassword { await note(rejected: password) }
            throw error
        }
    }

    private func note(rejected password: SecretBytes) async {
        // If it cannot be written down, the password is sent once more.
        try? await registrar.executor.run { () throws(CertificateProviderError) in
            guard let record = try ConnectionRecord.read(from: registrar.vault) else { return }
            try ConnectionRecord.remember(rejected: Self.credentials(record, password), in: registrar.vault)
            try ConnectionRecord.write(isRejected: true, password, to: registrar.vault)
        }
    }

    // MARK: - Before the registration

    /// Notes that the server has rejected the password, or the activation code, of an attempt to register.
    func remember(rejected run: RegistrationRun, at place: String) async {
        try? await registrar.executor.run { () throws(CertificateProviderError) in
            try ConnectionRecord.remember(rejected: Self.credentials(of: run, at: place), in: registrar.vault)
        }
    }

    /// - Throws: `rejected` for what the server has rejected before.
    func requireNotRejected(_ run: RegistrationRun, at place: String) async throws(CertificateProviderError) {
        let isRejected = try await registrar.executor.run { () throws(CertificateProviderError) in
            try ConnectionRecord.isRejected(Self.credentials(of: run, at: place), in: registrar.vault)
        }
        guard isRejected else { return }
        throw CertificateProviderError(
            .rejected,
            "The server has rejected the password of '\(run.username ?? "")' before, so it is not sent again; correct it in "
                + "Registration.password-source, or run: certprov register --prompt")
    }

    private static func credentials(of run: RegistrationRun, at place: String) -> SecretBytes {
        credentials(place, run.username, run.password, run.activationCode)
    }

    private static func credentials(_ record: ConnectionRecord, _ password: SecretBytes) -> SecretBytes {
        credentials(record.place ?? "", record.username, password, nil)
    }

    /// What a rejection is of: the password for this place and user, with this activation code.
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

extension CertificateProviderError {
    /// Whether a server has got a password, and does not accept it.
    var isRejectedPassword: Bool { (underlying as? RejectedPassword)?.isOfProxy == false }
}
