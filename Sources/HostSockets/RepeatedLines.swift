import Synchronization

/// Bounds the lines of a log that others cause: each is due once a minute, with its count.
package final class RepeatedLines: Sendable {
    private struct Line {
        var last: ContinuousClock.Instant
        var count = 0
    }
    private let lines = Mutex<[String: Line]>([:])
    private let now: @Sendable () -> ContinuousClock.Instant

    private static let pause = Duration.seconds(60)
    /// Ever new lines must not fill the memory: further ones share one.
    private let maximumCount: Int

    package init(
        maximumCount: Int = 1024, now: @escaping @Sendable () -> ContinuousClock.Instant = { .now }
    ) {
        (self.maximumCount, self.now) = (maximumCount, now)
    }

    /// Returns how often this has happened since the last line about it, this time included; `nil` if no line is due.
    package func note(_ text: String) -> Int? {
        let now = now()
        return lines.withLock { lines in
            var key = text
            if lines[key] == nil, lines.count >= maximumCount {
                lines = lines.filter { now - $0.value.last < Self.pause }
                if lines.count >= maximumCount { key = "" }
            }
            var line = lines[key] ?? Line(last: now - Self.pause)
            line.count += 1
            let isDue = now - line.last >= Self.pause
            let count = line.count
            if isDue { line = Line(last: now) }
            lines[key] = line
            return isDue ? count : nil
        }
    }
}
