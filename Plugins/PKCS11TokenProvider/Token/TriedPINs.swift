import CertificateProviding
import Logging
import Synchronization

/// What became of PINs that were sent to tokens: one that a token has rejected is never sent to it again by itself, not
/// after a restart either.
///
/// Of a token that counts, a wrong PIN takes one try, whoever uses it and however often they are restarted:
///
/// - One process at a time tries a PIN on a token. It has the claim of the token's record until the answer is written
///   down, so that the others then know it.
/// - A PIN of which nothing is known is written down before it is sent. Where it cannot be, it is not sent.
/// - A PIN that is written down so while nobody has the claim was interrupted: the process was killed, or the power
///   went. It may be right, in which case a service must come up again, or wrong, with its try lost. It is tried once
///   more, not twice, and not at all where the token shows that it has seen a wrong PIN. So a wrong PIN costs a second
///   try only where its answer was lost and the token conceals what it counts, and never a third.
/// - A PIN that was accepted before is sent without a write to the disk: this is what services do at each start, and
///   they do it on a full disk as well. Should it be wrong by now, since somebody has changed it on the token, it is
///   written down after the answer. A process that is killed in between leaves its claim interrupted, and then, as
///   where the token has seen a wrong PIN, the PIN is written down before it is sent.
final class TriedPINs: Sendable {
    private let records: PINRecords
    private let logger: Logger
    /// The wrong ones that could not be written down, which this process at least does not send again.
    private let unwritten = Mutex<[Slot.Identity: [SecretBytes]]>([:])

    /// - Parameter patience: How long to wait for another process that is trying a PIN.
    init(storage: any IdentityStorage, patience: Duration, logger: Logger) {
        self.records = PINRecords(storage: storage, patience: patience)
        self.logger = logger
    }

    /// A PIN on its way to a token. Has to be told what came of it; nobody else tries one until it goes.
    struct Attempt {
        let token: Slot.Identity
        let pin: SecretBytes
        /// Whether this process has seen the token accept it.
        let isKnown: Bool
        fileprivate let isPersons: Bool
        fileprivate let claim: RecordClaim?
        fileprivate var previous: PINRecord.Standing?
        /// Whether it was written down before it is sent.
        fileprivate var isMarked = false
        fileprivate var isAccepted = false
    }

    enum Outcome {
        case permitted(Attempt)
        case rejected
        /// Another one is being tried.
        case busy
        /// Whether it is right is not known, and there is no further attempt.
        case interrupted
    }

    /// Looks a PIN up that nobody has just typed in, and writes down that it is going to be tried where that has to be.
    ///
    /// - Parameters:
    ///   - hasSeenWrongPIN: Looks whether the token shows that; called when no other one is being tried.
    func begin(
        _ remembered: PINPolicy.Remembered, for token: Slot.Identity,
        hasSeenWrongPIN: (_ hasWaited: Bool) throws(CertificateProviderError) -> Bool
    ) throws(CertificateProviderError) -> Outcome {
        let (pin, isKnown) = (remembered.pin, remembered.isKnown)
        if unwritten.withLock({ $0[token]?.contains(pin) ?? false }) { return .rejected }
        let claim: RecordClaim?
        var obstacle: CertificateProviderError?
        var hasWaited = false
        do throws(CertificateProviderError) {
            claim = try records.claim(of: token, &hasWaited)
            if claim == nil { return .busy }
        } catch {
            claim = nil
            obstacle = error
        }
        let isDoubtful = try hasSeenWrongPIN(hasWaited)
        let wasInterrupted = claim?.isInterrupted ?? false
        var attempt = Attempt(
            token: token, pin: pin, isKnown: isKnown, isPersons: remembered.isPersons, claim: claim)
        let record = try records[token]
        attempt.isAccepted = record.isAccepted(pin)
        attempt.previous = record.standing(of: pin)
        // Needs no right to write.
        if attempt.previous == .rejected { return .rejected }
        let isRight = isKnown || (attempt.isAccepted && attempt.previous == nil)
        if isRight, !isDoubtful, !wasInterrupted { return .permitted(attempt) }
        do throws(CertificateProviderError) {
            if let obstacle { throw obstacle }
            return try mark(&attempt, wasInterrupted: wasInterrupted, isDoubtful: isDoubtful)
        } catch {
            throw CertificateProviderError(
                error.code,
                "The configured PIN is not sent to the token, since it cannot be written down before. \(error.message)",
                underlying: error)
        }
    }

    private func mark(
        _ attempt: inout Attempt, wasInterrupted: Bool, isDoubtful: Bool
    ) throws(CertificateProviderError) -> Outcome {
        var refusal: Outcome?
        try records.update(attempt.token) { [pin = attempt.pin] record throws(CertificateProviderError) in
            let standing = record.standing(of: pin)
            // Of a PIN that was sent unwritten, the claim alone says that it was interrupted.
            let hasBeenTried = standing == .trying || (wasInterrupted && (attempt.isKnown || record.isAccepted(pin)))
            refusal =
                switch standing {
                case .rejected: .rejected
                case .retrying: .interrupted
                case .trying, nil: hasBeenTried && isDoubtful ? .interrupted : nil
                }
            guard refusal == nil else { return false }
            record.set(hasBeenTried ? .retrying : .trying, for: pin)
            attempt.previous = standing
            attempt.isMarked = true
            return true
        }
        return refusal ?? .permitted(attempt)
    }

    /// The token has found the PIN right. The login does not depend on what can be remembered of it.
    func accept(_ attempt: Attempt) {
        attempt.claim?.isInterrupted = false
        guard attempt.isMarked || attempt.previous != nil else { return }
        remember(attempt.token) { record in
            // A PIN of a person is nowhere on this host, and nothing of it is to be.
            if attempt.isKnown || attempt.isPersons {
                record.set(nil, for: attempt.pin)
            } else {
                record.accept(attempt.pin)
            }
        }
    }

    /// The token has rejected the PIN.
    func reject(_ attempt: Attempt) {
        attempt.claim?.isInterrupted = !reject(attempt.pin, for: attempt.token)
    }

    /// The token has not looked at the PIN, as far as can be told.
    ///
    /// - Parameter isSure: Otherwise the answer may have been lost behind it. Then this was one of the PIN's two
    ///   attempts: it stays written down, and where it was not, the claim says so.
    func takeBack(_ attempt: Attempt, isSure: Bool) {
        guard isSure else {
            if !attempt.isMarked { attempt.claim?.isInterrupted = true }
            return
        }
        if attempt.isMarked { remember(attempt.token) { $0.set(attempt.previous, for: attempt.pin) } }
    }

    /// The token is locked, which is no word on this PIN. One that it has accepted before will do when somebody has
    /// unlocked the token, or time has; any other one may be what has locked it, and is left to a person.
    func leaveLocked(_ attempt: Attempt) {
        if attempt.isKnown || attempt.isAccepted {
            takeBack(attempt, isSure: true)
        } else {
            remember(attempt.token) { $0.set(.retrying, for: attempt.pin) }
        }
    }

    /// Notes that a token has rejected a PIN.
    /// - Returns: Whether it is on disk.
    @discardableResult
    func reject(_ pin: SecretBytes, for token: Slot.Identity) -> Bool {
        let isWritten = remember(token) { $0.set(.rejected, for: pin) }
        if !isWritten { unwritten.withLock { $0[token, default: []].append(pin) } }
        return isWritten
    }

    /// Notes that a token has accepted a PIN that somebody has typed in.
    func accept(_ pin: SecretBytes, for token: Slot.Identity) {
        unwritten.withLock { $0[token]?.removeAll { $0 == pin } }
        // Whatever cannot be read holds no mark that this could take away.
        guard let record = try? records[token], record.standing(of: pin) != nil else { return }
        remember(token) { $0.set(nil, for: pin) }
    }

    /// Writes down what came of a PIN, where that is possible. What was written before it was sent is the safe side.
    @discardableResult
    private func remember(_ token: Slot.Identity, _ change: (inout PINRecord) -> Void) -> Bool {
        do throws(CertificateProviderError) {
            try records.update(token) { record in
                change(&record)
                return true
            }
            return true
        } catch {
            logger.error("what came of a PIN cannot be written down", metadata: ["reason": "\(error)"])
            return false
        }
    }
}
