import ArgumentParser
import CertificateProviding
import SplitKeySigning
import Terminal

struct ListCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "Show the keys of this host.", discussion: "Needs no connection and no PIN.")

    @OptionGroup var options: GlobalOptions

    func run() async throws {
        try await Context.run(options) { context throws(ProviderError) in
            var items: [KeyItem] = []
            for key in try context.store().keys() {
                switch key {
                case .success(let key): items.append(KeyItem(key))
                case .failure(let error): context.remark("A key cannot be read: \(error.message)")
                }
            }
            try context.show(KeyListDocument(items: items)) {
                items.map { "\(DisplayText.visible($0.user))  \($0.use)  \(DisplayText.visible($0.authority))\n" }
                    .joined()
            }
            return .done
        }
    }
}

struct CanSignCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "can-sign", abstract: "Say whether a user has a signing key here: the status is 0 or 1.")

    @OptionGroup var options: GlobalOptions
    @Argument(help: ArgumentHelp("The user.", valueName: "user")) var user: String

    func run() async throws {
        try await Context.run(options) { context throws(ProviderError) in
            let key = try context.store().key(of: user, .signing, at: try context.authority().url)
            try context.show(CanSignDocument(user: user, canSign: key != nil)) { key != nil ? "yes\n" : "no\n" }
            return key != nil ? .done : .no
        }
    }
}

struct ForgetCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "forget", abstract: "Delete the keys of a user here.",
        discussion: "The authority is not told, and gives no key back: the user has to enrol again.")

    @OptionGroup var options: GlobalOptions
    @Argument(help: ArgumentHelp("The user.", valueName: "user")) var user: String
    @Flag(help: "Do not ask for confirmation.") var yes = false

    func run() async throws {
        try await Context.run(options) { context throws(ProviderError) in
            if !yes {
                let question = "Delete the keys of \(DisplayText.visible(user)) here?"
                guard try await context.interaction.confirm(question) else {
                    throw ProviderError(.userCancelled, "The keys stay.")
                }
            }
            try context.store().forget(user, at: try context.authority().url)
            try context.show(CanSignDocument(user: user, canSign: false)) { "" }
            return .done
        }
    }
}

/// The result of `can-sign`.
struct CanSignDocument: CommandDocument {
    static let kind = "SplitKeyUser"

    let user: String
    let canSign: Bool
}

/// The result of `list` and `enrol`.
struct KeyListDocument: CommandDocument {
    static let kind = "SplitKeyList"

    let items: [KeyItem]
}

struct KeyItem: Encodable {
    let user: String
    let use: String
    let authority: String
    let mpinId: String
    let publicKey: String
    let pinLength: Int

    init(_ key: SplitKey) {
        (user, authority, pinLength) = (key.userID, key.authority, key.pinLength)
        use = key.scope == .login ? "login" : "signing"
        (mpinId, publicKey) = (key.identity.hexadecimal, DisplayText.hexadecimal(key.publicKey))
    }
}
