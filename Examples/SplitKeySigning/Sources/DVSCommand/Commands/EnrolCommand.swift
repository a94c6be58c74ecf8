import ArgumentParser
import CertificateProviding
import SplitKeySigning
import Terminal

struct EnrolCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "enrol", abstract: "Enrol a login key and a signing key, by an activation code.",
        discussion: """
            Asks for the code, and for the PIN of each key. Run again after a break, with the same code or without \
            --code-source, it goes on where it stopped. With keys of this user already here, the new ones replace \
            them, each when the authority has verified a signature with it. A code of another user is used at once, \
            whatever has begun here.
            """)

    @OptionGroup var options: GlobalOptions

    @Option(
        help: ArgumentHelp(
            "Where the activation code is: file:PATH, env:NAME, fd:N, or prompt to ask for it.", valueName: "source"))
    var codeSource: String?

    func validate() throws { try SecretSource.validate(codeSource, of: "--code-source") }

    func run() async throws {
        try await Context.run(options) { context throws(ProviderError) in
            let host = try context.host()
            let source = codeSource.flatMap { SecretSource($0) }
            var given: SecretBytes?
            if let source { given = try await code(context, from: source) }
            let key: SplitKey
            if let begun = try await host.begunEnrolment(with: given) {
                context.remark(
                    "The login key of \(DisplayText.visible(begun)) is there; going on. To enrol another user, run: dvs enrol --code-source prompt"
                )
                do throws(ProviderError) { key = try await host.enrolSigningKey(of: begun) } catch {
                    // The authority has blocked the login key, or does not know it any more.
                    guard given == nil, [.pinLocked, .notFound].contains(error.code) else { throw error }
                    context.interaction.report("\(error.message) A new login key needs an activation code.")
                    key = try await Self.enrol(host, try await code(context, from: .prompt))
                }
            } else if let given {
                key = try await Self.enrol(host, given)
            } else {
                key = try await Self.enrol(host, try await code(context, from: .prompt))
            }
            try context.show(KeyListDocument(items: [KeyItem(key)])) {
                "\(DisplayText.visible(key.userID)) can sign.\n"
            }
            return .done
        }
    }

    /// Enrols both keys.
    private static func enrol(
        _ host: SplitKeyHost, _ code: SecretBytes
    ) async throws(ProviderError) -> SplitKey {
        try await host.enrolSigningKey(of: try await host.enrolLoginKey(code: code).userID)
    }

    private func code(
        _ context: Context, from source: SecretSource
    ) async throws(ProviderError) -> SecretBytes {
        let code: SecretBytes
        if source == .prompt {
            do throws(ProviderError) {
                code = try await context.interaction.requestSecret("Activation code")
            } catch {
                guard error.code == .interactionRequired else { throw error }
                throw ProviderError(
                    error.code,
                    "There is no terminal to ask for the activation code; run the command at a terminal, or name its source with --code-source.",
                    underlying: error)
            }
        } else {
            code = try SecretReader().read(source).trimmingLineEnding()
        }
        guard code.withUnsafeBytes({ !$0.allSatisfy { $0 <= 0x20 } }) else {
            let place = source == .prompt ? "" : " in \(source)"
            throw ProviderError(
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
