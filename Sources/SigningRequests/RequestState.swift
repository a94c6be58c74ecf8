/// The states of a request after the steps 1 to 14, as one pure function. ``RequestRun`` acts on each state, and passes the
/// result.
///
/// On every path there is one reply. The key is used only after the journal has a line for the request, and a signature leaves only
/// after that line says so.
package enum RequestState: Sendable, Equatable {
    /// Find the certificate that would sign, and look whether it may.
    case findingSigner
    /// Take a place among the requests that wait.
    case admitting
    /// Ask the person.
    case asking
    /// Write the line of the journal, before the key is used; not if no person approves, and the request is a repetition or one too many.
    case reserving(approver: String)
    /// Sign.
    case signing
    /// Write into the line that there is a signature, or why there is none.
    case recording(Outcome)
    /// Write a line about a request that no key has signed.
    case refusing(ResponseCode, approver: String?)
    /// Send the reply.
    case replying(Outcome)

    package enum Outcome: Sendable, Equatable {
        case signed
        case refused(ResponseCode)
    }

    /// The result of a state.
    package enum Event: Sendable, CaseIterable {
        case done
        /// A rule approves the request instead of a person.
        case doneUnattended
        /// The certificate or the key is missing or cannot be used, or the key did not sign.
        case signerFailed
        case timeStampFailed
        case tooMany
        /// The same data was signed before.
        case repeated
        case declined
        /// The person could not be asked, or did not answer in time.
        case notAnswered
        /// Anything else, such as a full disk.
        case failed
    }

    /// Returns the state after this one.
    ///
    /// - Parameter approver: Of the prompt that asks.
    package func next(
        after event: Event, of operation: SigningOperation, approver: String
    ) -> RequestState {
        switch (self, event) {
        case (.findingSigner, .done): .admitting
        case (.findingSigner, .signerFailed): .refusing(operation.signingError, approver: nil)
        case (.admitting, .done): .asking
        case (.admitting, .doneUnattended): .reserving(approver: JournalEntry.unattended)
        case (.asking, .done): .reserving(approver: approver)
        case (.asking, .declined): .refusing(.operationCanceled, approver: approver)
        case (.admitting, .tooMany), (.asking, .notAnswered), (.reserving, .tooMany):
            .refusing(.approveRequestError, approver: nil)
        case (.reserving, .repeated): .refusing(.validateRequestError, approver: nil)
        case (.reserving, .done): .signing
        case (.signing, .done): .recording(.signed)
        case (.signing, .signerFailed): .recording(.refused(operation.signingError))
        case (.signing, .timeStampFailed): .recording(.refused(.timestampRequestError))
        case (.signing, _): .recording(.refused(.internalError))
        case (.recording(let outcome), .done): .replying(outcome)
        case (.refusing(let code, _), .done): .replying(.refused(code))
        // Without a line in the journal, no key is used and no signature leaves.
        case (.reserving, _), (.recording, _), (.refusing, _): .replying(.refused(.internalError))
        case (.replying, _): self
        case (.findingSigner, _), (.admitting, _), (.asking, _): .refusing(.internalError, approver: nil)
        }
    }
}
