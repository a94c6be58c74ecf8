import Foundation

/// How long a fuzz test runs: a number of rounds, or the seconds in `CERTPROV_FUZZ_SECONDS`.
///
///     CERTPROV_FUZZ_SECONDS=600 swift test --sanitize=address --filter Fuzz
public struct FuzzRounds {
    private var remaining: Int
    private let deadline: ContinuousClock.Instant?

    /// - Parameter count: The rounds of `make soak`; otherwise a fifth of them.
    public init(atLeast count: Int) {
        remaining = TestLength.rounds(count / 5, soak: count)
        deadline = ProcessInfo.processInfo.environment["CERTPROV_FUZZ_SECONDS"].flatMap(Int.init)
            .map { ContinuousClock.now + .seconds($0) }
    }

    /// Whether there is another round.
    public mutating func next() -> Bool {
        remaining -= 1
        if remaining >= 0 { return true }
        return deadline.map { ContinuousClock.now < $0 } ?? false
    }
}
