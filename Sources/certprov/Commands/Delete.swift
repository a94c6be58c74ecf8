import ArgumentParser
import CertificateProviding
import Glibc
import IdentityFiles
import Logon
import Terminal

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

    @Flag(help: "Have the certificate revoked by its CA first. Nothing is deleted if that fails.")
    var revoke = false

    @Option(
        help: ArgumentHelp(
            "Reason of the revocation (RFC 5280, section 5.3.1), such as 1 for a key that others may have, or 4 for superseded.",
            valueName: "code"))
    var reason: Int?

    @Flag(help: "Also close this host's account with an ACME server, for good.")
    var force = false

    func validate() throws {
        guard let reason else { return }
        guard revoke else { throw ValidationError("--reason needs --revoke.") }
        guard [0, 1, 3, 4, 5].contains(reason) else {
            throw ValidationError("--reason must be 0, 1, 3, 4 or 5.")
        }
    }

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let configuration = try context.configuration()
            let manager = try await context.manager(configuration)
            let providers = try await manager.activeProviders()
            if !yes {
                let names = providers.map(\.id.rawValue).joined(separator: ", ")
                try context.requirePerson(for: "Deleting the stored identity of \(names)")
                let destroyed = try await Self.announcement(manager)
                let more = revoke ? " Its certificate is revoked first." : ""
                let account = force ? " The ACME account is closed for good, also for other identities." : ""
                guard
                    try await context.interaction.confirm(
                        "Delete the stored identity of \(names)?\(more)\(account)\(destroyed)")
                else {
                    throw ProviderError(.userCancelled, "Nothing was deleted.")
                }
            }
            defer { context.log(manager.decisions) }
            let before = await Self.storedOutsideFiles(providers)
            var hadNone = false
            var stored: Identity?
            do throws(ProviderError) {
                stored = try await manager.storedIdentity()
                hadNone = stored == nil
            } catch {
                // One that cannot be read is deleted all the same.
            }
            let interaction = context.interaction
            if revoke {
                try await manager.revokeStoredCertificate(RevocationReason(rawValue: reason ?? 0), interaction)
                context.remark("the certificate is revoked.")
            }
            if force { try await manager.closeAccounts(interaction) }
            do throws(ProviderError) { try await manager.deleteStoredCertificates(known: stored) } catch {
                // The first is thrown; the others are shown as well.
                manager.decisions.compactMap(\.error).dropFirst().forEach(context.report)
                throw error
            }
            await Self.remark(on: before, leftBy: providers, context)
            if hadNone { context.remark("no identity was stored, so that none was deleted.") }
            if let export = try? context.filesExport(configuration), !export.chain.isEmpty {
                context.remark(
                    "the files of \(export.current.withVisibleControls) stay, since programs may read them; remove them by hand."
                )
            }
            if options.json {
                try context.show(DeletionDocument(providers: providers.map(\.id.rawValue))) { "" }
            }
            return .done
        }
    }

    /// The stored identities whose keys are not in files.
    private static func storedOutsideFiles(_ providers: [any CertificateProvider]) async -> [ListedIdentity] {
        var identities: [ListedIdentity] = []
        for provider in providers { identities += await provider.listing?.listIdentities().identities ?? [] }
        return identities.filter { $0.isStored && $0.keyLocation != .file }
    }

    /// Says which private keys are there after the deletion: the source of an identity stays as it is.
    private static func remark(
        on deleted: [ListedIdentity], leftBy providers: [any CertificateProvider], _ context: CommandContext
    ) async {
        for provider in providers {
            let deleted = deleted.filter { $0.provider == provider.id }
            guard !deleted.isEmpty, let list = await provider.listing?.listIdentities() else { continue }
            for identity in deleted {
                let subject = identity.certificateChain.first?.subject ?? "\(provider.id)"
                let isThere = list.identities.contains {
                    $0.certificateChain.first == identity.certificateChain.first
                        && $0.keyLocation == identity.keyLocation
                }
                if isThere {
                    context.remark(
                        "the private key of '\(subject)' stays"
                            + (identity.keyURI.map { ", \($0.withVisibleControls)" } ?? "")
                            + ": the provider '\(provider.id)' did not make it. See: certprov help delete")
                } else if let failure = list.failures.first, identity.keyURI != nil {
                    context.remark("it is not known whether the private key of '\(subject)' stays: \(failure.message)")
                }
            }
        }
    }

    /// The objects that are destroyed in addition to the stored identity, for the confirmation.
    private static func announcement(_ manager: LogonManager) async throws(ProviderError) -> String {
        let objects = try await manager.announcedDeletions()
        return objects.isEmpty ? "" : " This permanently destroys: \(objects.joined(separator: "; "))."
    }
}

/// The result of `delete`.
private struct DeletionDocument: CommandDocument {
    static let kind = "Deletion"

    /// The providers that no longer have a stored identity.
    let providers: [String]
}
