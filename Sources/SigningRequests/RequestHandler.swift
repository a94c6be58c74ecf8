package import CertificateProviding
package import FoundationEssentials
package import Logging
package import Signing

/// Answers requests: examines them one after the other, has them approved, signs, and writes the journal. There is one reply to
/// each.
package final class RequestHandler: Sendable {
    package let registry: RequestRegistry
    let signer: any RequestSigner
    let timeStamps: TimeStampServer?
    let prompt: any ApprovalPrompt
    let journal: RequestJournal
    let pending: PendingRequests
    private let logger: Logger
    let now: @Sendable () -> Date
    let executor: BlockingExecutor
    /// Held while a request is in memory: one at a time.
    let examination = AsyncLock()
    /// Held while the key is used: a PIN is asked for once.
    let key = AsyncLock()

    /// - Parameters:
    ///   - prompt: Asks the person, one question at a time.
    ///   - directory: Has the journal and the requests that wait.
    package init(
        _ registry: RequestRegistry, _ signer: any RequestSigner, timeStamps: TimeStampServer?,
        prompt: any ApprovalPrompt, directory: String, logger: Logger,
        now: @escaping @Sendable () -> Date = { Date() }, executor: BlockingExecutor = .threads(maximum: 4)
    ) {
        (self.registry, self.signer, self.timeStamps, self.prompt) = (registry, signer, timeStamps, prompt)
        (self.logger, self.now, self.executor) = (logger, now, executor)
        journal = RequestJournal(directory: directory, now: now)
        pending = PendingRequests(directory: directory)
    }

    /// The longest request that can be right, in bytes.
    package var maximumLength: Int { RequestSteps(registry, isHandler: false).maximumLength }

    func blocking<T: Sendable>(_ body: @escaping @Sendable () -> T) async -> T {
        await withCheckedContinuation { continuation in executor.submit { continuation.resume(returning: body()) } }
    }

    /// Answers a request.
    ///
    /// Suspends until a person has decided, for at most the configured time, and for as long as the key takes.
    ///
    /// - Parameters:
    ///   - bytes: The URL. Not held while the request waits.
    ///   - peer: Who sends it, as far as the host knows.
    ///   - isHandler: Whether the reply is opened as a URL.
    ///   - whenExamined: Called once, when the request is held in memory no more, or is about to be answered.
    package func reply(
        to bytes: consuming [UInt8], from peer: String, isHandler: Bool,
        whenExamined: @escaping @Sendable () -> Void = {}
    ) async -> RequestReply {
        let run = RequestRun(self, RequestSteps(registry, isHandler: isHandler), peer, whenExamined)
        let reply = await run.run(bytes)
        logger.notice(
            "answered a request",
            metadata: [
                "client": "\(run.client.map(String.init) ?? "-")", "outcome": "\(reply.code?.rawValue ?? "signed")",
                "reason": "\(reply.reason ?? "-")",
            ])
        return reply
    }
}
