/// How long jobs take when nothing is in their way, in nanoseconds.
///
/// Not an average: that counts what jobs wait for each other, and so lets the more of them wait the more there are.
struct JobLength {
    /// Of 16 to 32 jobs; not known to be short before the first.
    private(set) var shortest = Int64.max
    private var recent = Int64.max
    private var count = 0

    mutating func append(_ nanoseconds: Int64) {
        recent = min(recent, nanoseconds)
        shortest = min(shortest, nanoseconds)
        count += 1
        guard count == 16 else { return }
        (shortest, recent, count) = (recent, .max, 0)
    }
}
