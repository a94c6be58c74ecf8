import CertificateProviding
import FoundationEssentials
import IdentityFiles
import Logging
import Renewal
import Synchronization

/// Has units take each new identity: `Serve.reload` and `Serve.restart`.
final class UnitNotices: Sendable {
    private let name: String
    private let logger: Logger
    private let sleep: @Sendable (Duration) async throws -> Void
    private let begin: @Sendable (UnitJob) throws(ProviderError) -> Void
    private let executor = BlockingExecutor.threads(maximum: 1)
    private let errors = Mutex<[ProviderError]>([])
    private let pace: UnitPace

    /// - Parameters:
    ///   - name: The name of the identity.
    ///   - pace: That of all identities.
    ///   - begin: Begins a job. May block.
    init(
        _ name: String, logger: Logger, sleep: @escaping @Sendable (Duration) async throws -> Void,
        pace: UnitPace,
        begin: @escaping @Sendable (UnitJob) throws(ProviderError) -> Void = { job throws(ProviderError) in
            try job.begin()
        }
    ) {
        (self.name, self.logger, self.sleep, self.pace, self.begin) = (name, logger, sleep, pace, begin)
    }

    /// Why units were not told, while they are to be told.
    var failures: [ProviderError] { errors.withLock(\.self) }

    /// Tells the units of each identity but the first, once it is the current one, until there are no more or the task is cancelled.
    ///
    /// The first is told where a unit has loaded another certificate as a credential: it was renewed while the service was away.
    ///
    /// - Parameter settings: Returns the settings that are in force.
    func follow(
        _ updates: some AsyncSequence<Identity, Never>, isCurrent: @escaping @Sendable (Identity) -> Bool,
        settings: @escaping @Sendable () -> Parameters
    ) async {
        var last: Identity?
        for await identity in updates {
            defer { last = identity }
            if let last {
                if !identity.isSame(as: last, withChain: true) {
                    await tell(identity, isCurrent) { ServeSection.jobs(settings()) }
                }
            } else {
                await tell(identity, isCurrent) { [self] in
                    ServeSection.jobs(settings()).filter { isOutdated($0.unit, identity) }
                }
            }
        }
    }

    /// Tells units, and those that cannot be told again each minute, until there is a newer identity.
    private func tell(
        _ identity: Identity, _ isCurrent: (Identity) -> Bool, _ jobs: @escaping @Sendable () -> [UnitJob]
    ) async {
        var told: Set<UnitJob> = []
        repeat {
            let left = await blocking { [told] in jobs().filter { !told.contains($0) } }
            var failures: [ProviderError] = []
            for job in left {
                // Another identity is about to have the unit told, which takes this one as well.
                guard let pause = pace.pause(before: job) else {
                    told.insert(job)
                    continue
                }
                guard (try? await sleep(pause)) != nil else { return }
                let failure = await blocking { [begin] () -> ProviderError? in
                    do throws(ProviderError) { try begin(job) } catch { return error }
                    return nil
                }
                if let failure {
                    failures.append(failure)
                } else {
                    told.insert(job)
                    logger.notice("a unit takes the new identity", metadata: ["job": "\(job)"])
                }
            }
            let before = errors.withLock { errors in
                defer { errors = failures }
                return errors
            }
            for failure in failures where !before.contains(where: { $0.message == failure.message }) {
                logger.error(
                    "a unit is not told of the new identity",
                    metadata: ["code": "\(failure.code)", "reason": "\(failure)"])
            }
            if failures.isEmpty { return }
        } while (try? await sleep(.seconds(60))) != nil && isCurrent(identity)
    }

    private func blocking<T: Sendable>(_ body: @escaping @Sendable () -> T) async -> T {
        await withCheckedContinuation { continuation in executor.submit { continuation.resume(returning: body()) } }
    }

    /// Whether a unit that runs has loaded another certificate of this identity (systemd.exec(5), LoadCredential=). Blocks.
    private func isOutdated(_ unit: String, _ identity: Identity) -> Bool {
        [CredentialClaim.Part.chain, .pair].contains { part in
            // By the root of the service manager, which hides the credentials of a unit from others.
            let file = "/proc/1/root/run/credentials/\(unit)/\(name).\(part.rawValue)"
            guard let loaded = try? PEMFile(path: file).certificates().first else { return false }
            return loaded != identity.certificate
        }
    }
}
