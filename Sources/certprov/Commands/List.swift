import ArgumentParser
import CertificateProviding
import FoundationEssentials
import Logon
import PluginHost
import Terminal

struct List: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list",
        abstract: "Show the identities that the providers can see, stored or available, without prompting.")

    @OptionGroup var options: GlobalOptions

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let configuration = try context.configuration()
            let manager = try await context.manager(configuration)
            let host = configuration.pluginDirectory.map(context.plugins.searching) ?? context.plugins
            var all = IdentityList()
            for provider in try await manager.activeProviders() {
                guard let list = await provider.listing?.listIdentities() else { continue }
                if list.identities.isEmpty, list.failures.isEmpty, list.remarks.isEmpty, list.otherObjects.isEmpty {
                    all.remarks.append(Self.nothing(of: provider.id, in: host))
                }
                all.identities += list.identities
                all.failures += list.failures
                all.remarks += list.remarks
                all.otherObjects += list.otherObjects
            }
            all.remarks.forEach(context.remark)
            all.failures.forEach(context.report)
            let now = Date()
            all.identities.compactMap { $0.refusal(at: now)?.message }.forEach(context.remark)
            try context.show(IdentityListDocument(all, now: now)) {
                // The heading alone says that there is none.
                let hasTable = !all.identities.isEmpty || all.otherObjects.isEmpty && all.failures.isEmpty
                return (hasTable ? Self.table(all.identities, now: now) : "") + Self.others(all)
            }
            return all.failures.first.map { ExitStatus($0.code) } ?? .done
        }
    }

    /// Names the place where a provider without any identity has looked, and the next step.
    private static func nothing(of provider: ProviderID, in host: PluginHost) -> String {
        let plugin = host.installed.first { $0.id == provider }
        let place = plugin.map { ", and the plugin \($0.path.withVisibleControls) lists none" } ?? ""
        return "no identity of '\(provider)' is stored yet\(place). Run: certprov fetch"
    }

    /// A table whose heading is there without identities too.
    static func table(_ identities: [ListedIdentity], now: Date) -> String {
        // Last, since it is long. The URI of a key in this host's own store tells a reader nothing.
        func uri(_ identity: ListedIdentity) -> String? { identity.keyLocation == .store ? nil : identity.keyURI }
        let hasURIs = identities.contains { uri($0) != nil }
        var table = TextTable(
            header: ["PROVIDER", "ALIAS", "SUBJECT", "KEY", "IN", "EXPIRES", "STATUS"] + (hasURIs ? ["URI"] : []))
        for identity in identities {
            guard let leaf = identity.certificateChain.first else { continue }
            table.append([
                identity.provider.rawValue, identity.alias?.withVisibleControls ?? "-", leaf.displayName,
                leaf.publicKey.displayName, identity.keyLocation.rawValue, identity.expiry.rfc3339,
                identity.state(at: now), uri(identity) ?? "",
            ])
        }
        return table.text
    }

    /// The text below the table: objects that are not identities.
    private static func others(_ list: IdentityList) -> String {
        guard !list.otherObjects.isEmpty else { return "" }
        let lines = ["OTHER OBJECTS"] + list.otherObjects.map(\.withVisibleControls)
        return (list.identities.isEmpty ? "" : "\n") + lines.map { $0 + "\n" }.joined()
    }
}

/// The result of `list`.
struct IdentityListDocument: CommandDocument {
    static let kind = "IdentityList"

    let items: [IdentityDocument]
    /// `nil`, and not in the document, if no provider has any.
    let otherObjects: [String]?
    let errors: [Enveloped<ErrorDocument>]

    init(_ list: IdentityList, now: Date) {
        items = list.identities.compactMap { IdentityDocument($0, now: now) }
        otherObjects = list.otherObjects.isEmpty ? nil : list.otherObjects
        errors = list.failures.map { Enveloped(ErrorDocument($0)) }
    }
}
