import ArgumentParser
import CertificateProviding
import CertprovComposition
import Terminal

struct AccessTokenCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "access-token",
        abstract: "Get an OAuth 2 access token, for a script.",
        discussion: """
            By the OAuth settings of the provider mdm in the property file, or by the options alone: an enrolment is not needed. The token \
            goes to stdout. A refusal has the server's own error, such as invalid_client. Each call requests another token. A secret that \
            the server has rejected is not sent again from its source. With --grant password, the server's refresh token is stored in the \
            identity store, and later calls need no password until the server refuses it.
            """)

    @OptionGroup var options: GlobalOptions
    @OptionGroup(title: "OAuth") var oauth: OAuthOptions

    @Flag(help: "Delete the refresh token that is stored for these settings, and request no token.")
    var forget = false

    /// The options, with those of OAuth as parameters of the provider.
    private var complete: GlobalOptions {
        var complete = options
        guard !oauth.parameters.isEmpty else { return complete }
        complete.parameters += oauth.parameters
        if complete.drivenProvider == nil { complete.provider = BuiltIns.providerOfTokens }
        return complete
    }

    func validate() throws { try complete.validate() }

    func run() async throws {
        try await CommandContext.run(complete) { context throws(ProviderError) in
            let configuration = try context.configuration()
            let manager = try await context.manager(BuiltIns.forTokens(configuration))
            if forget {
                try await BuiltIns.forgetRefreshToken(by: configuration, for: manager)
                return .done
            }
            let token = try await BuiltIns.accessToken(by: configuration, for: manager, context.interaction)
            let text = token.value.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
            let document = AccessTokenDocument(
                accessToken: text, expiresIn: Nullable(token.expiresIn.map { Int($0 / .seconds(1)) }),
                scopes: Nullable(token.scopes))
            try context.show(document) { text + "\n" }
            return .done
        }
    }
}

/// The OAuth parameters of the provider mdm, under their names.
struct OAuthOptions: ParsableArguments {
    @Option(help: ArgumentHelp("The token endpoint: https://HOST[:PORT]/PATH.", valueName: "url"))
    var tokenURL: String?

    @Option(help: ArgumentHelp("The identifier of the client.", valueName: "id"))
    var clientID: String?

    @Option(
        help: ArgumentHelp(
            "The source of the secret: file:PATH, env:NAME, fd:N, systemd:NAME or prompt.",
            discussion: "Default: prompt; with --grant password, none.", valueName: "source"))
    var clientSecretSource: String?

    @Option(
        help: ArgumentHelp(
            "How the secret is sent: basic, or body for a server that wants it there. Default: basic.",
            valueName: "way"))
    var clientAuthentication: String?

    @Option(help: ArgumentHelp("The scopes, separated by spaces.", valueName: "scopes"))
    var scope: String?

    @Option(
        help: ArgumentHelp(
            "client-credentials, or the legacy password with --username. Default: client-credentials.",
            valueName: "grant"))
    var grant: String?

    @Option(help: ArgumentHelp("The user, with --grant password.", valueName: "name"))
    var username: String?

    @Option(help: ArgumentHelp("The source of the user's password. Default: prompt.", valueName: "source"))
    var passwordSource: String?

    @Option(
        help: ArgumentHelp(
            "PEM file with the CA of the token endpoint. Default: the system trust store.", valueName: "file"),
        completion: .file())
    var tokenTrustAnchors: String?

    @Option(
        help: ArgumentHelp(
            "Pins of the token endpoint, separated by commas: sha256/BASE64, or a certificate file.", valueName: "pins")
    )
    var tokenPin: String?

    @Option(
        help: ArgumentHelp(
            "pin-and-pki, or pin-only for a token endpoint with a self-signed certificate. Default: pin-and-pki.",
            valueName: "mode"))
    var tokenPinMode: String?

    var parameters: [String] {
        [
            ("token-url", tokenURL), ("client-id", clientID), ("client-secret-source", clientSecretSource),
            ("client-authentication", clientAuthentication), ("scope", scope), ("grant", grant),
            ("username", username), ("password-source", passwordSource), ("token-trust-anchors", tokenTrustAnchors),
            ("token-pin", tokenPin), ("token-pin-mode", tokenPinMode),
        ].compactMap { name, value in value.map { "\(name)=\($0)" } }
    }
}

/// The result of `access-token`.
private struct AccessTokenDocument: CommandDocument {
    static let kind = "AccessToken"

    let accessToken: String
    /// The lifetime in seconds; null if the server does not name it.
    let expiresIn: Nullable<Int>
    /// Null if the server does not name them: all that were requested.
    let scopes: Nullable<[String]>
}
