import CertprovKit
import Logging
import ServiceLifecycle
import UnixSignals

/// Reads the property file again at each SIGHUP, and renews the identity at each SIGUSR1.
struct ReloadAtHangUp: Service {
    let logon: CertprovLogon
    let logger: Logger

    func run() async throws {
        for await signal in await UnixSignalsSequence(trapping: .sighup, .sigusr1).cancelOnGracefulShutdown() {
            do {
                if signal == .sighup { try await logon.reload() } else { try await logon.renewingIdentity().renew() }
            } catch { logger.error("\(error)") }
        }
    }
}
