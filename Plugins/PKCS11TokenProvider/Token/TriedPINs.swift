import CertificateProviding
import FoundationEssentials
import Glibc
import Logging
import Synchronization

/// What became of PINs that were sent to tokens: one that a token has rejected is never sent to it again by itself, not
/// after a restart either. What may be sent, ``PINRule`` says; this keeps what it is told, across processes and crashes.
///
/// - One process at a time tries a PIN on a token. It has the claim of the token's record until the answer is written
///   down. Those that wait for it take an answer that concerns their PIN for their own.
/// - A PIN that this token has not accepted is written down before it is sent, as a login without an answer. Where it
///   cannot be, it is not sent.
/// - A PIN that was accepted before is sent without a write to the disk: this is what services do at each start, and
///   they do it on a full disk as well. What came of it is written down where it is not another success. A process that
///   is killed in between leaves its claim interrupted, and then, as where the token has seen a wrong PIN, the PIN is
///   written down before it is sent.
final class TriedPINs: Sendable {
    private let records: PINRecords
    private let now: @Sendable () -> Date
    /// The longest wait for the time from which on a PIN may be sent.
    private let patience: Duration
    private let logger: Logger
    /// The wrong ones that could not be written down, which this process at least does not send again.
    private let unwritten = Mutex<[Slot.Identity: [SecretBytes]]>([:])

    /// - Parameter timeout: How long a caller waits for a login, and so for other processes' logins before.
    init(
        storage: any IdentityStorage, timeout: Duration, now: @escaping @Sendable () -> Date, logger: Logger
    ) {
        self.records = PINRecords(storage: storage, timeout: timeout)
        self.now = now
        self.patience = timeout / 2
        self.logger = logger
    }

    /// A PIN on its way to a token. Has to be told what came of it; nobody else tries one until it goes.
    struct Attempt {
        let token: Slot.Identity
        let pin: SecretBytes
        fileprivate let isPersons: Bool
        /// `nil` where somebody else's login has just shown that the PIN is right.
        fileprivate let claim: RecordClaim?
        fileprivate var known: PINRule.PIN
        /// Whether the record says that exactly this token has accepted it.
        fileprivate let isNoted: Bool
        fileprivate let isCountLow: Bool
        /// Whether it was written down before it is sent.
        fileprivate var isMarked = false

        /// Whether the token has accepted it before.
        var isAccepted: Bool { known.isAccepted }
    }

    enum Outcome {
        case permitted(Attempt)
        case refused(PINRule.Verdict)
        /// Another one is being tried.
        case busy
    }

    /// Looks a PIN up that nobody has just typed in, waits for its turn, and writes down that it is going to be tried
    /// where that has to be.
    ///
    /// - Parameter look: Looks at the token again.
    func begin(
        _ remembered: PINPolicy.Remembered, for slot: Slot, look: () -> Slot?
    ) throws(CertificateProviderError) -> Outcome {
        let (pin, token) = (remembered.pin, slot.identity)
        if unwritten.withLock({ $0[token]?.contains(pin) ?? false }) { return .refused(.rejected) }
        var claim: RecordClaim?
        var obstacle: CertificateProviderError?
        var hasWaited = false
        do throws(CertificateProviderError) {
            let turn = try records.turn(at: token, &hasWaited) { record in
                let known = record.knowledge(of: pin, on: token)
                return known.isRejected || known.isAccepted && known.unanswered == nil
            }
            switch turn {
            case .mine(let own): claim = own
            case .known: break
            case .busy: return .busy
            }
        } catch {
            obstacle = error
        }
        let slot = hasWaited ? look() ?? slot : slot
        var attempt = try attempt(remembered, slot, claim)
        switch verdict(on: attempt, slot) {
        case .send: break
        case .wait(let time):
            guard wait(until: time) else { return .refused(.wait(until: time)) }
            let verdict = PINRule.verdict(on: attempt.known, count(look() ?? slot), now: max(time, now()))
            guard verdict == .send else { return .refused(verdict) }
        case .countedAsWrong:
            reject(attempt)
            return .refused(.rejected)
        case let verdict: return .refused(verdict)
        }
        let isRight = attempt.known.isAccepted && attempt.known.unanswered == nil
        let isJustSeen = claim == nil && obstacle == nil
        if isRight, isJustSeen || !slot.hasSeenWrongPIN { return .permitted(attempt) }
        do throws(CertificateProviderError) {
            if let obstacle { throw obstacle }
            try mark(&attempt)
            return .permitted(attempt)
        } catch {
            throw CertificateProviderError(
                error.code,
                "The configured PIN is not sent to the token, since it cannot be written down before. \(error.message)",
                underlying: error)
        }
    }

    /// What is known of a PIN that is going to be tried.
    private func attempt(
        _ remembered: PINPolicy.Remembered, _ slot: Slot, _ claim: RecordClaim?
    ) throws(CertificateProviderError) -> Attempt {
        let (pin, token) = (remembered.pin, slot.identity)
        let record = try records[token]
        var known = record.knowledge(of: pin, on: token, isAccepted: remembered.isKnown)
        let now = now()
        let stored = known.unanswered
        // Sent unwritten, by a process that was killed: only where the token showed no wrong PIN.
        if claim?.isInterrupted == true, known.isAccepted, !known.isRejected {
            let count = stored?.count ?? 0
            known.unanswered = .init(
                count: count == .max ? .max : count + 1, last: now, wasCountLow: stored?.wasCountLow ?? false)
        }
        // The clock was set back: nobody waits until it has made up for that.
        if let last = known.unanswered?.last, last > now { known.unanswered?.last = now }
        let isShown = record.isCountShown(by: token) || !slot.hasSeenWrongPIN
        if known.unanswered != stored || !isShown {
            let isWritten = remember(token) { record in
                if !isShown { record.setCountShown(by: token) }
                if known.unanswered != stored { record.set(known.unanswered, for: pin, on: token) }
            }
            if isWritten { claim?.isInterrupted = false }
        }
        return Attempt(
            token: token, pin: pin, isPersons: remembered.isPersons, claim: claim, known: known,
            isNoted: record.isAccepted(pin, by: token), isCountLow: slot.hasSeenWrongPIN)
    }

    private func verdict(on attempt: Attempt, _ slot: Slot) -> PINRule.Verdict {
        PINRule.verdict(on: attempt.known, count(slot), now: now())
    }

    private func count(_ slot: Slot) -> PINRule.Count {
        let isShown = (try? records[slot.identity])?.isCountShown(by: slot.identity) ?? false
        return slot.countOfWrongPINs(isShown: isShown)
    }

    /// Waits for a time that is near.
    /// - Returns: Whether it was.
    private func wait(until time: Date) -> Bool {
        let limit = ModuleCalls.deadline.map { min(patience, ($0 - .now) / 2) } ?? patience
        let delay = Duration.seconds(time.timeIntervalSince(now()))
        guard delay <= limit else { return false }
        let end = ContinuousClock.now + delay
        while ContinuousClock.now < end { usleep(10_000) }
        return true
    }

    /// Writes down that a login without an answer is going to be made.
    private func mark(_ attempt: inout Attempt) throws(CertificateProviderError) {
        let unanswered = next(attempt)
        try records.update(attempt.token) { [attempt] record throws(CertificateProviderError) in
            record.set(unanswered, for: attempt.pin, on: attempt.token)
            return true
        }
        attempt.isMarked = true
    }

    private func next(_ attempt: Attempt) -> PINRule.Unanswered {
        let count = attempt.known.unanswered?.count ?? 0
        return .init(count: count == .max ? .max : count + 1, last: now(), wasCountLow: attempt.isCountLow)
    }

    /// The token has found the PIN right. The login does not depend on what can be remembered of it.
    func accept(_ attempt: Attempt) {
        attempt.claim?.isInterrupted = false
        let isNews = !attempt.isNoted && !attempt.isPersons
        guard attempt.isMarked || attempt.known.unanswered != nil || isNews else { return }
        remember(attempt.token) { record in
            // A PIN of a person is nowhere on this host, and nothing of it is to be.
            record.accept(attempt.pin, by: attempt.token, isKept: !attempt.isPersons)
        }
    }

    /// The token has rejected the PIN.
    func reject(_ attempt: Attempt) {
        let isWritten = reject(attempt.pin, for: attempt.token)
        attempt.claim?.isInterrupted = !isWritten
    }

    /// The token has certainly not looked at the PIN, or has found nothing wrong with it.
    func takeBack(_ attempt: Attempt) {
        guard attempt.isMarked else { return }
        remember(attempt.token) { $0.set(attempt.known.unanswered, for: attempt.pin, on: attempt.token) }
    }

    /// The token may have counted the PIN as wrong, and the answer was lost behind what it said instead.
    func leaveUnanswered(_ attempt: Attempt) {
        // Written down already.
        guard !attempt.isMarked else { return }
        let unanswered = next(attempt)
        let isWritten = remember(attempt.token) { $0.set(unanswered, for: attempt.pin, on: attempt.token) }
        if !isWritten { attempt.claim?.isInterrupted = true }
    }

    /// The token is locked, which is no word on this PIN, unless it is what has locked the token: one that it has not
    /// accepted before, and that has not met the lock before.
    func leaveLocked(_ attempt: Attempt) {
        if attempt.known.isAccepted || attempt.known.unanswered != nil {
            takeBack(attempt)
        } else {
            leaveUnanswered(attempt)
        }
    }

    /// Notes that a token has rejected a PIN.
    /// - Returns: Whether it is on disk.
    @discardableResult
    func reject(_ pin: SecretBytes, for token: Slot.Identity) -> Bool {
        let isWritten = remember(token) { $0.reject(pin, by: token) }
        if !isWritten { unwritten.withLock { $0[token, default: []].append(pin) } }
        return isWritten
    }

    /// Notes that a token has accepted a PIN that somebody has typed in.
    func accept(_ pin: SecretBytes, for token: Slot.Identity) {
        unwritten.withLock { $0[token]?.removeAll { $0 == pin } }
        // Whatever cannot be read holds no mark that this could take away.
        guard let known = (try? records[token])?.knowledge(of: pin, on: token),
            known.isRejected || known.unanswered != nil
        else { return }
        remember(token) { $0.accept(pin, by: token, isKept: false) }
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
