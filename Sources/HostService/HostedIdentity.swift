import CertificateProviding
import CertprovKit
import FoundationEssentials
import HostSockets
import Logging
import NIOCore
import Renewal
import ServiceLifecycle
import Synchronization

/// One identity of the host service: it is obtained, renewed and written for other programs, and a failure is tried again. It
/// depends on no other one.
final class HostedIdentity: Sendable {
    let file: HostConfiguration.File
    private let make: @Sendable () async throws(ProviderError) -> CertprovLogon
    private let check: @Sendable () throws(ProviderError) -> Void
    private let logger: Logger
    private let sleep: @Sendable (Duration) async throws -> Void

    private enum Phase {
        case begins
        /// The first attempt has failed, and the next one is at this time.
        case waits(until: Date, pause: Task<Void, Never>?)
        case runs(CertprovLogon, RenewingIdentity, IdentityTunnels)
        case ended
    }
    private struct State {
        var phase = Phase.begins
        /// The error of the last attempt to begin, or to read the property file again.
        var failure: ProviderError?
        /// Those of the property file in force: to read them takes the databases of users and groups.
        var grants = Grants()
        /// Those of the property file as it was read last. A grant that is gone ends at once: to take the rest of the file may have to
        /// wait for a renewal or a token, or fail. `nil` for the file in force.
        var permitted: Grants?
        /// Whether the first attempt is still to come, or its tunnels.
        var isBeginning = true
    }
    private let state = Mutex(State())
    /// Gets an element when the tunnels are to be as the property file in force has them.
    private let configured = AsyncStream<Void>.makeStream(bufferingPolicy: .bufferingNewest(1))
    private let notices: UnitNotices
    private let read: ServeSection.Reading
    private let readGrants: @Sendable () async throws(ProviderError) -> Grants
    private let tunnels: @Sendable (CertprovLogon, Logger) -> IdentityTunnels
    private let rereads = AsyncStream<Void>.makeStream(bufferingPolicy: .bufferingNewest(1))
    private let grantReads = AsyncStream<Void>.makeStream(bufferingPolicy: .bufferingNewest(1))

    /// - Parameters:
    ///   - pace: That of all identities.
    ///   - read: Reads what the property file in force has for callers.
    ///   - readGrants: Reads the grants of the property file.
    ///   - make: Reads the property file.
    ///   - check: Refuses an identity by its entry of the store, before it is in use.
    init(
        _ file: HostConfiguration.File, logger: Logger, pace: UnitPace, read: @escaping ServeSection.Reading,
        readGrants: @escaping @Sendable () async throws(ProviderError) -> Grants,
        tunnels: @escaping @Sendable (CertprovLogon, Logger) -> IdentityTunnels,
        sleep: @escaping @Sendable (Duration) async throws -> Void,
        make: @escaping @Sendable () async throws(ProviderError) -> CertprovLogon,
        check: @escaping @Sendable () throws(ProviderError) -> Void
    ) {
        (self.file, self.read, self.readGrants, self.tunnels) = (file, read, readGrants, tunnels)
        self.make = make
        self.check = check
        self.sleep = sleep
        var logger = logger
        logger[metadataKey: "identity"] = "\(file.name)"
        self.logger = logger
        notices = UnitNotices(file.name, logger: logger, sleep: sleep, pace: pace)
    }

    /// Whether the first attempt is still to come, or its tunnels.
    var isBeginning: Bool { state.withLock(\.isBeginning) }

    /// Reads the property file again, soon. A wrong one leaves the last good state.
    func reread() {
        grantReads.continuation.yield()
        rereads.continuation.yield()
    }

    /// Keeps the identity until the service is shut down or the task is cancelled.
    func run() async {
        await withTaskGroup(of: Void.self) { tasks in
            tasks.addTask { for await _ in self.rereads.stream { await self.readAgain() } }
            tasks.addTask {
                for await _ in self.grantReads.stream {
                    // An error of the file is told when the rest of it is read.
                    guard let grants = try? await self.readGrants() else { continue }
                    self.state.withLock { $0.permitted = grants }
                }
            }
            await keep()
            tasks.cancelAll()
        }
        state.withLock { ($0.phase, $0.isBeginning) = (.ended, false) }
    }

    private func keep() async {
        var failures = 0
        while !Task.isShuttingDownGracefully, !Task.isCancelled {
            do throws(ProviderError) {
                let logon = try await make()
                let renewal: RenewingIdentity
                do throws(ProviderError) {
                    renewal = try await logon.renewingIdentity()
                    try check()
                } catch {
                    await logon.manager.shutdown()
                    throw error
                }
                let tunnels = tunnels(logon, logger)
                let grants = (try? read(logon.manager.configuration).grants) ?? Grants()
                state.withLock { $0 = State(phase: .runs(logon, renewal, tunnels), grants: grants) }
                logger.notice("the identity is ready", metadata: ["subject": "\(renewal.current.certificate.subject)"])
                return await run(logon, renewal, tunnels)
            } catch {
                failures += 1
                await pause(after: error, failures: failures)
            }
        }
    }

    /// Renews the identity until the tunnels that use it have ended.
    private func run(_ logon: CertprovLogon, _ identity: RenewingIdentity, _ tunnels: IdentityTunnels) async {
        let quiet = Logger(label: "certprov.lifecycle") { _ in SwiftLogNoOpLogHandler() }
        let renewal = ServiceGroup(services: [logon.renewal], logger: quiet)
        // Apart from the shutdown of this task.
        let renewing = Task.detached { try? await renewal.run() }
        let telling = Task { [notices] in
            await notices.follow(identity.updates, isCurrent: { $0.isSame(as: identity.current, withChain: true) }) {
                logon.manager.configuration.settings
            }
        }
        defer { telling.cancel() }
        configured.continuation.yield()
        for await _ in configured.stream.cancelOnGracefulShutdown() {
            let found = Result { () throws(ProviderError) in try read(logon.manager.configuration) }
            // The user of a grant may be gone since the file was read: the tunnels tell, and the grants stay.
            if let grants = try? found.get().grants { state.withLock { $0.grants = grants } }
            let isDone = await tunnels.apply(found)
            state.withLock { $0.isBeginning = false }
            if isDone { continue }
            Task { [sleep, configured] in
                if (try? await sleep(.seconds(5))) != nil { configured.continuation.yield() }
            }
        }
        await tunnels.stop()
        if Task.isCancelled { renewing.cancel() } else { await renewal.triggerGracefulShutdown() }
        await renewing.value
    }

    /// Waits as a renewal does that has failed.
    private func pause(after error: ProviderError, failures: Int) async {
        let backoff = RenewalBackoff()
        let delay = backoff.delay(
            after: error, failures: failures, window: backoff.ceiling * 16, longestDelay: nil,
            draw: .random(in: 0..<1))
        let next = Date().addingTimeInterval(delay / .seconds(1))
        logger.error(
            "the identity cannot be had yet",
            metadata: ["code": "\(error.code)", "reason": "\(error)", "next": "\(next.formatted(.iso8601))"])
        let pause = Task { [sleep] in _ = try? await sleep(delay) }
        state.withLock {
            $0 = State(phase: .waits(until: next, pause: pause), failure: error, isBeginning: false)
        }
        await cancelWhenGracefulShutdown {
            await withTaskCancellationHandler {
                await pause.value
            } onCancel: {
                pause.cancel()
            }
        }
        pause.cancel()
    }

    private func readAgain() async {
        while !Task.isCancelled {
            let phase = state.withLock(\.phase)
            switch phase {
            case .ended: return
            case .waits(_, let pause): return pause?.cancel() ?? ()
            case .begins: break
            case .runs(let logon, _, _):
                do throws(ProviderError) {
                    if try await logon.reload() {
                        logger.notice("the property file was read again")
                        configured.continuation.yield()
                    }
                    return state.withLock { $0.failure = nil }
                } catch {
                    // Until then the file in force is not the one that an administrator sees.
                    state.withLock { $0.failure = error }
                    guard error.reason == .busy else {
                        return logger.error(
                            "the property file was not read again, the last good state stays",
                            metadata: ["code": "\(error.code)", "reason": "\(error)"])
                    }
                }
            }
            // Another operation is in progress.
            guard (try? await sleep(.seconds(1))) != nil else { return }
        }
    }

    /// The identity for callers; `nil` while there is none.
    var served: ServedIdentity? {
        let (phase, grants) = state.withLock { state in
            (state.phase, state.permitted.map { state.grants.limited(to: $0) } ?? state.grants)
        }
        guard case .runs(let logon, let renewal, _) = phase else { return nil }
        return ServedIdentity(
            name: file.name, identities: [renewal.current] + renewal.replaced, grants: grants,
            handsOutKey: logon.manager.configuration.settings[ServeSection.handsOutKey])
    }

    /// The error of the last attempt to begin, or to read the property file again.
    var failure: ProviderError? { state.withLock(\.failure) }

    /// The reason why there is no identity, or not all of its tunnels; `nil` if all is there.
    var obstacle: ProviderError? {
        get async {
            let (phase, failure) = state.withLock { ($0.phase, $0.failure) }
            guard case .runs(_, _, let tunnels) = phase else { return failure }
            return await tunnels.failures.first
        }
    }

    /// How the identity is now.
    func status() async -> HostStatus.Identity {
        let (phase, failure) = state.withLock { ($0.phase, $0.failure) }
        var status = HostStatus.Identity(name: file.name, file: file.path)
        var errors = [failure].compactMap(\.self)
        switch phase {
        case .begins: break
        case .waits(let next, _): (status.state, status.nextAttempt) = (.waits, next)
        case .ended: status.state = .ended
        case .runs(let logon, let renewal, let tunnels):
            let identity = renewal.current
            status.state = .ready
            status.provider = identity.provenance.provider.rawValue
            status.subject = identity.certificate.subject
            status.expires = identity.expiry
            status.nextAttempt = renewal.nextAttempt
            status.tunnels = await tunnels.status
            errors += logon.failures + notices.failures + (await tunnels.failures)
        }
        status.errors = errors.map(HostStatus.Failure.init)
        return status
    }
}
