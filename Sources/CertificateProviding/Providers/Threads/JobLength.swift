/// The recent minimum of the jobs' run times, in nanoseconds.
///
/// The average is not used: it contains the time that jobs wait for each other, so that many waiting jobs would make
/// all jobs look long.
struct JobLength {
    /// The minimum of the last 16 to 32 jobs; `Int64.max` before the first.
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
