import ArgumentParser
import CertificateProviding
import CertprovComposition
import Terminal

struct AccessTokenCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "access-token",
        abstract: "Get an OAuth 2 access token by the settings of the provider mdm, for a script.",
        discussion: """
            The token goes to stdout. A refusal has the server's own error, such as invalid_client. Each call requests \
            another token. A secret that the server has rejected is not sent again from its source.
            """)

    @OptionGroup var options: GlobalOptions

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let manager = try await context.manager(try context.configuration())
            let token = try await BuiltIns.accessToken(for: manager, context.interaction)
            let text = token.value.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
            let document = AccessTokenDocument(
                accessToken: text, expiresIn: Nullable(token.expiresIn.map { Int($0 / .seconds(1)) }),
                scopes: Nullable(token.scopes))
            try context.show(document) { text + "\n" }
            return .done
        }
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
