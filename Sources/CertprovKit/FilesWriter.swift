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

    /// How long a new identity may take to be there.
    static let interval = Duration.seconds(5)
    /// How many looks a failure is left alone for: a program that cannot be reloaded is not notified each time.
    static let looksAfterFailure = 12

    /// Writes each new identity until the task is cancelled. A failure is logged once, until it is another one, and the gauge
    /// `certprov_files_stale` is 1 as long as it lasts.
    func run(_ renewal: RenewingIdentity) async {
        var written: (identity: Identity, configuration: LogonConfiguration)?
        var (failure, pause) = (String?.none, 0)
        while !Task.isCancelled {
            let (identity, configuration) = (renewal.current, manager().configuration)
            let isNew =
                written.map { !identity.isSame(as: $0.identity, withChain: true) || configuration != $0.configuration }
                ?? true
            pause = max(0, pause - 1)
            if isNew || failure != nil && pause == 0 {
                written = (identity, configuration)
                do throws(ProviderError) {
                    let export = try IdentityExport(configuration.settings, secrets: secrets)
                    if let export {
                        _ = try await executor.run { [logger] () throws(ProviderError) in
                            try export.write(identity) { logger.warning("\($0)") }
                        }
                    }
                    if export != nil || failure != nil { record(isStale: false) }
                    failure = nil
                } catch {
                    record(isStale: true)
                    pause = Self.looksAfterFailure
                    if failure != error.message {
                        logger.error(
                            "the files for other programs are not up to date; the service tries again",
                            metadata: ["code": "\(error.code)", "reason": "\(error)"])
                    }
                    failure = error.message
                }
            }
            try? await sleep(Self.interval)
        }
    }

    private func record(isStale: Bool) {
        Gauge(label: "certprov_files_stale", factory: metrics).record(isStale ? 1 : 0)
    }
}
