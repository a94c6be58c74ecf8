import ArgumentParser
import CertificateProviding
import SplitKeySigning
import Terminal

struct LoginCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "login", abstract: "Log in at the relying party, and keep its access token.",
        discussion: "dvs sign does so by itself where the token is missing or over.")

    @OptionGroup var options: GlobalOptions
    @OptionGroup var user: UserOption

    func run() async throws {
        try await Context.run(options) { context throws(ProviderError) in
            let host = try context.host()
            let user = try context.user(user, of: host)
            try await host.login(user)
            try context.show(LoginDocument(user: user)) { "\(DisplayText.visible(user)) is logged in.\n" }
            return .done
        }
    }
}

struct ChangePINCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "change-pin", abstract: "Change the PIN of the signing key, or of the login key.",
        discussion: "The authority says whether the old PIN is right, and does not learn the new one.")

    @OptionGroup var options: GlobalOptions
    @OptionGroup var user: UserOption
    @Flag(help: "Change the PIN of the login key.") var login = false
    @Option(help: ArgumentHelp("Where the new PIN is: file:PATH, env:NAME or fd:N.", valueName: "source"))
    var newPinSource: String?

    func validate() throws { try SecretSource.validate(newPinSource, of: "--new-pin-source") }

    func run() async throws {
        try await Context.run(options) { context throws(ProviderError) in
            let host = try context.host()
            let user = try context.user(user, of: host)
            let scope: MPinID.Scope = login ? .login : .signing
            let newSource = newPinSource.flatMap { SecretSource($0) }
            if let source = try await host.changePIN(of: user, scope, from: newSource) {
                // A source without a file is known by its name.
                let step =
                    source.hasPrefix("file:")
                    ? "which is not used until it changes; write the PIN there"
                    : "which is not used again; put the PIN into another variable, credential or descriptor, and name that in the setting"
                context.remark("The new PIN is not in \(source) of '\(scope.pinSetting)', \(step).")
            }
            try context.show(LoginDocument(user: user)) {
                "The \(scope.pinName) of \(DisplayText.visible(user)) is changed.\n"
            }
            return .done
        }
    }
}

/// The result of `login` and `change-pin`.
struct LoginDocument: CommandDocument {
    static let kind = "SplitKeyLogin"

    let user: String
}
