import CertificateProviding
import FoundationEssentials
import Glibc
import Logging
import Synchronization

/// The results of logins with configured PINs, across processes and crashes. ``PINRule`` decides from them whether a PIN
/// may be sent.
///
/// - One process at a time logs in to a token. It holds the lease of the token's record until the result is written
///   down. The others wait for it; after a second they take a success with the same PIN for their own.
/// - A PIN that this token has not accepted is written down as a login without an answer before it is sent. If it cannot
///   be written down, it is not sent.
/// - A PIN that this token has accepted is sent without a write to the disk, so that a service starts on a full disk.
///   Meanwhile the lease is marked as interrupted. After a kill the mark counts as one login without an answer.
final class TriedPINs: Sendable {
    private let records: PINRecords
    private let now: @Sendable () -> Date
    /// The longest wait for the time from which on a PIN may be sent.
    private let longestDelay: Duration
    private let logger: Logger
    /// The wrong ones that could not be written down, which this process at least does not send again.
    private let unwritten = BlockingMutex<[Slot.Identity: [SecretBytes]]>([:])

    private let isShutDown = Atomic(false)

    /// - Parameter timeout: How long a caller waits for a login, and so for other processes' logins before.
    init(
        storage: any IdentityStorage, timeout: Duration, now: @escaping @Sendable () -> Date, logger: Logger
    ) {
        self.records = PINRecords(storage: storage.shared, timeout: timeout)
        self.now = now
        self.longestDelay = timeout / 2
        self.logger = logger
    }

    /// No PIN is sent any more. A wait for the time of the next try ends.
    func shutDown() { isShutDown.store(true, ordering: .releasing) }

    private var isEnding: Bool { isShutDown.load(ordering: .acquiring) || ModuleEnd.isUnderWay }

    /// A PIN that may be sent. One of the functions below has to be told the result. No other process logs in before that.
    struct Attempt {
        /// The token as it was right before.
        let slot: Slot
        let pin: SecretBytes
        fileprivate let isPersons: Bool
        /// `nil` if another login has just shown that the PIN is right.
        fileprivate let lease: RecordLease?
        fileprivate let known: PINRule.PIN
        /// The token's count before the attempt.
        fileprivate let count: PINRule.Count
        /// Whether the record says that exactly this token has accepted it.
        fileprivate let isNoted: Bool
        /// Whether it was written down before it is sent.
        fileprivate var isMarked = false

        var token: Slot.Identity { slot.identity }

        /// Whether the token has accepted it before.
        var isAccepted: Bool { known.isAccepted }
    }

    enum Outcome {
        case permitted(Attempt)
        case refused(PINRule.Verdict)
        /// Another process or thread tries a PIN.
        case busy
    }

    /// Decides whether a PIN may be sent that was not just typed in. Writes it down before, if necessary.
    ///
    /// Blocks while other processes log in, and for up to half the timeout until the next try is permitted.
    ///
    /// - Parameter look: Looks at the token again.
    func begin(
        _ remembered: PINPolicy.RememberedPIN, for slot: Slot, look: () -> Slot?
    ) throws(ProviderError) -> Outcome {
        let start = ContinuousClock.now
        let limit = start + (ModuleCalls.deadline.map { min(longestDelay, ($0 - start) / 2) } ?? longestDelay)
        var (slot, earliest) = (slot, Date.distantPast)
        while true {
            let outcome = try take(remembered, &slot, at: max(now(), earliest), look)
            guard case .refused(.wait(let time)) = outcome else { return outcome }
            // The lease is free during the pause, so that a kill does not count as a login.
            guard pause(until: time, before: limit) else { return outcome }
            slot = look() ?? slot
            earliest = time
        }
    }

    private func take(
        _ remembered: PINPolicy.RememberedPIN, _ slot: inout Slot, at time: Date, _ look: () -> Slot?
    ) throws(ProviderError) -> Outcome {
        let (pin, token) = (remembered.pin, slot.identity)
        if isEnding { return .busy }
        if unwritten.withLock({ $0[token]?.contains(pin) ?? false }) { return .refused(.rejected) }
        var lease: RecordLease?
        var obstacle: ProviderError?
        var hasWaited = false
        do throws(ProviderError) {
            switch try records.turn(at: token, &hasWaited, unless: { $0.knowledge(of: pin, on: token).isRight }) {
            case .mine(let own): lease = own
            case .known: break
            case .busy: return .busy
            }
        } catch {
            obstacle = error
        }
        if hasWaited { slot = look() ?? slot }
        var attempt = try attempt(remembered, slot, lease, at: time)
        switch PINRule.verdict(on: attempt.known, attempt.count, now: time) {
        case .send: break
        case let verdict: return .refused(verdict)
        }
        let isJustSeen = lease == nil && obstacle == nil
        if attempt.known.isRight, isJustSeen || !attempt.count.isLow {
            lease?.isUnsettled = true
            return .permitted(attempt)
        }
        // The record has changed again since.
        if isJustSeen { return .busy }
        if let obstacle { throw unwritable(obstacle) }
        try write(next(attempt, at: time), pin, token)
        attempt.isMarked = true
        return .permitted(attempt)
    }

    /// Reads the record, and brings it up to date with the lease, the clock and the token's flags.
    private func attempt(
        _ remembered: PINPolicy.RememberedPIN, _ slot: Slot, _ lease: RecordLease?, at time: Date
    ) throws(ProviderError) -> Attempt {
        let (pin, token) = (remembered.pin, slot.identity)
        let record = try records[token]
        var known = record.knowledge(of: pin, on: token, isAccepted: remembered.isKnown)
        let stored = known.unanswered
        // Sent unwritten, by a process that was killed: only where the token showed no wrong PIN.
        if lease?.isUnsettled == true, known.isAccepted, !known.isRejected {
            let count = stored?.count ?? 0
            known.unanswered = .init(
                count: count == .max ? .max : count + 1, last: time, wasCountLow: stored?.wasCountLow ?? false)
        }
        // The clock was set back: nothing waits until it has made up for that.
        if let last = known.unanswered?.last, last > time { known.unanswered?.last = time }
        let wasShown = record.isCountShown(by: token)
        let count = slot.countOfWrongPINs(isShown: wasShown)
        if count.isShown && !wasShown { remember(token) { $0.setCountShown(by: token) } }
        if known.unanswered != stored {
            try write(known.unanswered, pin, token)
            lease?.isUnsettled = false
        }
        return Attempt(
            slot: slot, pin: pin, isPersons: remembered.isPersons, lease: lease, known: known, count: count,
            isNoted: record.isAccepted(pin, by: token))
    }

    /// Waits for a time that is near.
    /// - Returns: Whether it is.
    private func pause(until time: Date, before limit: ContinuousClock.Instant) -> Bool {
        let end = ContinuousClock.now + .seconds(time.timeIntervalSince(now()))
        guard end <= limit else { return false }
        while ContinuousClock.now < end, !isEnding { usleep(10_000) }
        return true
    }

    /// Writes down the logins without an answer. No PIN is sent if that fails.
    private func write(
        _ unanswered: PINRule.Unanswered?, _ pin: SecretBytes, _ token: Slot.Identity
    ) throws(ProviderError) {
        do throws(ProviderError) {
            try records.update(token) { record throws(ProviderError) in
                record.set(unanswered, for: pin, on: token)
                return true
            }
        } catch {
            throw unwritable(error)
        }
    }

    private func unwritable(_ error: ProviderError) -> ProviderError {
        ProviderError(
            error.code,
            "The configured PIN is not sent to the token: the attempt could not be recorded first. \(error.message)",
            underlying: error)
    }

    private func next(_ attempt: Attempt, at time: Date) -> PINRule.Unanswered {
        let count = attempt.known.unanswered?.count ?? 0
        return .init(count: count == .max ? .max : count + 1, last: time, wasCountLow: attempt.count.isLow)
    }

    /// The token has found the PIN right. The login does not depend on what can be remembered of it.
    func accept(_ attempt: Attempt) {
        attempt.lease?.isUnsettled = false
        let isNews = !attempt.isPersons && (!attempt.isNoted || attempt.lease?.isAwaited == true)
        guard attempt.isMarked || attempt.known.unanswered != nil || isNews else { return }
        remember(attempt.token) { record in
            // A PIN of a person is nowhere on this host, and nothing of it is to be.
            record.accept(attempt.pin, by: attempt.token, isKept: !attempt.isPersons)
        }
    }

    /// The token has rejected the PIN.
    func reject(_ attempt: Attempt) {
        let isWritten = reject(attempt.pin, for: attempt.token)
        attempt.lease?.isUnsettled = !isWritten
    }

    /// The token has certainly not looked at the PIN, or has found nothing wrong with it.
    func takeBack(_ attempt: Attempt) {
        guard attempt.isMarked else {
            attempt.lease?.isUnsettled = false
            return
        }
        remember(attempt.token) { $0.set(attempt.known.unanswered, for: attempt.pin, on: attempt.token) }
    }

    /// The token may have counted the PIN as wrong, and the answer was lost behind what it said instead.
    func leaveUnanswered(_ attempt: Attempt) {
        // Written down already.
        guard !attempt.isMarked else { return }
        let unanswered = next(attempt, at: now())
        let isWritten = remember(attempt.token) { $0.set(unanswered, for: attempt.pin, on: attempt.token) }
        attempt.lease?.isUnsettled = !isWritten
    }

    /// `CKR_PIN_LOCKED` says nothing about this PIN, unless this attempt has locked the token: the token has not accepted the
    /// PIN before, and the PIN has not met the lock before.
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

    /// Notes that a token has accepted a PIN that a person has typed.
    func accept(_ pin: SecretBytes, for token: Slot.Identity) {
        unwritten.withLock { $0[token]?.removeAll { $0 == pin } }
        // Whatever cannot be read holds no mark that this could take away.
        guard let known = (try? records[token])?.knowledge(of: pin, on: token),
            known.isRejected || known.unanswered != nil
        else { return }
        remember(token) { $0.accept(pin, by: token, isKept: false) }
    }

    /// Writes down the outcome of a PIN, if that is possible. The entry from before it was sent is the safe side.
    @discardableResult
    private func remember(_ token: Slot.Identity, _ change: (inout PINRecord) -> Void) -> Bool {
        do throws(ProviderError) {
            try records.update(token) { record in
                change(&record)
                return true
            }
            return true
        } catch {
            logger.error("the result of a login could not be recorded", metadata: ["reason": "\(error)"])
            return false
        }
    }
}
