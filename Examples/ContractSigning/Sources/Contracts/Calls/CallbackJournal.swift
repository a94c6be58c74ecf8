public import CertificateProviding
import FoundationEssentials

/// What became of a call, for the program that made it.
public enum CallOutcome: Equatable, Sendable {
    case success
    /// The sentence for people.
    case failure(String)
}

/// Where callbacks are written down.
public protocol CallbackRecording: Sendable {
    /// The callbacks that are written down, the oldest first.
    func pendingCallbacks() throws(ProviderError) -> [QueueState.PendingCallback]
    /// Changes what is written down, in one step that a power failure does not undo.
    func changePendingCallbacks(_ body: (inout [QueueState.PendingCallback]) -> Void) throws(ProviderError)
    /// Takes a lease that ends with this process at the latest; `nil` while another one has it.
    func leaseCallback(_ slot: Int) throws(ProviderError) -> RecordLease?
    func hasHappened(_ condition: QueueState.Condition) throws(ProviderError) -> Bool
}

/// Tells calling programs the outcome: each callback is opened once, and again only where a kill came between.
///
/// A callback is written down before it is opened, and crossed out after. What a process has left behind the next one opens: a lease
/// tells one that is being opened from one whose process has ended.
public struct CallbackJournal: Sendable {
    /// As many callbacks may be opened at the same time.
    static let slots = 16

    private let records: any CallbackRecording
    private let schemes: Set<String>
    private let opener: URLOpener

    /// - Parameter schemes: `Contracts.callback-schemes`: no other one is opened.
    public init(_ records: any CallbackRecording, schemes: Set<String>, opener: URLOpener) {
        (self.records, self.schemes, self.opener) = (records, schemes, opener)
    }

    /// A callback that is written down, and is to be opened. If that does not come about because the process ends, the next process
    /// opens it.
    public struct Noted: Sendable {
        fileprivate var entry: QueueState.PendingCallback?
        fileprivate var lease: RecordLease?
        /// The reason why it will not be opened.
        fileprivate var problem: String?

        /// No callback.
        public init() {}
        fileprivate init(problem: String) { self.problem = problem }
        fileprivate init(entry: QueueState.PendingCallback, lease: RecordLease) {
            (self.entry, self.lease) = (entry, lease)
        }
    }

    /// Writes down the callback of an outcome, if there is one.
    ///
    /// - Parameter condition: For a callback that is written down before the event: if this process ends, the next one opens it only
    ///   where the event has happened.
    public func note(
        _ outcome: CallOutcome, to urls: CallbackURLs, once condition: QueueState.Condition? = nil
    ) -> Noted {
        guard let callback = outcome == .success ? urls.success : urls.error else { return Noted() }
        guard schemes.contains(callback.scheme) else { return Noted(problem: Self.refusal(of: callback.scheme)) }
        let url =
            switch outcome {
            case .success: callback.success
            case .failure(let message): callback.failure(message)
            }
        do throws(ProviderError) {
            guard let (slot, lease) = try freeSlot() else {
                throw ProviderError(
                    .operationNotAllowed, "\(Self.slots) callbacks are being opened by other processes; try again.")
            }
            let entry = QueueState.PendingCallback(id: "\(slot)-\(UUID().uuidString)", url: url, condition: condition)
            try records.changePendingCallbacks { $0.append(entry) }
            return Noted(entry: entry, lease: lease)
        } catch {
            return Noted(problem: "The calling program is not told: \(error.message)")
        }
    }

    /// Crosses out a callback whose event has not happened. Where that fails, the next process does it.
    public func cancel(_ noted: Noted) {
        if let entry = noted.entry { try? crossOut(entry) }
    }

    /// Opens a callback that was written down.
    ///
    /// - Returns: The reason why it was not opened, for people; `nil` if it was, and without a callback.
    public func open(_ noted: Noted) async -> String? {
        guard let entry = noted.entry else { return noted.problem }
        defer { withExtendedLifetime(noted.lease) {} }
        do throws(ProviderError) {
            try await open(entry)
            return nil
        } catch {
            return "The calling program is not told: \(error.message)"
        }
    }

    /// Writes down the callback of an outcome, if there is one, and opens it.
    ///
    /// - Returns: As ``open(_:)``.
    public func tell(_ outcome: CallOutcome, to urls: CallbackURLs) async -> String? {
        await open(note(outcome, to: urls))
    }

    /// Opens the callbacks that processes have left behind.
    ///
    /// - Returns: The reasons why one was not opened, for people.
    public func resume() async -> [String] {
        var problems: [String] = []
        do throws(ProviderError) {
            // Without the queue there is nothing to do, and its error is told where the queue is used.
            guard let entries = try? records.pendingCallbacks() else { return [] }
            for entry in entries {
                guard let lease = try records.leaseCallback(entry.slot) else { continue }
                defer { withExtendedLifetime(lease) {} }
                // Its process may have crossed it out since.
                guard try records.pendingCallbacks().contains(entry) else { continue }
                if let condition = entry.condition, try !records.hasHappened(condition) {
                    try crossOut(entry)
                    continue
                }
                // The settings may have changed.
                let scheme = Callback(entry.url)?.scheme ?? ""
                guard schemes.contains(scheme) else {
                    problems.append(Self.refusal(of: scheme))
                    try crossOut(entry)
                    continue
                }
                do throws(ProviderError) { try await open(entry) } catch {
                    problems.append("The calling program is not told: \(error.message)")
                }
            }
        } catch {
            problems.append("The callbacks that are written down are not opened: \(error.message)")
        }
        return problems
    }

    private func open(_ entry: QueueState.PendingCallback) async throws(ProviderError) {
        let failure: ProviderError?
        do throws(ProviderError) {
            try await opener.open(entry.url)
            failure = nil
        } catch {
            failure = error
        }
        // A program that does not take it now is not asked again.
        try crossOut(entry)
        if let failure { throw failure }
    }

    private func crossOut(_ entry: QueueState.PendingCallback) throws(ProviderError) {
        try records.changePendingCallbacks { $0.removeAll { $0.id == entry.id } }
    }

    private func freeSlot() throws(ProviderError) -> (Int, RecordLease)? {
        for slot in 0..<Self.slots {
            if let lease = try records.leaseCallback(slot) { return (slot, lease) }
        }
        return nil
    }

    private static func refusal(of scheme: String) -> String {
        "The callback is not opened: its scheme \(DisplayText.visible(scheme)) is not in Contracts.callback-schemes."
    }
}

extension QueueState.PendingCallback {
    /// The lease that is held while it is opened: the number that its id begins with.
    fileprivate var slot: Int { Int(id.prefix { $0 != "-" }) ?? 0 }
}

extension ContractQueue: CallbackRecording {
    public func pendingCallbacks() throws(ProviderError) -> [QueueState.PendingCallback] {
        try state().pendingCallbacks
    }

    public func changePendingCallbacks(
        _ body: (inout [QueueState.PendingCallback]) -> Void
    ) throws(ProviderError) {
        try changeState { state throws(ProviderError) in body(&state.pendingCallbacks) }
    }

    public func leaseCallback(_ slot: Int) throws(ProviderError) -> RecordLease? {
        try storage.leaseRecord(named: "callback-\(slot)")
    }

    public func hasHappened(_ condition: QueueState.Condition) throws(ProviderError) -> Bool {
        try contract(condition.contract)?.state == condition.state
    }
}
