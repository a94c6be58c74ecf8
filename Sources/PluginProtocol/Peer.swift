package import CertificateProviding
import FoundationEssentials

/// The other side of a connection: a plugin for its host, or the host for a plugin.
///
/// Requests that belong to one of this side's own are answered here, from its ``RequestContext``: questions to the user, and
/// keys to remember. So are those about this side's key stores. The others go to ``PeerServices``.
package final class Peer: MessageHandler {
    package let channel: MessageChannel
    private let services: any PeerServices
    private struct State {
        /// The requests of this side that are open.
        var open: [UInt64: Open] = [:]
        /// The tasks that work for requests of the other side, by the numbers of these.
        var tasks: [UInt64: Task<Void, Never>] = [:]
        /// Those that have ended before they were known.
        var ended: Set<UInt64> = []
    }
    private struct Open {
        let context: RequestContext
        /// How many questions it has caused, and those that the user has not answered.
        var questions = 0
        var prompts: Set<UInt64> = []
    }
    private let state = BlockingMutex(State())

    package init(_ channel: MessageChannel, _ services: any PeerServices) {
        (self.channel, self.services) = (channel, services)
    }

    /// Begins to read.
    package func start() { channel.start(self) }

    /// Sends a request of this side, and suspends until its end.
    ///
    /// - Parameters:
    ///   - context: Answers what the other side asks for it.
    ///   - isAwaited: Whether the other side waits for the request.
    package func request<Answer: Decodable & Sendable>(
        _ name: String, _ params: some Encodable, _ limit: MessageChannel.Limit, _ context: RequestContext? = nil,
        isAwaited: Bool = false, as type: Answer.Type = Answer.self
    ) async throws(ProviderError) -> Answer {
        var started: UInt64?
        defer { if let started { end(started) } }
        return try await channel.request(name, params, limit, isAwaited: isAwaited) { id in
            started = id
            begin(id, context)
        }
    }

    /// Sends a request of this side, and blocks until its end.
    package func call<Answer: Decodable & Sendable>(
        _ name: String, _ params: some Encodable, _ limit: MessageChannel.Limit, as type: Answer.Type = Answer.self
    ) throws(ProviderError) -> Answer {
        try channel.call(name, params, limit)
    }

    /// How long a cancelled request of the other side may work on before it is answered without it.
    private static let cancellationTime = Duration.seconds(1)

    private func begin(_ id: UInt64, _ context: RequestContext?) {
        guard let context else { return }
        state.withLock { $0.open[id] = Open(context: context) }
    }

    /// Also ends the questions that are still open: the user need not answer them.
    private func end(_ id: UInt64) {
        let questions = state.withLock { state in
            (state.open.removeValue(forKey: id)?.prompts ?? []).compactMap { state.tasks[$0] }
        }
        for question in questions { question.cancel() }
    }

    /// The greatest number of questions to the user for one request.
    private static let maximumQuestions = 32

    /// Returns the context of a request of this side that is not answered yet.
    package func context(of id: UInt64?) -> RequestContext? {
        id.flatMap { id in state.withLock { $0.open[id]?.context } }
    }

    // MARK: - Requests of the other side

    /// The request of the other side that the current task works for.
    @TaskLocal package static var current: UInt64?

    /// Answers a request with the result of `work`, in a task that ends when the request is cancelled.
    package func perform<Answer: Encodable & Sendable>(
        _ request: IncomingRequest,
        _ work: @escaping @Sendable () async throws(ProviderError) -> Answer
    ) {
        let task = Task {
            let result = await Self.$current.withValue(request.id) {
                () async -> Result<Answer, ProviderError> in
                do throws(ProviderError) { return .success(try await work()) } catch {
                    return .failure(error)
                }
            }
            self.state.withLock { state in
                if state.tasks.removeValue(forKey: request.number) == nil { state.ended.insert(request.number) }
            }
            request.answer(result)
        }
        state.withLock { state in
            if state.ended.remove(request.number) == nil { state.tasks[request.number] = task }
        }
    }

    /// Answers a request on a thread of `executor`.
    ///
    /// For work that a synchronous call of the contract may wait for: that blocks its caller, which may be one of the few
    /// threads on which tasks run.
    package func perform<Answer: Encodable & Sendable>(
        _ request: IncomingRequest, on executor: BlockingExecutor,
        _ work: @escaping @Sendable () throws(ProviderError) -> Answer
    ) {
        executor.submit {
            Self.$current.withValue(request.id) {
                request.answer(Result { () throws(ProviderError) in try work() })
            }
        }
    }

    package func receive(_ request: IncomingRequest) {
        switch request.name {
        case "prompt":
            answer(request) { (prompt: Prompt) in
                let (context, isTooMany) = state.withLock { state in
                    state.open[prompt.for]?.questions += 1
                    state.open[prompt.for]?.prompts.insert(request.number)
                    let open = state.open[prompt.for]
                    return (open?.context, (open?.questions ?? 0) > Self.maximumQuestions)
                }
                guard let context else { return request.fail(Self.unknownRequest) }
                guard !isTooMany else {
                    return channel.end(
                        channel.violation("It asks more than \(Self.maximumQuestions) questions for one request."))
                }
                channel.note(prompt.for, questions: 1)
                perform(request) { () async throws(ProviderError) in
                    defer {
                        self.channel.note(prompt.for, questions: -1)
                        _ = self.state.withLock { $0.open[prompt.for]?.prompts.remove(request.number) }
                    }
                    return try await context.interaction.answer(prompt, of: self.channel.peer)
                }
                // The request may have ended before its question was known.
                let late = state.withLock { $0.open[prompt.for] == nil ? $0.tasks[request.number] : nil }
                late?.cancel()
            }
        case "remember":
            answer(request) { (remember: Remember) in
                guard let context = context(of: remember.for), let action = context.remember else {
                    return request.fail(Self.unknownRequest)
                }
                perform(request) { () async throws(ProviderError) in
                    try await action(remember.key)
                    return Nothing()
                }
            }
        default: services.receive(request, from: self)
        }
    }

    /// Reads the fields of a request, and answers it with an error where they cannot be read.
    package func answer<Params: Decodable>(_ request: IncomingRequest, _ body: (Params) -> Void) {
        let params: Params
        do throws(ProviderError) { params = try request.message.params() } catch {
            return request.fail(error)
        }
        body(params)
    }

    private static let unknownRequest = ProviderError(
        .protocolError, "The field 'for' does not name a request that waits and may ask.")

    package func receive(notice name: String, _ message: Message) {
        do throws(ProviderError) {
            switch name {
            case "cancel":
                let id = try message.params(as: MessageChannel.Cancel.self).request
                // Work that cannot be interrupted goes on; its answer is not wanted.
                guard let number = channel.endCancelled(id, after: Self.cancellationTime) else { return }
                state.withLock { $0.tasks[number] }?.cancel()
            case "progress":
                let progress: Progress = try message.params()
                channel.note(progress.for)
                let text = "\(channel.peer): \(progress.text.withVisibleControls.prefix(1024))"
                guard let interaction = context(of: progress.for)?.interaction else { return }
                if let remaining = progress.remaining, remaining >= 0, remaining < 1e9 {
                    interaction.report(text, remaining: .seconds(remaining))
                } else {
                    interaction.report(text)
                }
            default: try services.receive(notice: name, message, from: self)
            }
        } catch {
            channel.end(channel.violation(error.message))
        }
    }

    package func read(_ bytes: ArraySlice<UInt8>, from descriptor: Int32) { services.read(bytes, from: descriptor) }

    package func cancellationWasIgnored(_ request: String) { services.cancellationWasIgnored(request) }

    package func explain(_ error: ProviderError) -> ProviderError { services.explain(error) }

    package func ended(_ error: ProviderError) {
        let tasks = state.withLock { state in
            defer { state.tasks = [:] }
            return state.tasks.values
        }
        for task in tasks { task.cancel() }
        services.ended(error)
    }
}

/// Serves the other side. Called on the channel's thread, which must not be blocked.
package protocol PeerServices: AnyObject, Sendable {
    func receive(_ request: IncomingRequest, from peer: Peer)
    /// - Throws: `protocolError` for a malformed notice. Unknown ones are ignored.
    func receive(notice name: String, _ message: Message, from peer: Peer) throws(ProviderError)
    func read(_ bytes: ArraySlice<UInt8>, from descriptor: Int32)
    func cancellationWasIgnored(_ request: String)
    func explain(_ error: ProviderError) -> ProviderError
    func ended(_ error: ProviderError)
}

extension PeerServices {
    package func read(_ bytes: ArraySlice<UInt8>, from descriptor: Int32) {}
    package func cancellationWasIgnored(_ request: String) {}
    package func explain(_ error: ProviderError) -> ProviderError { error }
}

/// The context of a request of this side, for the questions of the other one.
package struct RequestContext: Sendable {
    package let interaction: any UserInteraction
    /// Of a request that makes a key.
    package let remember: (@Sendable (WireKey) async throws(ProviderError) -> Void)?

    package init(
        _ interaction: any UserInteraction,
        remember: (@Sendable (WireKey) async throws(ProviderError) -> Void)? = nil
    ) {
        (self.interaction, self.remember) = (interaction, remember)
    }
}

extension UserInteraction {
    /// Asks the user what the other side wants to know, and whose question it is.
    ///
    /// - Parameter peer: The other side, such as `The plugin 'vault'`: a person must not take its question for one of the host.
    fileprivate func answer(
        _ prompt: Prompt, of peer: String
    ) async throws(ProviderError) -> PromptAnswer {
        let text = "\(peer) asks: \(prompt.text.withVisibleControls.prefix(1024))"
        switch prompt.kind {
        case "secret": return PromptAnswer(secret: Secret(try await requestSecret(text)))
        case "confirm": return PromptAnswer(confirmed: try await confirm(text))
        case "text": return PromptAnswer(text: try await requestText(text))
        case "choice":
            let choices = (prompt.choices ?? []).map { String($0.withVisibleControls.prefix(256)) }
            guard (1...64).contains(choices.count) else {
                throw ProviderError(.protocolError, "The field 'choices' of a question has 1 to 64 texts.")
            }
            return PromptAnswer(choice: try await choose(text, among: choices))
        default:
            throw ProviderError(
                .unsupportedRequest, "Questions of the kind '\(prompt.kind.withVisibleControls)' cannot be asked.")
        }
    }
}
