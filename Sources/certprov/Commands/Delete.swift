import ArgumentParser
import CertificateProviding
import Glibc
import Logon

struct Delete: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "delete",
        abstract: "Delete the stored identity. Its source, such as a file, stays unchanged.",
        discussion: """
            Keys and certificates on a token are destroyed permanently if the provider made them there, or has the \
            parameter delete-objects=true.
            """)

    @OptionGroup var options: GlobalOptions

    @Flag(help: "Do not ask for confirmation.")
    var yes = false

    func run() async throws {
        try await CommandContext.run(options) { context throws(CertificateProviderError) in
            let manager = try await context.manager(try context.configuration())
            let providers = try await manager.activeProviders()
            if !yes {
                let names = providers.map(\.id.rawValue).joined(separator: ", ")
                guard isatty(STDIN_FILENO) == 1 else {
                    throw CertificateProviderError(
                        .interactionRequired,
                        "Deleting the stored identity of \(names) needs a confirmation, and stdin is not a terminal; "
                            + "use --yes.")
                }
                let destroyed = try await Self.announcement(manager)
                guard try await TerminalInteraction().confirm("Delete the stored identity of \(names)?\(destroyed)")
                else {
                    throw CertificateProviderError(.userCancelled, "Nothing was deleted.")
                }
            }
            defer { context.log(manager.decisions) }
            do throws(CertificateProviderError) { try await manager.deleteStoredCertificates() } catch {
                // The first is thrown; the others are shown as well.
                manager.decisions.compactMap(\.error).dropFirst().forEach(context.report)
                throw error
            }
            if options.json {
                try context.show(DeletionDocument(providers: providers.map(\.id.rawValue))) { "" }
            }
            return .done
        }
    }

    /// The objects that are destroyed in addition to the stored identity, for the confirmation.
    private static func announcement(_ manager: LogonManager) async throws(CertificateProviderError) -> String {
        let objects = try await manager.announcedDeletions()
        return objects.isEmpty ? "" : " This permanently destroys: \(objects.joined(separator: "; "))."
    }
}

/// The result of `delete`.
private struct DeletionDocument: Document {
    static let kind = "Deletion"

    /// The providers that no longer have a stored identity.
    let providers: [String]
}
