package import CertificateProviding
package import FoundationEssentials
import Crypto
package import Logging
package import Signing

/// The identity that answers requests.
package protocol RequestSigner: Sendable {
    /// Returns the certificate that would sign, without a question wherever that is possible.
    func certificate() async throws(ProviderError) -> X509Certificate

    /// Returns the identity, which may ask for a PIN.
    func identity() async throws(ProviderError) -> Identity
}

/// A reply, and what the signer knows beside it.
package struct RequestReply: Sendable {
    /// The reply.
    package let location: RequestURL
    /// The same as text.
    package var url: String { location.text }
    /// `nil` for a signature.
    package let word: RequestWord?
    /// Why the request was refused, for the log of this host.
    package let reason: String?
    /// Whether the URL handler may open the reply.
    package let isRegistered: Bool
}

/// Answers requests: examines them one after the other, has them approved, signs, and writes the journal. There is one reply to
/// each.
package final class RequestDesk: Sendable {
    fileprivate let registry: RequestRegistry
    fileprivate let signer: any RequestSigner
    fileprivate let timeStamps: TimeStampServer?
    fileprivate let prompt: any ApprovalPrompt
    fileprivate let journal: RequestJournal
    fileprivate let pending: PendingRequests
    private let logger: Logger
    fileprivate let now: @Sendable () -> Date
    fileprivate let executor: BlockingExecutor
    /// One request at a time is in memory.
    fileprivate let examination = Turn()
    /// One key at a time is used: a PIN is asked for once.
    fileprivate let key = Turn()

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

    fileprivate func blocking<T: Sendable>(_ body: @escaping @Sendable () -> T) async -> T {
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
        let course = RequestCourse(self, RequestSteps(registry, isHandler: isHandler), peer, whenExamined)
        let reply = await course.run(bytes)
        logger.notice(
            "answered a request",
            metadata: [
                "client": "\(course.client.map(String.init) ?? "-")", "outcome": "\(reply.word?.rawValue ?? "signed")",
                "reason": "\(reply.reason ?? "-")",
            ])
        return reply
    }
}

/// The course of one request: acts on its state.
private final class RequestCourse {
    private let desk: RequestDesk
    private let steps: RequestSteps
    private let peer: String
    private var request: AuthenticRequest?
    private var question: SigningQuestion?
    private var leaf: Result<X509Certificate, ProviderError>?
    private var waiting: PendingRequest?
    private var line: RequestJournal.OpenEntry?
    private var items: [RequestURL.Item] = []
    private var reason: String?
    private var isExamining = false
    private let whenExamined: @Sendable () -> Void

    init(_ desk: RequestDesk, _ steps: RequestSteps, _ peer: String, _ whenExamined: @escaping @Sendable () -> Void) {
        (self.desk, self.steps, self.peer, self.whenExamined) = (desk, steps, peer, whenExamined)
    }

    var client: Int? { question?.client }

    func run(_ bytes: consuming [UInt8]) async -> RequestReply {
        await desk.examination.take()
        isExamining = true
        defer { endExamination() }
        let (steps, url) = (steps, bytes)
        let (address, result) = await desk.blocking { steps.authenticate(url) }
        switch result {
        case .failure(let refusal):
            reason = refusal.reason
            return reply(to: address, .refused(refusal.word))
        case .success(let request):
            self.request = request
            return reply(to: address, await outcome(of: request.operation, address))
        }
    }

    private func reply(to address: ReplyAddress, _ outcome: RequestState.Outcome) -> RequestReply {
        var url = RequestURL(scheme: address.scheme, host: address.host, items: [])
        var word: RequestWord?
        switch outcome {
        case .signed: url.items = [.init("status", "success")] + items
        case .refused(let refusal):
            url.items = [.init("status", "error"), .init("message", refusal.rawValue)]
            word = refusal
        }
        return RequestReply(location: url, word: word, reason: reason, isRegistered: address.isRegistered)
    }

    private func endExamination() {
        guard isExamining else { return }
        isExamining = false
        desk.examination.give()
        whenExamined()
    }

    private func outcome(of operation: SigningOperation, _ address: ReplyAddress) async -> RequestState.Outcome {
        var state = RequestState.findingSigner
        if let word = await refusal(address) { state = .refusing(word, approver: nil) }
        while true {
            if case .replying(let outcome) = state { return outcome }
            let event = await perform(state, operation, address)
            state = state.next(after: event, of: operation, approver: desk.prompt.name)
        }
    }

    /// The steps 12 to 14.
    private func refusal(_ address: ReplyAddress) async -> RequestWord? {
        guard let request else { return .internalError }
        do throws(ProviderError) { leaf = .success(try await desk.signer.certificate()) } catch {
            leaf = .failure(error)
        }
        let (journal, steps, leaf) = (desk.journal, steps, try? leaf?.get())
        let (digest, client, now) = (request.digest, Int(request.client.number), desk.now())
        let isUnattended = request.isUnattended
        do throws(ProviderError) {
            let (before, examined) = try await desk.executor.run { () throws(ProviderError) in
                let wasSigned =
                    isUnattended ? try journal.wasSigned(digest, client: client, within: RequestJournal.memory) : false
                let examined = Result { () throws(RequestRefusal) in
                    try steps.examine(request, to: address, wasSigned: wasSigned, signer: leaf)
                }
                // For the person.
                if isUnattended { return (Date?.none, examined) }
                if case .failure = examined { return (nil, examined) }
                return (try journal.lastSigned(digest), examined)
            }
            var question = SigningQuestion(
                id: "", operation: request.operation, client: client, clientName: request.client.name,
                serviceName: request.serviceName, documentName: request.documentName, requestID: request.requestID,
                size: request.data.count, digest: digest, signer: leaf?.subject ?? "",
                fingerprint: leaf.map { Array(SHA256.hash(data: $0.derRepresentation)).hexEncoded } ?? "",
                signedBefore: before,
                peer: peer, deadline: now.addingTimeInterval(desk.registry.approvalTimeout / .seconds(1)))
            question.signerName = leaf.map { RequestSteps.name(of: $0) } ?? ""
            question.pages = try? examined.get()
            self.question = question
            if case .failure(let refusal) = examined {
                reason = refusal.reason
                return refusal.word
            }
            return nil
        } catch {
            reason = error.message
            return .internalError
        }
    }

    // MARK: - 15 to 20

    private func perform(
        _ state: RequestState, _ operation: SigningOperation, _ address: ReplyAddress
    ) async -> RequestEvent {
        switch state {
        case .findingSigner: return findSigner(operation)
        case .admitting: return await admit()
        case .asking: return await ask()
        case .reserving(let approver): return await reserve(approver)
        case .signing: return await sign(operation, address)
        case .recording(let outcome): return await record(outcome)
        case .refusing(let word, let approver): return await refuse(word, approver)
        case .replying: return .done
        }
    }

    private func failed(_ error: ProviderError, _ event: RequestEvent = .failed) -> RequestEvent {
        reason = error.message
        return event
    }

    private func findSigner(_ operation: SigningOperation) -> RequestEvent {
        do throws(ProviderError) {
            guard let leaf = try leaf?.get() else { return .failed }
            try operation.requireUsable(leaf, at: desk.now())
            return .done
        } catch { return failed(error, .signerFailed) }
    }

    private func admit() async -> RequestEvent {
        guard let request, let question else { return .failed }
        // It stays the one that is examined, until its reply.
        if request.isUnattended { return .doneUnattended }
        let (pending, isQueued) = (desk.pending, desk.prompt.name == QueuePrompt.name)
        let admitted = await desk.blocking {
            Result { () throws(PendingRequests.Refusal) in
                try pending.admit(
                    question, data: request.data, logo: (request.logo.kind.rawValue, request.logo.bytes),
                    isQueued: isQueued)
            }
        }
        switch admitted {
        case .success(let place):
            waiting = place
            self.question = place.question
            // The folder has the data.
            self.request = nil
            endExamination()
            return .done
        case .failure(.tooMany(let text)):
            reason = text
            return .tooMany
        case .failure(.notStored(let error)): return failed(error)
        }
    }

    private func ask() async -> RequestEvent {
        guard let question else { return .failed }
        do throws(ProviderError) {
            switch try await desk.prompt.answer(to: question, within: desk.registry.approvalTimeout) {
            case .approved: return .done
            case .declined: return .declined
            case .timedOut:
                reason = "there was no answer in time"
                return .notAnswered
            }
        } catch { return failed(error, .notAnswered) }
    }

    private func reserve(_ approver: String) async -> RequestEvent {
        guard let entry = entry(.interrupted, approver) else { return .failed }
        let journal = desk.journal
        // Nil for a request that a person has approved.
        let limit: Int? = approver == JournalEntry.unattended ? request?.client.unattendedPerHour ?? 0 : nil
        do throws(ProviderError) {
            let reservation = try await desk.executor.run { () throws(ProviderError) in
                guard let limit else { return RequestJournal.Reservation.begun(try journal.begin(entry)) }
                return try journal.beginUnattended(entry, perHour: limit)
            }
            switch reservation {
            case .begun(let line):
                self.line = line
                return .done
            case .repeated:
                reason = RequestSteps.repetition
                return .repeated
            case .tooMany(let count):
                reason = "\(count) requests of the client were approved without a person in the last hour"
                return .tooMany
            }
        } catch { return failed(error) }
    }

    private func refuse(_ word: RequestWord, _ approver: String?) async -> RequestEvent {
        guard let entry = entry(.init(word), approver) else { return .failed }
        let journal = desk.journal
        do throws(ProviderError) {
            try await desk.executor.run { () throws(ProviderError) in try journal.append(entry) }
            return .done
        } catch { return failed(error) }
    }

    private func entry(_ outcome: JournalEntry.Outcome, _ approver: String?) -> JournalEntry? {
        question.map { question in
            JournalEntry(
                time: desk.now(), client: question.client, requestID: question.requestID, operation: question.operation,
                digest: question.digest, outcome: outcome, approver: approver,
                fingerprint: question.fingerprint.isEmpty ? nil : question.fingerprint, peer: peer)
        }
    }

    private func sign(_ operation: SigningOperation, _ address: ReplyAddress) async -> RequestEvent {
        await desk.key.take()
        defer { desk.key.give() }
        do throws(ProviderError) {
            let data = if let request { request.data } else { try waiting?.data() ?? [] }
            let identity = try await desk.signer.identity()
            guard let leaf = try leaf?.get(), identity.certificate.derRepresentation == leaf.derRepresentation else {
                throw ProviderError(
                    .keyMismatch, "The identity has changed since the request came; send the request again.")
            }
            switch operation {
            case .signChallenge:
                let signer = try Signer(identity, scheme: .ecdsaP256SHA256, now: desk.now)
                let signature = try await signer.rawSignature(of: SigningContent(data))
                items = [.init("signature", signature.base64), .init("certificate", leaf.derRepresentation.base64)]
            case .signPDF:
                let signer = try Signer(identity, timeStamps: desk.timeStamps, now: desk.now)
                items = [.init("document", try await signer.signedPDF(of: data).base64)]
            }
            guard steps.fits(items, address) else {
                throw ProviderError(.internal, "The reply does not fit into a URL.")
            }
            return .done
        } catch {
            return failed(error, error.reason == .timeStamp ? .timeStampFailed : .signerFailed)
        }
    }

    private func record(_ outcome: RequestState.Outcome) async -> RequestEvent {
        guard let line else { return .failed }
        do throws(ProviderError) {
            try await desk.executor.run { () throws(ProviderError) in
                switch outcome {
                case .signed: try line.finish(outcome: .signed)
                case .refused(let word): try line.finish(outcome: .init(word))
                }
            }
            return .done
        } catch { return failed(error) }
    }
}
