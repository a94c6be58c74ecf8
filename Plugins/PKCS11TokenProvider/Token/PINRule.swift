import FoundationEssentials

/// Whether a configured PIN may be sent to a token by itself: the table of
/// Documentation/Decisions/011-unanswered-logins.md.
///
/// A configured PIN that the token has rejected is never sent again. After a login without an answer (the device failed,
/// the timeout expired, the process was killed) the PIN may be right: a service that never sent it again would stay
/// down. It may also be wrong, and counted by the token. So the tries are limited, by the count that the token shows or
/// else by time.
enum PINRule {
    /// The entries of this store about a PIN on one token.
    struct PIN: Equatable {
        /// Whether this token has rejected the PIN, or another one with its serial number if this one has not accepted it.
        var isRejected = false
        /// Whether exactly this token has accepted the PIN, as far as one byte shows.
        var isAccepted = false
        var unanswered: Unanswered?

        /// Whether the PIN was accepted, and each login since was answered.
        var isRight: Bool { isAccepted && !isRejected && unanswered == nil }
    }

    /// Logins since the last answer.
    struct Unanswered: Codable, Equatable {
        var count: UInt16
        /// When the last one was made.
        var last: Date
        /// Whether the token showed a wrong PIN (`CKF_USER_PIN_COUNT_LOW`) before the last one.
        var wasCountLow: Bool
    }

    /// The known state of a token's count of wrong PINs.
    struct Count: Equatable {
        /// Whether this store has ever seen the token set one of the flags. Some never do, and count all the same.
        var isShown = false
        /// The flags as they are now: a wrong PIN was counted, one try is left, none is.
        var isLow = false
        var isFinal = false
        var isLocked = false
    }

    enum Verdict: Equatable {
        case send
        /// The last logins had no answer: not before this time.
        case wait(until: Date)
        /// The token has rejected the PIN before.
        case rejected
        /// The token has counted a wrong PIN since the login that had no answer: probably this one.
        case countedAsWrong
        /// One try is left, which is reserved for a person.
        case finalTry
        case locked
    }

    /// Applies one row after the other; the first that fits.
    static func verdict(on pin: PIN, _ count: Count, now: Date) -> Verdict {
        if count.isLocked { return .locked }
        if count.isFinal { return .finalTry }
        if pin.isRejected { return .rejected }
        guard let unanswered = pin.unanswered else { return .send }
        // It may be another PIN that the token has counted: one that was right is not given up for that.
        if pin.isAccepted { return wait(backoff(unanswered), now) }
        if count.isLow, !unanswered.wasCountLow { return .countedAsWrong }
        if count.isShown && !count.isLow { return wait(backoff(unanswered), now) }
        // It conceals its count, or shows no more than it did before.
        if unanswered.count < 2 { return .send }
        return wait(unanswered.last + day, now)
    }

    /// Returns the end of the pause: from a second to an hour, doubled with each login.
    private static func backoff(_ unanswered: Unanswered) -> Date {
        unanswered.last + min(TimeInterval(1 << min(unanswered.count - 1, 12)), 3600)
    }

    private static let day: TimeInterval = 86400

    private static func wait(_ time: Date, _ now: Date) -> Verdict { time <= now ? .send : .wait(until: time) }
}
