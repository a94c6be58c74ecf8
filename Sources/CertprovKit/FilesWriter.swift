import CertificateProviding
import CoreMetrics
import IdentityFiles
import Logging
import Logon
import Renewal

/// Writes the identity of a service for other programs, as the section `Files.` of the property file in force says.
struct FilesWriter {
    let manager: @Sendable () -> LogonManager
    let secrets: SecretReader
    let executor: BlockingExecutor
    let logger: Logger
    let sleep: @Sendable (Duration) async throws -> Void
    var metrics: any MetricsFactory = MetricsSystem.factory
    /// Gets the error of each attempt, and `nil` after one that has succeeded.
    var report: @Sendable (ProviderError?) -> Void = { _ in }

    /// The time after a failure until the next attempt: a program that cannot be reloaded is not notified all the time.
    static let pause = Duration.seconds(60)

    /// Gets an element when the configuration is another one.
    let changes = AsyncStream<Void>.makeStream(bufferingPolicy: .bufferingNewest(1))

    /// Writes each new identity until the task is cancelled. A failure is logged once, until it is another one, and the gauge
    /// `certprov_files_stale` is 1 as long as it lasts.
    func run(_ renewal: RenewingIdentity) async {
        let change = changes.continuation
        let following = Task { for await _ in renewal.updates { change.yield() } }
        defer { following.cancel() }
        var (failure, retry) = (String?.none, Task<Void, Never>?.none)
        defer { retry?.cancel() }
        for await _ in changes.stream {
            retry?.cancel()
            do throws(ProviderError) {
                let export = try IdentityExport(manager().configuration.settings, secrets: secrets)
                if let export {
                    _ = try await executor.run { [logger] () throws(ProviderError) in
                        _ = try export.write(renewal.current, logger: logger) { logger.warning("\($0)") }
                        return try export.notify()
                    }
                }
                if export != nil || failure != nil { record(isStale: false) }
                failure = nil
                report(nil)
            } catch {
                record(isStale: true)
                if failure != error.message {
                    logger.error(
                        "the files for other programs are not up to date; the service tries again",
                        metadata: ["code": "\(error.code)", "reason": "\(error)"])
                }
                failure = error.message
                report(error)
                retry = Task { if (try? await sleep(Self.pause)) != nil { change.yield() } }
            }
        }
    }

    private func record(isStale: Bool) {
        Gauge(label: "certprov_files_stale", factory: metrics).record(isStale ? 1 : 0)
    }
}
