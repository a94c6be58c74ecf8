import CertificateProviding
import ProviderTransport

/// A user at a time-stamp server, and the memory of passwords that the server has rejected.
struct TimeStampLogin: Sendable {
    let user: String
    private let source: SecretSource
    private let environment: ProviderEnvironment
    private let account: String

    /// - Throws: `configurationInvalid`.
    init(
        _ user: String, _ source: SecretSource, at server: ServerURL, _ environment: ProviderEnvironment
    ) throws(ProviderError) {
        func invalid(_ reason: String) -> ProviderError {
            ProviderError(.configurationInvalid, "The user at the time-stamp server \(server.authority) \(reason).")
        }
        guard !user.isEmpty, user.isUserName else {
            throw invalid("must not be blank, or have a colon or a control character (RFC 7617)")
        }
        guard source != .prompt else {
            throw invalid(
                "needs a password from file:PATH, env:NAME, fd:N or systemd:NAME: it is read for each time stamp")
        }
        guard server.isSecure || server.isLoopback else {
            throw invalid("has a password, which is sent over TLS only: use the https: URL of the server")
        }
        (self.user, self.source, self.environment) = (user, source, environment)
        account = "time stamps \(user)@\(server.authority)"
    }

    /// Reads the password.
    ///
    /// - Throws: `rejected` for one that the server has rejected before; errors of the source, and of the memory.
    func password() async throws(ProviderError) -> SecretBytes {
        let password = try await environment.secret(from: source, prompt: "", interaction: NoUserInteraction())
        guard try await !environment.isRejected(password, for: account) else {
            throw ProviderError(
                .rejected,
                "The time-stamp server has rejected this password of '\(user.withVisibleControls)' before, so it is not sent again; correct \(source)."
            )
        }
        return password
    }

    func noteOutcome(of password: SecretBytes, isRejected: Bool) async {
        await environment.noteOutcome(of: password, for: account, isRejected: isRejected)
    }
}
