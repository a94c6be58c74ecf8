import CertificateProviding
import Crypto
import FoundationEssentials
import Signing

/// The run of one request through its states.
final class RequestRun {
    private let handler: RequestHandler
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

    init(
        _ handler: RequestHandler, _ steps: RequestSteps, _ peer: String, _ whenExamined: @escaping @Sendable () -> Void
    ) {
        (self.handler, self.steps, self.peer, self.whenExamined) = (handler, steps, peer, whenExamined)
    }

    var client: Int? { question?.client }

    func run(_ bytes: consuming [UInt8]) async -> RequestReply {
        await handler.examination.acquire()
        isExamining = true
        defer { endExamination() }
        let (steps, url) = (steps, bytes)
        let (address, result) = await handler.blocking { steps.authenticate(url) }
        switch result {
        case .failure(let refusal):
            reason = refusal.reason
            return reply(to: address, .refused(refusal.code))
        case .success(let request):
            self.request = request
            return reply(to: address, await outcome(of: request.operation, address))
        }
    }

    private func reply(to address: ReplyAddress, _ outcome: RequestState.Outcome) -> RequestReply {
        var url = RequestURL(scheme: address.scheme, host: address.host, items: [])
        var code: ResponseCode?
        switch outcome {
        case .signed: url.items = [.init("status", "success")] + items
        case .refused(let refusal):
            url.items = [.init("status", "error"), .init("message", refusal.rawValue)]
            code = refusal
        }
        return RequestReply(location: url, code: code, reason: reason, isRegistered: address.isRegistered)
    }

    private func endExamination() {
        guard isExamining else { return }
        isExamining = false
        handler.examination.release()
        whenExamined()
    }

    private func outcome(of operation: SigningOperation, _ address: ReplyAddress) async -> RequestState.Outcome {
        var state = RequestState.findingSigner
        if let code = await refusal(address) { state = .refusing(code, approver: nil) }
        while true {
            if case .replying(let outcome) = state { return outcome }
            let event = await perform(state, operation, address)
            state = state.next(after: event, of: operation, approver: handler.prompt.name)
        }
    }

    /// The steps 12 to 14.
    private func refusal(_ address: ReplyAddress) async -> ResponseCode? {
        guard let request else { return .internalError }
        do throws(ProviderError) { leaf = .success(try await handler.signer.certificate()) } catch {
            leaf = .failure(error)
        }
        let (journal, steps, leaf) = (handler.journal, steps, try? leaf?.get())
        let (digest, client, now) = (request.digest, Int(request.client.number), handler.now())
        let isUnattended = request.isUnattended
        do throws(ProviderError) {
            let (before, examined) = try await handler.executor.run { () throws(ProviderError) in
                let wasSigned =
                    isUnattended ? try journal.wasSigned(digest, client: client, within: RequestJournal.memory) : false
                let examined = Result { () throws(RequestRefusal) in
                    try steps.examine(request, to: address, wasSigned: wasSigned, signer: leaf)
                }
                // The time of an earlier signature is for the person.
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
                peer: peer, deadline: now.addingTimeInterval(handler.registry.approvalTimeout / .seconds(1)))
            question.signerName = leaf.map { RequestSteps.name(of: $0) } ?? ""
            question.pages = try? examined.get()
            self.question = question
            if case .failure(let refusal) = examined {
                reason = refusal.reason
                return refusal.code
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
    ) async -> RequestState.Event {
        switch state {
        case .findingSigner: return findSigner(operation)
        case .admitting: return await admit()
        case .asking: return await ask()
        case .reserving(let approver): return await reserve(approver)
        case .signing: return await sign(operation, address)
        case .recording(let outcome): return await record(outcome)
        case .refusing(let code, let approver): return await refuse(code, approver)
        case .replying: return .done
        }
    }

    private func failed(_ error: ProviderError, _ event: RequestState.Event = .failed) -> RequestState.Event {
        reason = error.message
        return event
    }

    private func findSigner(_ operation: SigningOperation) -> RequestState.Event {
        do throws(ProviderError) {
            guard let leaf = try leaf?.get() else { return .failed }
            try operation.requireUsable(leaf, at: handler.now())
            return .done
        } catch { return failed(error, .signerFailed) }
    }

    private func admit() async -> RequestState.Event {
        guard let request, let question else { return .failed }
        // It does not wait, and stays in memory until its reply.
        if request.isUnattended { return .doneUnattended }
        let (pending, isQueued) = (handler.pending, handler.prompt.name == QueuePrompt.name)
        let admitted = await handler.blocking {
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

    private func ask() async -> RequestState.Event {
        guard let question else { return .failed }
        do throws(ProviderError) {
            switch try await handler.prompt.answer(to: question, within: handler.registry.approvalTimeout) {
            case .approved: return .done
            case .declined: return .declined
            case .timedOut:
                reason = "there was no answer in time"
                return .notAnswered
            }
        } catch { return failed(error, .notAnswered) }
    }

    private func reserve(_ approver: String) async -> RequestState.Event {
        guard let entry = entry(.interrupted, approver) else { return .failed }
        let journal = handler.journal
        // A request that a person has approved counts for no limit.
        let limit: Int? = approver == JournalEntry.unattended ? request?.client.unattendedPerHour ?? 0 : nil
        do throws(ProviderError) {
            let reservation = try await handler.executor.run { () throws(ProviderError) in
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

    private func refuse(_ code: ResponseCode, _ approver: String?) async -> RequestState.Event {
        guard let entry = entry(.init(code), approver) else { return .failed }
        let journal = handler.journal
        do throws(ProviderError) {
            try await handler.executor.run { () throws(ProviderError) in try journal.append(entry) }
            return .done
        } catch { return failed(error) }
    }

    private func entry(_ outcome: JournalEntry.Outcome, _ approver: String?) -> JournalEntry? {
        question.map { question in
            JournalEntry(
                time: handler.now(), client: question.client, requestID: question.requestID,
                operation: question.operation,
                digest: question.digest, outcome: outcome, approver: approver,
                fingerprint: question.fingerprint.isEmpty ? nil : question.fingerprint, peer: peer)
        }
    }

    private func sign(_ operation: SigningOperation, _ address: ReplyAddress) async -> RequestState.Event {
        await handler.key.acquire()
        defer { handler.key.release() }
        do throws(ProviderError) {
            let data = if let request { request.data } else { try waiting?.data() ?? [] }
            let identity = try await handler.signer.identity()
            guard let leaf = try leaf?.get(), identity.certificate.derRepresentation == leaf.derRepresentation else {
                throw ProviderError(
                    .keyMismatch, "The identity has changed since the request came; send the request again.")
            }
            switch operation {
            case .signChallenge:
                let signer = try Signer(identity, scheme: .ecdsaP256SHA256, now: handler.now)
                let signature = try await signer.rawSignature(of: SigningContent(data))
                items = [.init("signature", signature.base64), .init("certificate", leaf.derRepresentation.base64)]
            case .signPDF:
                let signer = try Signer(identity, timeStamps: handler.timeStamps, now: handler.now)
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

    private func record(_ outcome: RequestState.Outcome) async -> RequestState.Event {
        guard let line else { return .failed }
        do throws(ProviderError) {
            try await handler.executor.run { () throws(ProviderError) in
                switch outcome {
                case .signed: try line.finish(outcome: .signed)
                case .refused(let code): try line.finish(outcome: .init(code))
                }
            }
            return .done
        } catch { return failed(error) }
    }
}
