import Dispatch

extension SessionPool {
    /// Which sessions there are, who has them, and who waits for one.
    struct State {
        var idle: [Session] = []
        /// All but the keeper: those that are idle and those that are lent.
        var sessions: [Session] = []
        /// How many they are, with those that are being opened.
        var open = 0
        /// 0 where the keeper is all there is.
        var maximum: Int
        /// When to look whether other programs still hold the rest.
        var end: ContinuousClock.Instant?
        var queue: [DispatchSemaphore] = []
        var isKeeperLent = false
        var isEnded = false

        init(maximum: Int) { self.maximum = maximum }

        /// Lets the first in the queue look again.
        func wakeFirst() { queue.first?.signal() }
    }

    enum Turn {
        case use(Session), wait(DispatchSemaphore)
        case open(closing: Session? = nil)
    }
}

extension SessionPool.State {
    /// - Parameters:
    ///   - place: The caller's in the queue, where it has one.
    ///   - ceiling: The largest that `maximum` may be.
    mutating func turn(
        at place: inout DispatchSemaphore?, writing: Bool, ceiling: Int, keeper: Session
    ) -> SessionPool.Turn {
        if queue.first === place, let turn = next(writing, ceiling, keeper) {
            if place != nil {
                queue.removeFirst()
                // There may be more than one.
                wakeFirst()
            }
            place = nil
            return turn
        }
        let waiting = place ?? DispatchSemaphore(value: 0)
        if place == nil { queue.append(waiting) }
        place = waiting
        return .wait(waiting)
    }

    /// Returns the turn of the first waiter; `nil` if it has to wait.
    private mutating func next(_ writing: Bool, _ ceiling: Int, _ keeper: Session) -> SessionPool.Turn? {
        if !writing, let session = idle.popLast() { return .use(session) }
        if let end, end <= .now { (maximum, self.end) = (ceiling, nil) }
        // The keeper does not write where others took the rest.
        let mustOpen = writing && open == 0 && ceiling > 0
        if open < maximum || mustOpen {
            open += 1
            return .open()
        }
        // For reading they were all lent.
        if let old = idle.popLast() {
            sessions.removeAll { $0 === old }
            return .open(closing: old)
        }
        guard maximum == 0, !writing || ceiling == 0, !isKeeperLent else { return nil }
        isKeeperLent = true
        return .use(keeper)
    }
}
