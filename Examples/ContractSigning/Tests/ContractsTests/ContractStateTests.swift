import Contracts
import Testing

@Suite struct ContractStateTests {
    /// Every pair that is not here is refused.
    private static let table: [(ContractState, ContractEvent, ContractState, [ContractEffect])] = [
        (.incomplete, .filled(isComplete: false), .incomplete, [.send]),
        (.incomplete, .filled(isComplete: true), .inProgress, [.send]),
        (.incomplete, .replaced(isComplete: false), .incomplete, []),
        (.incomplete, .replaced(isComplete: true), .inProgress, []),
        (.incomplete, .abandoned, .abandoned, [.send, .callBackWithError]),
        (.inProgress, .signed(isLast: false), .inProgress, [.storeSignature, .send]),
        (.inProgress, .signed(isLast: true), .toValidate, [.storeSignature, .send, .callBack]),
        (.inProgress, .replaced(isComplete: false), .incomplete, []),
        (.inProgress, .replaced(isComplete: true), .inProgress, []),
        (.inProgress, .abandoned, .abandoned, [.send, .callBackWithError]),
        (.toValidate, .validated, .validated, []),
        (.validated, .archived, .archived, []),
    ]

    @Test("every event in every state has the outcome of the table, or is refused")
    func everyPair() throws {
        #expect(ContractState.allCases.count == 6 && Set(ContractEvent.allCases).count == 9)
        for state in ContractState.allCases {
            for event in ContractEvent.allCases {
                let outcome = state.after(event)
                let expected = Self.table.first { $0.0 == state && $0.1 == event }
                #expect(outcome?.state == expected?.2, "\(state), \(event)")
                #expect(outcome?.effects == expected?.3, "\(state), \(event)")
            }
        }
    }

    /// In several steps, since a host may have done them without a connection.
    @Test("a host brings a contract forward as far as its signature, and back nowhere")
    func whatAHostMaySend() {
        let reached: [ContractState: Set<ContractState>] = [
            .incomplete: [.incomplete, .inProgress, .toValidate, .abandoned],
            .inProgress: [.inProgress, .toValidate, .abandoned], .toValidate: [.toValidate],
            .validated: [.validated], .archived: [.archived], .abandoned: [.abandoned],
        ]
        for state in ContractState.allCases {
            let may = Set(ContractState.allCases.filter { state.mayBecome($0) })
            #expect(may == reached[state], "\(state)")
        }
    }
}
