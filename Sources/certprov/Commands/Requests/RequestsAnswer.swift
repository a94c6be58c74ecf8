import ArgumentParser
import CertificateProviding
import FoundationEssentials
import SigningRequests
import Terminal

struct RequestsApprove: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "approve",
        abstract: "Approve a request that waits: the data is signed.",
        discussion: "Shows the request and asks first. Of several answers the first counts.")

    @OptionGroup var options: GlobalOptions
    @OptionGroup var request: RequestIDArgument

    @Flag(help: "Do not ask for confirmation.")
    var yes = false

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let requests = try context.pendingRequests()
            let waiting = try requests.waiting(request.id)
            try waiting.requireAnswerable()
            if !yes { try await Self.confirm(waiting.question, context) }
            try requests.decide(waiting.question, approve: true)
            return try context.show(answer: "approved", to: waiting.question)
        }
    }

    private static func confirm(
        _ question: SigningQuestion, _ context: CommandContext
    ) async throws(ProviderError) {
        let isPinentry = context.options.prompt == .pinentry
        guard isPinentry || Console.isStandardErrorTerminal else {
            throw ProviderError(
                .interactionRequired,
                "The request \(question.id) is not approved: approving needs a confirmation, and stderr is not a terminal; use --yes."
            )
        }
        let prompt: any ApprovalPrompt =
            isPinentry ? PinentryPrompt(context.pinentry) : TerminalPrompt(asking: "Approve this request?")
        let left = Duration.seconds(max(1, question.deadline.timeIntervalSinceNow))
        guard try await prompt.answer(to: question, within: left) == .approved else {
            throw ProviderError(
                .userCancelled,
                "The request \(question.id) is not approved, and waits on; decline it with: certprov requests decline \(question.id)"
            )
        }
    }
}

struct RequestsDecline: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "decline",
        abstract: "Decline a request that waits: its application gets the answer operation-canceled.",
        discussion: "Of several answers the first counts.")

    @OptionGroup var options: GlobalOptions
    @OptionGroup var request: RequestIDArgument

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let requests = try context.pendingRequests()
            let waiting = try requests.waiting(request.id)
            try requests.decide(waiting.question, approve: false)
            return try context.show(answer: "declined", to: waiting.question)
        }
    }
}

extension CommandContext {
    fileprivate func show(
        answer: String, to question: SigningQuestion
    ) throws(ProviderError) -> ExitStatus {
        try show(RequestAnswerDocument(id: question.id, answer: answer, digest: question.digest)) {
            "\(question.id): \(answer)\n"
        }
        return .done
    }
}

/// The result of `requests approve` and `requests decline`.
private struct RequestAnswerDocument: CommandDocument {
    static let kind = "RequestAnswer"

    let id: String
    /// `approved` or `declined`.
    let answer: String
    /// The SHA-256 of the data, hexadecimal.
    let digest: String
}
