import ArgumentParser
import CertificateProviding
import FoundationEssentials
import IdentityStore
import SigningRequests
import Terminal

struct RequestsList: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list",
        abstract: "Show the requests that wait for a person.",
        discussion: """
            One in the state waiting takes the answer of certprov requests approve or decline. One that is askedElsewhere is asked \
            about at a terminal or by pinentry, where its time begins when the question is shown.
            """)

    @OptionGroup var options: GlobalOptions

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let waiting = try context.pendingRequests().list()
            try context.show(WaitingRequestListDocument(items: waiting.map { WaitingRequestItem($0) })) {
                guard !waiting.isEmpty else { return "" }
                var table = TextTable(header: ["ID", "STATE", "LEFT", "CLIENT", "OPERATION", "BYTES"])
                for request in waiting {
                    let question = request.question
                    let left = request.deadline.map { "\(max(0, Int($0.timeIntervalSinceNow.rounded(.up)))) s" }
                    table.append([
                        question.id, request.state.rawValue, left ?? "-", shown(question.clientName),
                        question.operation.rawValue, "\(question.size)",
                    ])
                }
                return table.text
            }
            return .done
        }
    }
}

/// The result of `requests list`.
private struct WaitingRequestListDocument: CommandDocument {
    static let kind = "WaitingRequestList"

    let items: [WaitingRequestItem]
}

struct RequestsShow: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "show",
        abstract: "Show a request that waits, as its person is asked about it.",
        discussion: """
            Names the files with the document, read-only, and with the logo. They are the bytes that would be signed, and go with the \
            request.
            """)

    @OptionGroup var options: GlobalOptions
    @OptionGroup var request: RequestIDArgument

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let waiting = try context.pendingRequests().waiting(request.id)
            try context.show(WaitingRequestDocument(request: WaitingRequestItem(waiting))) {
                waiting.question.text + "\n"
            }
            return .done
        }
    }
}

/// The result of `requests show`.
private struct WaitingRequestDocument: CommandDocument {
    static let kind = "WaitingRequest"

    let request: WaitingRequestItem
}

/// The id of a request.
struct RequestIDArgument: ParsableArguments, Sendable {
    @Argument(help: ArgumentHelp("The id of the request, from certprov requests list.", valueName: "id"))
    var id: String
}

extension CommandContext {
    /// Returns the requests that wait for this user.
    func pendingRequests() throws(ProviderError) -> PendingRequests {
        PendingRequests(directory: try StateDirectory.requests())
    }
}

/// A text of a request, for a table.
func shown(_ text: String?) -> String {
    guard let text, !text.isEmpty else { return "-" }
    return DisplayText.claim(text)
}

/// A request that waits, as the subcommands show it.
struct WaitingRequestItem: Encodable {
    let id: String
    let state: String
    /// `null` for a request that is asked about elsewhere.
    let deadline: Nullable<String>
    let operation: String
    /// The number and the name in the registry.
    let client: Int
    let clientName: String
    /// The claims of the request: unverified.
    let serviceName: String
    let documentName: Nullable<String>
    let requestID: Nullable<String>
    /// As the document says.
    let pages: Nullable<Int>
    let size: Int
    /// SHA-256, hexadecimal.
    let digest: String
    let signer: String
    let sha256Fingerprint: String
    let signedBefore: Nullable<String>
    let peer: String
    let documentPath: Nullable<String>
    let logoPath: Nullable<String>

    init(_ waiting: PendingRequests.Waiting) {
        let question = waiting.question
        id = question.id
        state = waiting.state.rawValue
        deadline = Nullable(waiting.deadline?.rfc3339)
        operation = question.operation.rawValue
        client = question.client
        clientName = question.clientName
        serviceName = question.serviceName
        documentName = Nullable(question.documentName)
        requestID = Nullable(question.requestID)
        pages = Nullable(question.pages)
        size = question.size
        digest = question.digest
        signer = question.signer
        sha256Fingerprint = question.fingerprint
        signedBefore = Nullable(question.signedBefore?.rfc3339)
        peer = question.peer
        documentPath = Nullable(question.documentPath)
        logoPath = Nullable(question.logoPath)
    }
}
