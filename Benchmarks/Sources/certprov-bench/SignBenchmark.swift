import CertificateProviding
import Synchronization

/// Signatures per second with a token's key, from a number of tasks at once.
struct SignBenchmark {
    let identity: Identity
    let callers: Int
    let length: Duration

    func run() async throws {
        let key = identity.key
        let message = [UInt8](repeating: 1, count: 32)
        let scheme = key.signatureSchemes[0]
        _ = try await key.signature(for: message, using: scheme)
        let clock = ContinuousClock()
        let begin = clock.now
        let end = begin + length
        let total = try await withThrowingTaskGroup(of: Int.self) { group in
            for _ in 0..<callers {
                group.addTask {
                    var done = 0
                    while clock.now < end {
                        _ = try await key.signature(for: message, using: scheme)
                        done += 1
                    }
                    return done
                }
            }
            return try await group.reduce(0, +)
        }
        print("signatures-per-second", Double(total) / seconds(clock.now - begin))
    }
}
