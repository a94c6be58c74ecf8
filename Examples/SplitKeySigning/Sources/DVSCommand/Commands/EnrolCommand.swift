import ArgumentParser
import CertificateProviding
import SplitKeySigning
import Terminal

struct EnrolCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "enrol", abstract: "Enrol a login key and a signing key, by an activation code.",
        discussion: """
            Asks for the code, and for the PIN of each key. Run again after a break, it goes on where it stopped, or \
            takes a new code where the authority has blocked the login key meanwhile. With keys of this user \
            already here, the new ones replace them, each when the authority has verified a signature with it.
            """)

    @OptionGroup var options: GlobalOptions

    @Option(help: ArgumentHelp("Where the activation code is: file:PATH, env:NAME or fd:N.", valueName: "source"))
    var codeSource: String?

    func validate() throws { try SecretSource.validate(codeSource, of: "--code-source") }

    func run() async throws {
        try await Context.run(options) { context throws(CertificateProviderError) in
            let host = try context.host()
            let users = try host.users()
            let key: SplitKey
            if let known = users.login.subtracting(users.signing).min() {
                context.interaction.report("The login key of \(DisplayText.visible(known)) is there; going on.")
                do throws(CertificateProviderError) { key = try await host.enrolSigningKey(of: known) } catch {
                    // The authority has blocked the login key, or does not know it any more.
                    guard [.pinLocked, .notFound].contains(error.code) else { throw error }
                    context.interaction.report("\(error.message) A new login key needs an activation code.")
                    key = try await enrol(context, host)
                }
            } else {
                key = try await enrol(context, host)
            }
            try context.show(KeyListDocument(items: [KeyItem(key)])) {
                "\(DisplayText.visible(key.userID)) can sign.\n"
            }
            return .done
        }
    }

    /// Enrols both keys.
    private func enrol(
        _ context: Context, _ host: SplitKeyHost
    ) async throws(CertificateProviderError) -> SplitKey {
        if let finished = try await host.finishedLoginKey() { return try await host.enrolSigningKey(of: finished) }
        let user = try await host.enrolLoginKey(code: try await code(context)).userID
        return try await host.enrolSigningKey(of: user)
    }

    private func code(_ context: Context) async throws(CertificateProviderError) -> SecretBytes {
        let source = codeSource.flatMap { SecretSource($0) } ?? .prompt
        let code =
            source == .prompt
            ? try await context.interaction.requestSecret("Activation code")
            : try SecretReader().read(source).trimmingLineEnding()
        guard code.withUnsafeBytes({ !$0.allSatisfy { $0 <= 0x20 } }) else {
            let place = source == .prompt ? "" : " in \(source)"
            throw CertificateProviderError(
                .malformedData, "The activation code\(place) is empty. Nothing was sent; get one from the authority.")
        }
        return code
    }
}

extension SecretSource {
    /// Checks the value of an option.
    static func validate(_ text: String?, of option: String) throws {
        guard let text, SecretSource(text) == nil else { return }
        throw ValidationError("\(option) must be file:PATH, env:NAME, fd:N, systemd:NAME or prompt.")
    }
}
