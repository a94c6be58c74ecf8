import CertificateProviding
import Synchronization

/// Signatures per second with a token's key, from a number of callers at once.
struct SignBenchmark {
    let identity: Identity
    let callers: Int
    let length: Duration
    private let message = [UInt8](repeating: 1, count: 32)

    init(identity: Identity, callers: Int, length: Duration) {
        self.identity = identity
        self.callers = callers
        self.length = length
    }

    func run() async throws {
        _ = try await identity.key.signature(for: message, using: identity.key.signatureSchemes[0])
        print("signatures-per-second", try await inTasks())
        if let key = identity.key.callbackSigner {
            print("signatures-per-second-by-callback", try await withCallbacks(key, identity.key.signatureSchemes[0]))
        }
    }

    /// Each caller is a task that waits for its signature.
    private func inTasks() async throws -> Double {
        let key = identity.key
        let scheme = key.signatureSchemes[0]
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
        return Double(total) / seconds(clock.now - begin)
    }

    /// Each caller asks for the next signature when it gets one, as a TLS stack's event loops do.
    private func withCallbacks(
        _ key: any CallbackSigning, _ scheme: SignatureScheme
    ) async throws -> Double {
        let begin = ContinuousClock.now
        let total = try await withThrowingTaskGroup(of: Int.self) { group in
            for _ in 0..<callers {
                group.addTask {
                    try await withCheckedThrowingContinuation { continuation in
                        CallbackCaller(key, scheme, message, until: begin + length, continuation).sign()
                    }
                }
            }
            return try await group.reduce(0, +)
        }
        return Double(total) / seconds(ContinuousClock.now - begin)
    }
}

private final class CallbackCaller: Sendable {
    private let key: any CallbackSigning
    private let scheme: SignatureScheme
    private let message: [UInt8]
    private let end: ContinuousClock.Instant
    private let continuation: CheckedContinuation<Int, any Error>
    private let done = Atomic(0)

    init(
        _ key: any CallbackSigning, _ scheme: SignatureScheme, _ message: [UInt8], until end: ContinuousClock.Instant,
        _ continuation: CheckedContinuation<Int, any Error>
    ) {
        self.key = key
        self.scheme = scheme
        self.message = message
        self.end = end
        self.continuation = continuation
    }

    func sign() {
        key.sign(message, using: scheme) { [self] result in
            if case .failure(let error) = result { return continuation.resume(throwing: error) }
            let count = done.add(1, ordering: .relaxed).newValue
            if ContinuousClock.now < end { sign() } else { continuation.resume(returning: count) }
        }
    }
}
