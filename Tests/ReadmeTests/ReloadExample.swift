import CertprovKit
import Logging
import ServiceLifecycle
import UnixSignals

/// Reads the property file again at each SIGHUP.
struct ReloadAtHangUp: Service {
    let logon: CertprovLogon
    let logger: Logger

    func run() async throws {
        for await _ in await UnixSignalsSequence(trapping: .sighup).cancelOnGracefulShutdown() {
            do { try await logon.reload() } catch { logger.error("\(error)") }
        }
    }
}
