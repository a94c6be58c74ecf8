public import CertificateProviding
public import FoundationEssentials
import Logging
public import Logon
public import ServiceLifecycle
import Synchronization

/// A service that renews an identity whenever it is due.
///
/// The current identity stays in use until the new one is available, is valid by the wall clock, has passed a test
/// signature, and was accepted by `install`. Then it becomes ``current``, and all tasks that iterate over ``updates``
/// get it. A provider that announces an update (``/CertificateProviding/UpdateAnnouncing``) is asked at once, but not more than
/// once a minute. An identity that another process stores is taken within ten seconds, if it comes from a manager whose store is on
/// this host. A failed renewal or update is tried again after a pause (see ``RenewalBackoff``), also after the identity
/// has expired. One that is pending is logged as a warning from a twentieth of the lifetime before the expiry on, and as an error
/// after it; all other failures are errors.
/// The user is never asked: a renewal that needs the user fails.
///
/// Metrics, each with the dimension `provider`: the gauges `certprov_certificate_expiration_timestamp_seconds` and
/// `certprov_renewal_next_attempt_timestamp_seconds`, and the counters `certprov_renewals_total` (by `result`:
/// `renewed`, `pending`, `failed`), `certprov_renewal_failures_total` (by `code`) and `certprov_recoveries_total`.
///
/// May be used from any thread.
public final class RenewingIdentity: Service {
    /// Installs the new identity where it is used, such as ``/CertificateTLS/RotatingTLS/update(to:)``. If
    /// it throws, the current identity stays in use.
    public typealias Install = @Sendable (Identity) async throws(ProviderError) -> Void

    private struct State {
        var plan: RenewalPlan
        var isBusy = false
        /// The uptime after which the replaced identity is no longer needed.
        var destroyReplacedAfter: Duration?
        /// The identities that were replaced since that was last done, the latest first.
        var replaced: [Identity] = []
        /// The pause between two attempts.
        var pause: Task<Void, Never>?
        /// The metrics of the current identity's provider.
        var metrics: RenewalMetrics
        /// Gets an element when another provider's announcements are to be followed.
        var changes: AsyncStream<Void>.Continuation?
        /// The error of the last attempt; `nil` since the last success.
        var failure: ProviderError?
    }
    private let state: Mutex<State>
    private let latest: LatestIdentity
    private let source: RenewalSource
    private let environment: RenewalEnvironment
    private var metrics: RenewalMetrics { state.withLock(\.metrics) }
    private let install: Install

    /// The maximum time between two readings of the wall clock, and so the maximum delay until a clock change or a
    /// suspended machine is noticed.
    static let longestSleep = Duration.seconds(60)

    /// The grace period: how long the replaced identity stays usable, for connections that are being made, and for
    /// other processes with the same store, which are due at the same time and read the store after their longest
    /// pause.
    private let replacedKeyGracePeriod: Duration
    private static let longestMemory = 3

    /// Creates a service that renews an identity of a manager. Before it asks the provider, it reads the store, where
    /// another process may have put a newer identity.
    ///
    /// - Parameters:
    ///   - identity: The current identity, from ``/Logon/LogonManager/identity(_:)``.
    ///   - install: Called with each new identity, but not with the first.
    public convenience init(
        _ identity: Identity, of manager: LogonManager, backoff: RenewalBackoff = RenewalBackoff(),
        environment: RenewalEnvironment = RenewalEnvironment(), install: @escaping Install = { _ in }
    ) {
        self.init(
            identity, .manager({ manager }) { await manager.shutdown() }, backoff, environment, Self.probing(install))
    }

    /// - Parameters:
    ///   - manager: Returns the manager to use now: after a new configuration it is another one.
    ///   - install: As for the others. It lets the key sign.
    ///   - shutdown: Shuts down all that there are.
    package convenience init(
        _ identity: Identity, managedBy manager: @escaping @Sendable () -> LogonManager,
        environment: RenewalEnvironment, install: @escaping Install, shutdown: @escaping @Sendable () async -> Void
    ) {
        self.init(
            identity, .manager(manager, shutdown: shutdown), RenewalBackoff(), environment, install)
    }

    /// Creates a service that renews an identity of one provider, without a manager.
    ///
    /// - Parameter executor: Runs the provider's blocking call that reads the stored identity.
    public convenience init(
        _ identity: Identity, of provider: any CertificateProvider, executor: BlockingExecutor,
        policy: RenewalPolicy = RenewalPolicy(), backoff: RenewalBackoff = RenewalBackoff(),
        environment: RenewalEnvironment = RenewalEnvironment(), install: @escaping Install = { _ in }
    ) {
        self.init(identity, .provider(provider, policy, executor), backoff, environment, Self.probing(install))
    }

    /// Lets the key sign before `install` gets the identity, which need not do so.
    private static func probing(_ install: @escaping Install) -> Install {
        { identity throws(ProviderError) in
            try await identity.verifyPossession()
            try await install(identity)
        }
    }

    private init(
        _ identity: Identity, _ source: RenewalSource, _ backoff: RenewalBackoff, _ environment: RenewalEnvironment,
        _ install: @escaping Install
    ) {
        replacedKeyGracePeriod = backoff.floor + backoff.ceiling + .seconds(600)
        let metrics = RenewalMetrics(identity.provenance.provider, factory: environment.metrics)
        // A process before this one may have ended before it could part.
        self.state = Mutex(
            State(
                plan: RenewalPlan(source.schedule(identity), backoff: backoff),
                destroyReplacedAfter: environment.uptime() + replacedKeyGracePeriod, metrics: metrics))
        self.latest = LatestIdentity(identity)
        self.source = source
        self.environment = environment
        self.install = install
        metrics.presents(identity)
    }

    /// The current identity. Does not block.
    public var current: Identity { latest.identity }

    /// The identities that the current one has replaced and whose keys still sign, the latest first: at most three.
    package var replaced: [Identity] { state.withLock(\.replaced) }

    /// The current identity and all later ones.
    public var updates: IdentityUpdates { IdentityUpdates(latest: latest) }

    /// The error of the last attempt; `nil` if it has succeeded, and before the first.
    package var failure: ProviderError? { state.withLock(\.failure) }

    /// The planned time of the next attempt, by the current wall clock.
    public var nextAttempt: Date {
        let moment = environment.moment
        let delay = max(state.withLock { $0.plan.delay(at: moment) }, .zero)
        return moment.wall.addingTimeInterval(delay / .seconds(1))
    }

    /// Renews the identity until the service is shut down or its task is cancelled. A graceful shutdown ends a pause at
    /// once, and lets a renewal in progress finish; cancel the task to end that too.
    ///
    /// At the end it shuts down the manager or the provider, which closes the sessions of tokens: a key in a token
    /// cannot sign afterwards. A service group ends its services in reverse order, so list this service before those
    /// that use the identity.
    public func run() async {
        await withTaskGroup(of: Void.self) { tasks in
            tasks.addTask { await self.followAnnouncements() }
            tasks.addTask { await self.followStore() }
            await keepFresh()
            tasks.cancelAll()
        }
        latest.finish()
        await source.shutdown()
    }

    /// Follows the announcements of the current identity's provider, and of the one that replaces it.
    private func followAnnouncements() async {
        let (stream, continuation) = AsyncStream<Void>.makeStream(bufferingPolicy: .bufferingNewest(1))
        state.withLock { $0.changes = continuation }
        var following = Task { await noteAnnouncements() }
        defer { following.cancel() }
        for await _ in stream {
            following.cancel()
            following = Task { await noteAnnouncements() }
        }
    }

    /// Notes announcements of updates.
    private func noteAnnouncements() async {
        guard let updates = source.updates(current) else { return }
        let isLocal = updates.isLocal
        for await _ in updates.announcements() {
            state.withLock { $0.plan.announceUpdate(isLocal: isLocal) }
            endPauseIfDue()
        }
    }

    /// Takes identities that other processes store: the command, or another service. A provider need not notice them.
    private func followStore() async {
        var inForce = await source.lookAtStore()
        guard !inForce.isEmpty else { return }
        // Something may have been stored since the current identity was read.
        inForce = inForce.map { _ in nil }
        var watch = FileWatch<[FileStamp?]>()
        while !Task.isCancelled {
            do { try await environment.look(RenewalPlan.localInterval) } catch { return }
            let seen = await source.lookAtStore()
            guard watch.isDue(seen, inForce: inForce) else { continue }
            do throws(ProviderError) {
                try await takeStored()
                inForce = seen
                watch.succeeded()
            } catch {
                // A renewal is in progress: the next look tries again.
                guard error.code != .operationNotAllowed, watch.failed(error) else { continue }
                environment.logger.error(
                    "the stored identity is not taken, the current identity stays in use",
                    metadata: ["code": "\(error.code)", "reason": "\(error)"])
            }
        }
    }

    /// Takes the stored identity, if it is another one.
    private func takeStored() async throws(ProviderError) {
        // Most changes are the service's own, or of another identity: they must not refuse a renewal.
        let former = current
        guard let stored = try await source.stored(), !stored.isSame(as: former, withChain: true) else { return }
        try begin()
        defer { end() }
        // A renewal that has ended since may have stored a newer one.
        guard current.isSame(as: former, withChain: true) else { throw Self.isBusy }
        try await take(stored, "identity taken from the store")
        metrics.count(.renewed)
    }

    /// Puts an identity into use. Its plan begins with it.
    private func take(_ identity: Identity, _ event: Logger.Message) async throws(ProviderError) {
        try checkValidity(of: identity)
        try await install(identity)
        let schedule = source.schedule(identity)
        let taken = environment.moment
        let failure = state.withLock { state in
            state.plan.succeed(with: schedule, at: taken)
            defer { state.failure = nil }
            return state.failure
        }
        publish(
            identity, event, isOfSameProvider: identity.provenance.provider == current.provenance.provider)
        if failure != nil { IdentityEvent.recovered.write(to: environment.logger, identity) }
    }

    /// Waits until `duration` has passed or an attempt becomes due.
    private func pause(for duration: Duration) async {
        let sleep = environment.sleep
        let pause = Task { _ = try? await sleep(duration) }
        state.withLock { $0.pause = pause }
        endPauseIfDue()
        await withTaskCancellationHandler {
            await pause.value
        } onCancel: {
            pause.cancel()
        }
        state.withLock { $0.pause = nil }
    }

    private func endPauseIfDue() {
        let moment = environment.moment
        state.withLock { !$0.isBusy && $0.plan.delay(at: moment) <= .zero ? $0.pause : nil }?.cancel()
    }

    private func keepFresh() async {
        while !Task.isShuttingDownGracefully, !Task.isCancelled {
            let moment = environment.moment
            await partFromReplaced(at: moment)
            if let schedule = await source.advised(current) {
                state.withLock { $0.plan.reschedule(schedule, at: moment) }
            }
            metrics.plans(attemptAt: nextAttempt)
            // An attempt that was asked for from outside is waited for.
            let delay = state.withLock { $0.isBusy ? Self.longestSleep : $0.plan.delay(at: moment) }
            if delay > .zero {
                await cancelWhenGracefulShutdown { await self.pause(for: min(delay, Self.longestSleep)) }
            } else {
                await attempt(at: moment)
            }
        }
    }

    /// Renews the identity if it is due, or asks for the update that the provider has announced. Logs and counts a failure; the
    /// plan has the next attempt.
    private func attempt(at moment: Moment) async {
        let (source, current) = (source, current)
        if state.withLock({ $0.plan.schedule.isDue(at: moment.wall) }) {
            _ = try? await renew(using: source.renewIfDue)
        } else {
            _ = try? await renew(isUpdate: true) { _ throws(ProviderError) in
                try await source.successor(current)
            }
        }
    }

    /// Destroys the replaced identity through the provider, after the grace period. A failure is left to the next
    /// renewal.
    private func partFromReplaced(at moment: Moment) async {
        let isTime = state.withLock { state in
            guard !state.isBusy, let destroyReplacedAfter = state.destroyReplacedAfter,
                moment.uptime >= destroyReplacedAfter
            else { return false }
            state.destroyReplacedAfter = nil
            state.replaced = []
            state.isBusy = true
            return true
        }
        guard isTime else { return }
        defer { end() }
        do throws(ProviderError) { try await source.discardReplaced(current) } catch {
            environment.logger.warning(
                "the replaced identity could not be destroyed; the next renewal tries again",
                metadata: ["reason": "\(error)"])
        }
    }

    /// Renews the identity now, whether it is due or not.
    ///
    /// - Throws: `operationNotAllowed` while another renewal is in progress; `pending` if there is no newer identity
    ///   yet; errors of the provider, the checks and `install`. The current identity then stays in use.
    public func renew() async throws(ProviderError) { try await renew(using: source.renew) }

    /// Plans anew by a configuration that has just come into force: an identity that is due is tried at once. For a time at which the
    /// manager lets other operations begin.
    package func planAnew() {
        let schedule = source.schedule(current)
        state.withLock { $0.plan.restart(with: schedule, isSameCertificate: true) }
        endPauseIfDue()
    }

    /// Takes an identity that another configuration has led to. It need not be newer. ``planAnew()`` follows.
    ///
    /// - Parameters:
    ///   - isOfSameProvider: Whether it comes from the same object as the current one.
    ///   - install: Puts the identity and the configuration into use. It lets the key sign.
    /// - Throws: `operationNotAllowed` while a renewal is in progress; errors of the checks and of `install`. The current
    ///   identity then stays in use.
    package func adopt(
        _ identity: Identity, isOfSameProvider: Bool, install: Install
    ) async throws(ProviderError) {
        try begin()
        defer { state.withLock { $0.isBusy = false } }
        let isSameCertificate = identity.certificate == current.certificate
        if !isSameCertificate { try checkValidity(of: identity) }
        try await install(identity)
        let schedule = source.schedule(identity)
        state.withLock { state in
            state.plan.restart(with: schedule, isSameCertificate: isSameCertificate)
            state.failure = nil
        }
        publish(identity, "identity of the new configuration", isOfSameProvider: isOfSameProvider)
    }

    private func begin() throws(ProviderError) {
        let isFree = state.withLock { state in
            defer { state.isBusy = true }
            return !state.isBusy
        }
        guard isFree else { throw Self.isBusy }
    }

    private static let isBusy = ProviderError(
        .operationNotAllowed, "A renewal is in progress; wait until it has finished.", reason: .busy)

    private func end() {
        state.withLock { $0.isBusy = false }
        endPauseIfDue()
    }

    /// - Parameter isUpdate: Whether the provider has announced an identity, and need not have one.
    private func renew(
        isUpdate: Bool = false, using ask: RenewalSource.Ask
    ) async throws(ProviderError) {
        try begin()
        defer { end() }
        let moment = environment.moment
        state.withLock { $0.plan.begin(at: moment) }
        do throws(ProviderError) {
            let identity = try await ask(moment.wall)
            if isUpdate, identity.isSame(as: current, withChain: true) {
                return state.withLock { $0.plan.endUpdate() }
            }
            // A source may have put other issuers beside the same certificate.
            if !isUpdate { try identity.requireSuccession(to: current, at: moment.wall) }
            let isRecovery =
                current.key.attester != nil && current.certificate.status(at: moment.wall) == .expired
            try await take(identity, isRecovery ? "identity recovered" : "identity renewed")
            // Of one that it has asked for itself, and of a refusal, the manager tells.
            if isUpdate { IdentityEvent.renewed.write(to: environment.logger, identity) }
            metrics.count(.renewed)
            if isRecovery { metrics.countRecovery() }
        } catch {
            if isUpdate, error.isRefusal {
                IdentityEvent.refused.write(
                    to: environment.logger, nil, of: current.provenance.provider, failedWith: error)
            }
            let error = error.replacing(current, at: moment.wall)
            failed(with: error)
            throw error
        }
    }

    /// Refuses an identity whose chain is not valid by the wall clock, or not for TLS clients, unless the current one is not
    /// either and its certificate expires earlier; and a leaf alone whose issuer is in the chain of the current one, which is valid.
    private func checkValidity(of identity: Identity) throws(ProviderError) {
        let now = environment.now()
        let present = current
        let lost = identity.lostIssuer(of: present.certificateChain, at: now)
        guard let obstacle = lost ?? identity.obstacle(at: now),
            lost != nil || !identity.isAsUsable(as: present, at: now)
                || identity.certificate.notValidAfter <= present.certificate.notValidAfter
        else { return }
        throw ProviderError(
            .protocolError,
            "The new certificate of '\(identity.certificate.subject)' cannot be used: \(obstacle). The one in use "
                + "stays. Obtain another certificate with its chain, or check this host's clock.",
            provider: identity.provenance.provider)
    }

    private func publish(_ identity: Identity, _ event: Logger.Message, isOfSameProvider: Bool) {
        let (old, new) = (current.provenance.provider, identity.provenance.provider)
        if old != new {
            metrics.end()
            state.withLock { $0.metrics = RenewalMetrics(new, factory: environment.metrics) }
        }
        let before = current
        state.withLock { state in
            state.destroyReplacedAfter = environment.uptime() + replacedKeyGracePeriod
            if before.certificate != identity.certificate {
                state.replaced = Array(([before] + state.replaced).prefix(Self.longestMemory))
            }
        }
        latest.publish(identity)
        if !isOfSameProvider { _ = state.withLock(\.changes)?.yield() }
        metrics.presents(identity)
        let certificate = identity.certificate
        environment.logger.notice(
            event,
            metadata: [
                "subject": "\(certificate.subject)", "serial": "\(certificate.serialNumberText)",
                "expires": "\(identity.expiry.formatted(.iso8601))",
            ])
    }

    /// How urgent it is that there is no new identity: from the margin before the expiry on, and after it.
    private func level(at now: Date) -> Logger.Level {
        let schedule = state.withLock(\.plan.schedule)
        return now > schedule.expiry ? .error : now >= schedule.latest ? .warning : .info
    }

    private func failed(with error: ProviderError) {
        let moment = environment.moment
        let draw = environment.random()
        state.withLock { state in
            state.plan.fail(with: error, at: moment, draw: draw)
            state.failure = error
        }
        // Processes with the same store are due at the same time: one renews, and the others use the result.
        if error.code == .pending || error.reason == .busy {
            metrics.count(.pending)
            environment.logger.log(
                level: level(at: moment.wall), "renewal is pending",
                metadata: [
                    "reason": "\(error)", "expires": "\(current.expiry.formatted(.iso8601))",
                ])
        } else {
            metrics.count(.failed)
            metrics.countFailure(error.code)
            environment.logger.error(
                "renewal failed, the current identity stays in use",
                metadata: ["code": "\(error.code)", "reason": "\(error)"])
        }
    }
}
