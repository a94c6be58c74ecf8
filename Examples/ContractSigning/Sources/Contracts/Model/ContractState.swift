/// The states of a contract, after the vendor's.
public enum ContractState: String, CaseIterable, Codable, Sendable {
    /// Something is missing that has to be filled in.
    case incomplete
    /// Can be signed, and perhaps was by some of its signatories.
    case inProgress
    /// Signed by all, at hosts.
    case toValidate
    /// Accepted by the back office.
    case validated
    case archived
    case abandoned
}

/// What happens to a contract.
public enum ContractEvent: Equatable, Hashable, Sendable {
    /// A person at a host fills in values; then nothing is missing, or still something.
    case filled(isComplete: Bool)
    /// A signatory approves, as the last one, or others are to follow.
    case signed(isLast: Bool)
    /// A signatory declines, or a person at a host or the back office gives it up.
    case abandoned
    /// The back office puts in another file.
    case replaced(isComplete: Bool)
    /// The back office accepts the signature.
    case validated
    /// The back office is done with it.
    case archived

    /// Every event.
    public static let allCases: [ContractEvent] = [
        .filled(isComplete: false), .filled(isComplete: true), .signed(isLast: false), .signed(isLast: true),
        .abandoned,
        .replaced(isComplete: false), .replaced(isComplete: true), .validated, .archived,
    ]

    /// Whether a host may cause it, and not the back office alone.
    public var isOfHost: Bool {
        switch self {
        case .filled, .signed, .abandoned: true
        case .replaced, .validated, .archived: false
        }
    }
}

/// What follows from an event at the host where it happens.
public enum ContractEffect: Equatable, Hashable, Sendable {
    /// The signed PDF and its evidence are stored with the state.
    case storeSignature
    /// The change goes to the server.
    case send
    /// The calling program is told of the success.
    case callBack
    /// The calling program is told that there will be no signature.
    case callBackWithError
}

extension ContractState {
    /// Returns the state after an event, and what follows from it; `nil` if the event is refused in this state.
    public func after(_ event: ContractEvent) -> (state: ContractState, effects: [ContractEffect])? {
        switch (self, event) {
        case (.incomplete, .filled(let isComplete)): (isComplete ? .inProgress : .incomplete, [.send])
        case (.inProgress, .signed(isLast: false)): (.inProgress, [.storeSignature, .send])
        case (.inProgress, .signed(isLast: true)): (.toValidate, [.storeSignature, .send, .callBack])
        case (.incomplete, .abandoned), (.inProgress, .abandoned): (.abandoned, [.send, .callBackWithError])
        case (.incomplete, .replaced(let isComplete)), (.inProgress, .replaced(let isComplete)):
            (isComplete ? .inProgress : .incomplete, [])
        case (.toValidate, .validated): (.validated, [])
        case (.validated, .archived): (.archived, [])
        default: nil
        }
    }

    /// Whether a host may bring a contract from this state to another one, in one or several steps.
    public func mayBecome(_ other: ContractState) -> Bool {
        var reached: Set = [self]
        var next = [self]
        while let state = next.popLast() {
            for event in ContractEvent.allCases where event.isOfHost {
                if let state = state.after(event)?.state, reached.insert(state).inserted { next.append(state) }
            }
        }
        return reached.contains(other)
    }

    /// Whether all have signed in this state.
    public var isSigned: Bool { [.toValidate, .validated, .archived].contains(self) }
}
