import Foundation

/// How long a fuzz test goes on: a fixed number of rounds, or as many seconds as `CERTPROV_FUZZ_SECONDS` says.
///
///     CERTPROV_FUZZ_SECONDS=600 swift test --sanitize=address --filter Fuzz
public struct FuzzRounds {
    private var remaining: Int
    private let deadline: ContinuousClock.Instant?

    /// - Parameter count: The rounds of an ordinary run.
    public init(atLeast count: Int) {
        remaining = count
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
