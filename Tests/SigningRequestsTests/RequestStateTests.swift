import SigningRequests
import Testing

@Suite struct RequestStateTests {
    /// Every way from the start to the reply: the states, the last one first.
    private func ways(_ operation: SigningOperation) -> [[RequestState]] {
        var ways: [[RequestState]] = []
        var open: [[RequestState]] = [[.findingSigner]]
        while let way = open.popLast() {
            if case .replying = way[0] {
                ways.append(way)
                continue
            }
            #expect(way.count < 10, "the way does not end")
            guard way.count < 10 else { return ways }
            for event in RequestState.Event.allCases {
                open.append([way[0].next(after: event, of: operation, approver: "terminal")] + way)
            }
        }
        return ways
    }

    private func isReserving(_ state: RequestState) -> Bool { if case .reserving = state { true } else { false } }

    @Test(
        "On every way the journal has a line before the key is used, and says so before a signature leaves",
        arguments: SigningOperation.allCases)
    func everyWay(operation: SigningOperation) {
        let ways = ways(operation)
        #expect(ways.count > 100)
        for way in ways.map({ Array($0.reversed()) }) {
            if let signing = way.firstIndex(of: .signing) {
                #expect(isReserving(way[signing - 1]))
                let isUnattended = way[signing - 1] == .reserving(approver: JournalEntry.unattended)
                #expect(way[..<signing].contains(.asking) != isUnattended)
                #expect(way.filter { $0 == .signing }.count == 1)
            }
            if way.last == .replying(.signed) { #expect(way.dropLast().last == .recording(.signed)) }
        }
        #expect(ways.contains { $0[0] == .replying(.signed) })
    }

    @Test(
        "Each end has its code",
        arguments: [
            ([RequestState.Event.signerFailed, .done], SigningOperation.signPDF, ResponseCode.signDocumentError),
            ([.signerFailed, .done], .signChallenge, .signChallengeError),
            ([.done, .tooMany, .done], .signPDF, .approveRequestError),
            ([.done, .done, .declined, .done], .signPDF, .operationCanceled),
            ([.done, .done, .notAnswered, .done], .signPDF, .approveRequestError),
            ([.done, .doneUnattended, .tooMany, .done], .signPDF, .approveRequestError),
            ([.done, .doneUnattended, .repeated, .done], .signPDF, .validateRequestError),
            ([.done, .doneUnattended, .failed], .signPDF, .internalError),
            ([.done, .done, .done, .failed], .signPDF, .internalError),
            ([.done, .done, .done, .done, .signerFailed, .done], .signPDF, .signDocumentError),
            ([.done, .done, .done, .done, .timeStampFailed, .done], .signPDF, .timestampRequestError),
            ([.done, .done, .done, .done, .failed, .done], .signPDF, .internalError),
            ([.done, .done, .done, .done, .done, .failed], .signPDF, .internalError),
            ([.done, .done, .declined, .failed], .signPDF, .internalError),
        ])
    func responseCodes(events: [RequestState.Event], operation: SigningOperation, code: ResponseCode) {
        let end = events.reduce(RequestState.findingSigner) { $0.next(after: $1, of: operation, approver: "queue") }
        #expect(end == .replying(.refused(code)))
    }
}
