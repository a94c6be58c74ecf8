import ArgumentParser
import CertificateProviding
import IdentityStore
import SigningRequests
import Terminal

struct RequestsLog: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "log",
        abstract: "Show the journal: each request of a known client, and what became of it.",
        discussion: """
            The newest is the last. An outcome is signed, the code of the reply that refused the request, or interrupted: the process \
            ended while it signed, and no reply has left. Of a client's requests without a signature, 30 a minute have a line.
            """)

    @OptionGroup var options: GlobalOptions

    @Option(help: ArgumentHelp("Show at most so many requests, up to 10,000.", valueName: "number"))
    var last = 100

    func validate() throws {
        guard (1...10_000).contains(last) else { throw ValidationError("--last must be from 1 to 10000.") }
    }

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let directory = try StateDirectory.requests()
            let (entries, damaged) = try RequestJournal(directory: directory).entries(newest: last)
            if damaged > 0 {
                context.remark(
                    "\(damaged) lines of \(directory.withVisibleControls)/\(RequestJournal.name) and older files are damaged, and not shown."
                )
            }
            let omitted = entries.reduce(0) { $0 + $1.omitted }
            if omitted > 0 {
                context.remark(
                    "\(omitted) requests without a signature have no line: a client has 30 a minute. --json has their number."
                )
            }
            try context.show(RequestLogDocument(items: entries.map { RequestLogItem($0) })) {
                guard !entries.isEmpty else { return "" }
                var table = TextTable(header: [
                    "TIME", "OUTCOME", "OPERATION", "CLIENT", "APPROVER", "SHA-256", "PEER", "REQUEST-ID",
                ])
                for entry in entries {
                    table.append([
                        entry.time.rfc3339, shown(entry.outcome.rawValue), entry.operation.rawValue, "\(entry.client)",
                        shown(entry.approver), shown(entry.digest), shown(entry.peer), shown(entry.requestID),
                    ])
                }
                return table.text
            }
            return .done
        }
    }
}

/// The result of `requests log`.
private struct RequestLogDocument: CommandDocument {
    static let kind = "RequestLog"

    let items: [RequestLogItem]
}

/// A line of the journal.
private struct RequestLogItem: Encodable {
    let time: String
    let outcome: String
    let operation: String
    let client: Int
    let requestID: Nullable<String>
    let digest: String
    let approver: Nullable<String>
    let sha256Fingerprint: Nullable<String>
    let peer: String
    /// How many requests of the client before this one have no line.
    let omitted: Int

    init(_ entry: JournalEntry) {
        time = entry.time.rfc3339
        outcome = entry.outcome.rawValue
        operation = entry.operation.rawValue
        client = entry.client
        requestID = Nullable(entry.requestID)
        digest = entry.digest
        approver = Nullable(entry.approver)
        sha256Fingerprint = Nullable(entry.fingerprint)
        peer = entry.peer
        omitted = entry.omitted
    }
}
