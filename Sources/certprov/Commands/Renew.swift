import ArgumentParser
import CertificateProviding
import FoundationEssentials
import IdentityFiles
import Logon
import Terminal

struct Renew: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "renew",
        abstract: "Renew the stored identity if it is due. Meant to be run by a timer.",
        discussion: """
            The provider's parameter renew-at sets when a renewal is due: by default after two thirds of the \
            certificate's lifetime, less a part that spreads the load of many hosts. Only the provider of the stored \
            identity is asked; a file of its that has changed is read again, due or not. The stored identity stays until \
            the new one is available. The files of Files.directory are brought up to date, and programs are told. Exits with \
            0 also when nothing is due, with 75 while the new certificate is pending, and with 66 once the stored one has \
            expired and none replaces it. 'certprov fetch --force' renews at any time.
            """)

    @OptionGroup var options: GlobalOptions

    @OptionGroup var timer: RenewalTimer

    @Flag(help: "Show when the renewal is due, and do not contact the provider.")
    var dryRun = false

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let configuration = try context.configuration()
            let manager = try await context.manager(configuration)
            defer { context.log(manager.decisions) }
            let export = try context.filesExport(configuration)
            guard let stored = try await manager.storedIdentity() else {
                let file = configuration.path.map { " --config \($0.shellQuoted)" } ?? ""
                throw ProviderError(
                    .notFound, "No identity is stored, so none can be renewed; get one with: certprov fetch\(file)")
            }
            var now = Date()
            var identity = stored
            var result: RenewalDocument.Result =
                manager.renewalSchedule(for: stored).isDue(at: now) ? .due : .notDue
            var files: [String]?
            var notification = ReloadedPrograms(of: [])
            if !dryRun {
                let interaction = context.interaction
                identity = try await manager.renewIdentityIfDue(at: now, interaction)
                // Also what an earlier run could not do, or a service has renewed. Not after the discarding: without the new one,
                // other programs go on with what it replaces.
                files = try export?.write(identity, logger: context.logger) { context.remark($0) }
                if export == nil, let remark = identity.remarkOnIssuer(after: stored.certificateChain) {
                    context.remark(remark)
                }
                notification = ReloadedPrograms(of: [export].compactMap(\.self))
                // Also where a file has changed.
                if result == .due || !identity.isSame(as: stored, withChain: true) {
                    if notification.failure == nil {
                        await context.discardReplaced(by: identity, of: manager, interaction)
                    }
                    now = Date()  // a server may have taken its time
                    try identity.requireUnexpired(at: now)
                    result = manager.updates(for: identity) == nil ? .renewed : .replaced
                }
            }
            let status = identity.status(at: now)
            if status != .valid {
                context.remark("the certificate is \(status == .expired ? "expired" : "not yet valid").")
            } else if let obstacle = identity.obstacle(at: now) {
                context.remark("peers refuse the certificate: \(obstacle).")
            }
            let schedule = manager.renewalSchedule(for: identity)
            if let remark = timer.remark(on: schedule) { context.remark(remark) }
            let document = try RenewalDocument(result, identity, schedule, files, notification.reloaded, now: now)
            try context.show(document) {
                var table = TextTable(header: ["PROVIDER", "SUBJECT", "EXPIRES", "RENEWAL", "RULE", "RESULT"])
                table.append([
                    identity.provenance.provider.rawValue, identity.certificate.subject,
                    identity.expiry.rfc3339, document.renewAt, document.rule, result.words,
                ])
                return table.text + notification.text
            }
            if let failure = notification.failure { throw failure }
            return .done
        }
    }
}

/// The result of `renew`.
private struct RenewalDocument: CommandDocument {
    static let kind = "Renewal"

    enum Result: String, Encodable {
        case renewed, notDue
        /// Another tool has replaced the files of the provider, and the new pair was taken.
        case replaced
        /// Due, but not renewed: the result of a dry run.
        case due

        var words: String { self == .notDue ? "not due" : rawValue }
    }

    let result: Result
    /// The time at which the renewal of ``identity`` is due; in the past if it is due now.
    let renewAt: String
    /// The rule that has decided on it: `renew-at`, `margin`, or `issuer` for its renewal information.
    let rule: String
    let identity: IdentityDocument
    /// The files for other programs, as `fetch` shows them; `nil` without `Files.directory`.
    let files: [String: String]?
    /// The units, or the program, of `Files.reload` that were told of the files; `nil` if none was to be told.
    let reloaded: [String]?

    init(
        _ result: Result, _ identity: Identity, _ schedule: RenewalSchedule, _ files: [String]?, _ reloaded: [String]?,
        now: Date
    ) throws(ProviderError) {
        guard let document = IdentityDocument(ListedIdentity(identity, isStored: true), now: now) else {
            throw ProviderError(.internal, "The identity has no certificate.")
        }
        (self.result, self.reloaded) = (result, reloaded)
        self.renewAt = schedule.due.rfc3339
        self.rule = schedule.rule.rawValue
        self.files = files.map(FetchDocument.byName)
        self.identity = document
    }
}
