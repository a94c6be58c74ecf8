import CertificateProviding
import FoundationEssentials
import Renewal

/// Hosts that got their certificates in the same minute, and their later requests to a server. Each does the same as the
/// service, without waiting.
package struct Population: Sendable {
    package var hosts = 100_000
    /// Of every certificate, in seconds, as all times here; time 0 is the beginning of the first minute.
    package var lifetime: Double
    /// When the server does not answer.
    package var outage: Range<Double>?
    package var end: Double
    package var binWidth: Double

    package init(lifetime: Double, outage: Range<Double>? = nil, end: Double, binWidth: Double) {
        self.lifetime = lifetime
        self.outage = outage
        self.end = end
        self.binWidth = binWidth
    }

    package struct Outcome: Sendable {
        /// By bin.
        package var attempts: [Int]
        package var renewals: [Int]
        /// How many hosts were without a valid certificate at the beginning of the bin.
        package var expired: [Int]
        /// The shortest time from one renewal of a host to its next.
        package var shortestInterval = Double.infinity
    }

    package func run() -> Outcome {
        let bins = Int((end / binWidth).rounded(.up))
        let none = Array(repeating: 0, count: bins)
        var outcome = Outcome(attempts: none, renewals: none, expired: none)
        var random = SplitMix64(state: 1)
        let error = ProviderError(.unavailable, "The server is down.")
        for _ in 0..<hosts {
            var enrolled = Double.random(in: 0..<60, using: &random)
            var time = enrolled
            var plan = RenewalPlan(schedule(at: enrolled, &random))
            while true {
                time += max(0, plan.delay(at: moment(time)) / .seconds(1))
                let isOver = time >= end
                let isAnswered = !(outage?.contains(time) ?? false)
                if isOver || isAnswered {
                    // From expiry on, and until it is renewed.
                    let first = Int(((enrolled + lifetime) / binWidth).rounded(.up))
                    let last = Int((min(time, end) / binWidth).rounded(.up))
                    for bin in first..<max(first, min(last, bins)) { outcome.expired[bin] += 1 }
                }
                if isOver { break }
                outcome.attempts[Int(time / binWidth)] += 1
                if isAnswered {
                    outcome.renewals[Int(time / binWidth)] += 1
                    outcome.shortestInterval = min(outcome.shortestInterval, time - enrolled)
                    enrolled = time
                    plan.succeed(with: schedule(at: time, &random), at: moment(time))
                } else {
                    plan.fail(with: error, at: moment(time), draw: Double.random(in: 0..<1, using: &random))
                }
            }
        }
        return outcome
    }

    /// Drawn here as the fingerprint of a new certificate draws it.
    private func schedule(at time: Double, _ random: inout SplitMix64) -> RenewalSchedule {
        RenewalSchedule(
            from: Date(timeIntervalSince1970: time), to: Date(timeIntervalSince1970: time + lifetime),
            policy: RenewalPolicy(), draw: Double.random(in: 0..<1, using: &random))
    }

    private func moment(_ time: Double) -> Moment {
        Moment(wall: Date(timeIntervalSince1970: time), uptime: .seconds(time))
    }
}

/// The same numbers in each run (Steele, Lea and Flood, 2014).
struct SplitMix64: RandomNumberGenerator {
    var state: UInt64

    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xbf58_476d_1ce4_e5b9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94d0_49bb_1331_11eb
        return mixed ^ (mixed >> 31)
    }
}
