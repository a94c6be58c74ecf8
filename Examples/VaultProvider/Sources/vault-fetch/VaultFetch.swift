import ArgumentParser
import CertprovKit
import FoundationEssentials
import Logging
import VaultProvider

/// Fetches the identity that a property file describes. The file may name every built-in provider, and `vault`.
@main
struct VaultFetch: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "vault-fetch",
        abstract: "Fetch an identity, and print its subject, its issuer, the place of its key and its chain.")

    @Option(help: "The property file.")
    var config: String

    @Flag(help: "Get a new identity, even if one is stored.")
    var renew = false

    @Flag(help: "Delete the stored identity and its key.")
    var delete = false

    func run() async throws {
        let logon = try CertprovLogon(
            configuredBy: config, adding: [VaultProvider.descriptor],
            logger: Logger(label: "vault-fetch") { StreamLogHandler.standardError(label: $0) })
        let manager = logon.manager
        do {
            try await delete ? deleteIdentity(of: manager) : fetch(from: manager)
            await manager.shutdown()
        } catch {
            await manager.shutdown()
            throw error
        }
    }

    private func fetch(from manager: LogonManager) async throws {
        let interaction = NoUserInteraction()
        let identity = try await renew ? manager.obtainIdentity(interaction) : manager.identity(interaction)
        print("subject  \(identity.certificate.subject)")
        print("issuer   \(identity.certificate.issuer)")
        print("expires  \(identity.certificate.notValidAfter.formatted(.iso8601))")
        print("key      \(identity.key.uri ?? identity.key.location.rawValue)")
        print(identity.certificateChain.map(\.pemRepresentation).joined(), terminator: "")
        // A service does this when the new identity is in use.
        if renew { try await manager.discardReplaced(by: identity, interaction) }
    }

    private func deleteIdentity(of manager: LogonManager) async throws {
        for sentence in try await manager.announcedDeletions() { print(sentence) }
        try await manager.deleteStoredCertificates()
    }
}
