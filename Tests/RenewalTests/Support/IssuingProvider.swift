import CertificateProviding
import FoundationEssentials
import Renewal
import Synchronization
import TestSupport

/// A provider whose server issues certificates by the true time, or does what a test says instead.
final class IssuingProvider: CertificateProvider, ReplacedIdentityDiscarding, UpdateAnnouncing, RenewalAdvising {
    var replacement: (any ReplacedIdentityDiscarding)? { self }
    var updates: (any UpdateAnnouncing)? { self }
    var advice: (any RenewalAdvising)? { self }

    /// The advice on each identity; `nil` where there is none.
    typealias Advice = @Sendable (Identity) -> RenewalAdvice?

    func advise(_ advice: @escaping Advice) { state.withLock { $0.advice = advice } }

    func advice(on identity: Identity) -> RenewalAdvice? { state.withLock { $0.known[identity.certificate] } }

    func refreshAdvice(on identity: Identity) async -> Bool {
        state.withLock { state in
            let new = state.advice(identity)
            defer { state.known[identity.certificate] = new }
            return new != state.known[identity.certificate]
        }
    }
    private let announced = AsyncStream<Void>.makeStream()

    func announcements() -> AsyncStream<Void> {
        state.withLock { $0.followers += 1 }
        return announced.stream
    }

    /// Announces an update.
    func announce() { announced.continuation.yield() }

    /// Returns the identity that is given out; the argument is what an authority that works would issue.
    typealias Answer = @Sendable (Identity, any UserInteraction) async throws(ProviderError) -> Identity

    private struct State {
        var stored: Identity?
        var attempts: [Duration] = []
        var renewals: [Duration] = []
        var partings: [Duration] = []
        var shutdowns = 0
        var followers = 0
        var answer: Answer = { issued, _ in issued }
        var advice: Advice = { _ in nil }
        var known: [X509Certificate: RenewalAdvice] = [:]
    }
    let id = ProviderID("issuing")
    private let state = Mutex(State())
    private let clock: TurnedClock
    private let lifetime: Duration
    let authority: TestAuthority

    init(_ clock: TurnedClock, lifetime: Duration) throws {
        self.clock = clock
        self.lifetime = lifetime
        authority = try TestAuthority()
    }

    /// When it was asked, in uptime.
    var attempts: [Duration] { state.withLock { $0.attempts } }
    /// When it gave an identity.
    var renewals: [Duration] { state.withLock { $0.renewals } }

    /// The times when it was told that a replaced identity is not needed any more.
    var partings: [Duration] { state.withLock { $0.partings } }

    /// How many streams of its announcements were asked for.
    var followers: Int { state.withLock { $0.followers } }

    var shutdowns: Int { state.withLock { $0.shutdowns } }

    func shutdown() async { state.withLock { $0.shutdowns += 1 } }

    func answer(_ answer: @escaping Answer) { state.withLock { $0.answer = answer } }

    /// Fails in a time of the host's being up.
    func fail(from begin: Duration, to end: Duration, with error: ProviderError) {
        let clock = clock
        answer { issued, _ throws(ProviderError) in
            if (begin..<end).contains(clock.uptime) { throw error }
            return issued
        }
    }

    /// Issues a certificate that is valid from now on, by the true time.
    @discardableResult
    func issue(validFor lifetime: Duration? = nil, from delay: Duration = .zero) throws -> Identity {
        let start = clock.truth.addingTimeInterval(delay / .seconds(1))
        let end = start.addingTimeInterval((lifetime ?? self.lifetime) / .seconds(1))
        return try authority.issue("client", notBefore: start, notAfter: end, provider: id)
    }

    func store(_ identity: Identity?) { state.withLock { $0.stored = identity } }

    func getCertificate(_ interaction: any UserInteraction) async throws(ProviderError) -> Identity {
        let answer = state.withLock { state in
            state.attempts.append(clock.uptime)
            return state.answer
        }
        let issued: Identity
        do { issued = try issue() } catch { throw ProviderError(.internal, "\(error)") }
        let identity = try await answer(issued, interaction)
        state.withLock { state in
            state.stored = identity
            state.renewals.append(clock.uptime)
        }
        return identity
    }

    func getStoredCertificate() throws(ProviderError) -> Identity? { state.withLock { $0.stored } }
    func deleteStoredCertificate() throws(ProviderError) { store(nil) }

    func discardReplaced(
        by identity: Identity, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        state.withLock { state in
            if state.stored?.certificate == identity.certificate { state.partings.append(clock.uptime) }
        }
        throw ProviderError(.tokenNotPresent, "Not there.")
    }
}

extension RenewingIdentity {
    /// A service that installs nothing.
    convenience init(_ identity: Identity, of provider: IssuingProvider, _ environment: RenewalEnvironment) {
        self.init(identity, of: provider, executor: BlockingExecutor { $0() }, environment: environment)
    }
}

extension Duration {
    static func minutes(_ count: Double) -> Duration { .seconds(60 * count) }
    static func hours(_ count: Double) -> Duration { .seconds(3600 * count) }
    static func days(_ count: Double) -> Duration { .seconds(86_400 * count) }
}

extension [Duration] {
    var intervals: [Duration] { zip(self, dropFirst()).map { $1 - $0 } }
}
