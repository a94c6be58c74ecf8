public import CertificateProviding
public import FoundationEssentials
import Logging
public import LogonCore
public import ServiceLifecycle
import Synchronization

/// Keeps an identity fresh: renews it when it is due, again and again, as a service among those of a program.
///
/// The present identity stays until the new one is there, is valid by the wall clock, has signed a probe that its
/// certificate verifies, and was taken by `install`. Then it is ``current``, and everybody who iterates over
/// ``updates`` gets it. When a renewal fails, it is tried again after a pause (see ``RenewalBackoff``), also when the
/// identity has expired. Nobody is asked anything: what needs a person is a failure.
///
/// Metrics, each with the dimension `provider`: the gauges `certprov_certificate_expiration_timestamp_seconds` and
/// `certprov_renewal_next_attempt_timestamp_seconds`, and the counters `certprov_renewals_total` (by `result`:
/// `renewed`, `pending`, `failed`) and `certprov_renewal_failures_total` (by `code`).
///
/// May be used from any thread.
public final class RenewingIdentity: Service {
    /// Gives the new identity to whoever uses it, such as
    /// ``/CertificateTLS/RotatingTLSCredentials/update(to:)``. An error means that the present one stays.
    public typealias Install = @Sendable (Identity) async throws(CertificateProviderError) -> Void

    private struct State {
        var plan: RenewalPlan
        var isBusy = false
        /// The uptime from which on nobody needs what the present identity has replaced.
        var destroyReplacedAfter: Duration?
    }
    private let state: Mutex<State>
    private let latest: LatestIdentity
    private let source: RenewalSource
    private let environment: RenewalEnvironment
    private let metrics: RenewalMetrics
    private let install: Install

    /// At the most so long the service sleeps before it looks at the wall clock again: that much later it notices that
    /// the clock was set, or that the machine was suspended.
    static let longestSleep = Duration.seconds(60)

    /// So long the replaced identity stays usable: for connections that are being made, and for other processes with the
    /// same store, which are due at the same time, and look again after their longest pause.
    private let replacedKeyGracePeriod: Duration

    /// Keeps fresh what a manager gave. Before it asks the provider it looks at the store, where another process may
    /// have put a newer one.
    ///
    /// - Parameters:
    ///   - identity: The present one, from ``/LogonCore/LogonManager/identity(_:)``.
    ///   - install: Called with each new identity; not with the first.
    public convenience init(
        _ identity: Identity, of manager: LogonManager, backoff: RenewalBackoff = RenewalBackoff(),
        environment: RenewalEnvironment = RenewalEnvironment(), install: @escaping Install = { _ in }
    ) {
        self.init(identity, .manager(manager), backoff, environment, install)
    }

    /// Keeps fresh what one provider gave, without a manager.
    ///
    /// - Parameter executor: Where the provider's blocking call, for what it has stored, is made.
    public convenience init(
        _ identity: Identity, of provider: any CertificateProvider, executor: BlockingExecutor,
        policy: RenewalPolicy = RenewalPolicy(), backoff: RenewalBackoff = RenewalBackoff(),
        environment: RenewalEnvironment = RenewalEnvironment(), install: @escaping Install = { _ in }
    ) {
        self.init(identity, .provider(provider, policy, executor), backoff, environment, install)
    }

    private init(
        _ identity: Identity, _ source: RenewalSource, _ backoff: RenewalBackoff, _ environment: RenewalEnvironment,
        _ install: @escaping Install
    ) {
        replacedKeyGracePeriod = backoff.floor + backoff.ceiling + .seconds(600)
        // A process before this one may have ended before it could part.
        self.state = Mutex(
            State(
                plan: RenewalPlan(source.schedule(identity), backoff: backoff),
                destroyReplacedAfter: environment.uptime() + replacedKeyGracePeriod))
        self.latest = LatestIdentity(identity)
        self.source = source
        self.environment = environment
        self.metrics = RenewalMetrics(identity.provenance.provider, factory: environment.metrics)
        self.install = install
        metrics.presents(identity.certificate)
    }

    /// The present identity. Does not block.
    public var current: Identity { latest.identity }

    /// The present identity and those to come.
    public var updates: IdentityUpdates { IdentityUpdates(latest: latest) }

    /// When the next attempt is planned, by the wall clock as it is now.
    public var nextAttempt: Date {
        let moment = environment.moment
        let delay = max(state.withLock { $0.plan.delay(at: moment) }, .zero)
        return moment.wall.addingTimeInterval(delay / .seconds(1))
    }

    /// Renews until the service is shut down or its task is cancelled. A graceful shutdown ends a pause at once, and
    /// lets a renewal that is under way come to its end; to end that one too, cancel the task.
    ///
    /// At its end it shuts the manager or the provider down, so that a token's sessions are closed: a key in a token
    /// signs no more then. A service group ends its services in reverse order, so put this one before those that use
    /// the identity.
    public func run() async {
        await keepFresh()
        latest.finish()
        await source.shutdown()
    }

    private func keepFresh() async {
        while !Task.isShuttingDownGracefully, !Task.isCancelled {
            let moment = environment.moment
            await partFromReplaced(at: moment)
            metrics.plans(attemptAt: nextAttempt)
            // One that was asked for from outside is waited for.
            let delay = state.withLock { $0.isBusy ? Self.longestSleep : $0.plan.delay(at: moment) }
            if delay > .zero {
                let sleep = environment.sleep
                try? await cancelWhenGracefulShutdown { try await sleep(min(delay, Self.longestSleep)) }
            } else {
                // What went wrong was logged and counted, and the plan has the next attempt.
                _ = try? await renew(using: source.renewIfDue)
            }
        }
    }

    /// Lets the provider destroy what was replaced, when it is time. What cannot be destroyed is left to the next renewal.
    private func partFromReplaced(at moment: Moment) async {
        let isTime = state.withLock { state in
            guard !state.isBusy, let destroyReplacedAfter = state.destroyReplacedAfter,
                moment.uptime >= destroyReplacedAfter
            else { return false }
            state.destroyReplacedAfter = nil
            state.isBusy = true
            return true
        }
        guard isTime else { return }
        defer { state.withLock { $0.isBusy = false } }
        do throws(CertificateProviderError) { try await source.discardReplaced(current) } catch {
            environment.logger.warning(
                "what the present identity has replaced could not be destroyed; the next renewal tries again",
                metadata: ["reason": "\(error)"])
        }
    }

    /// Asks for a new identity now, whether it is due or not, such as when a person wants that.
    ///
    /// - Throws: `operationNotAllowed` while another renewal is under way; `pending` when there is no newer one yet;
    ///   what the provider, the checks and `install` say. The present identity then stays.
    public func renew() async throws(CertificateProviderError) { try await renew(using: source.renew) }

    private func renew(using ask: RenewalSource.Ask) async throws(CertificateProviderError) {
        let isFree = state.withLock { state in
            defer { state.isBusy = true }
            return !state.isBusy
        }
        guard isFree else {
            throw CertificateProviderError(.operationNotAllowed, "A renewal is under way; wait until it has ended.")
        }
        defer { state.withLock { $0.isBusy = false } }
        do throws(CertificateProviderError) {
            let identity = try await ask(environment.now())
            try identity.requireSuccession(to: current)
            try checkValidity(of: identity)
            try await identity.verifyPossession()
            try await install(identity)
            succeeded(with: identity)
        } catch {
            failed(with: error)
            throw error
        }
    }

    /// Refuses an identity that is of no use by the wall clock, unless the present one is not either, and ends earlier.
    private func checkValidity(of identity: Identity) throws(CertificateProviderError) {
        let now = environment.now()
        let present = current.certificate
        let new = identity.certificate
        guard !new.isUsable(at: now), present.isUsable(at: now) || new.notValidAfter <= present.notValidAfter else {
            return
        }
        throw CertificateProviderError(
            .protocolError,
            "The new certificate of '\(new.subject)' is \(new.status(at: now).rawValue) by this host's clock; look at "
                + "the clock, and at the authority.", provider: identity.provenance.provider)
    }

    private func succeeded(with identity: Identity) {
        let moment = environment.moment
        let schedule = source.schedule(identity)
        state.withLock { state in
            state.plan.succeed(with: schedule, at: moment)
            state.destroyReplacedAfter = moment.uptime + replacedKeyGracePeriod
        }
        latest.publish(identity)
        metrics.presents(identity.certificate)
        metrics.count(.renewed)
        let certificate = identity.certificate
        environment.logger.notice(
            "identity renewed",
            metadata: [
                "subject": "\(certificate.subject)", "serial": "\(certificate.serialNumberText)",
                "expires": "\(certificate.notValidAfter.formatted(.iso8601))",
            ])
    }

    private func failed(with error: CertificateProviderError) {
        let moment = environment.moment
        let draw = environment.random()
        state.withLock { $0.plan.fail(with: error, at: moment, draw: draw) }
        if error.code == .pending {
            metrics.count(.pending)
            environment.logger.info("renewal is pending", metadata: ["reason": "\(error)"])
        } else {
            metrics.count(.failed)
            metrics.countFailure(error.code)
            environment.logger.error(
                "renewal failed, the present identity stays", metadata: ["code": "\(error.code)", "reason": "\(error)"])
        }
    }
}

extension X509Certificate {
    /// Whether it is valid, for a clock that may be some minutes behind the authority's.
    fileprivate func isUsable(at now: Date) -> Bool {
        now <= notValidAfter && now.addingTimeInterval(300) >= notValidBefore
    }
}
