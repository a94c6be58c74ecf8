import CertificateProviding
import CertificateTLS
import HostSockets
import Logging
import Logon
import NIOCore

/// The tunnels of one identity, as its property file in force has them.
actor IdentityTunnels {
    private let tls: Tunnel.TLSSource
    private let group: @Sendable () -> any EventLoopGroup
    private let logger: Logger
    private var tunnels: [Tunnel] = []
    /// Those that are no longer in the property file, while their open connections go on.
    private var leaving: [Tunnel] = []
    /// The errors of those that cannot listen.
    private(set) var failures: [ProviderError] = []
    private var isStopped = false
    /// How long connections go on when the service ends.
    private let grace: Duration

    /// How long they go on when their tunnel is no longer in the property file.
    private static let removalGrace = Duration.seconds(3600)

    /// - Parameter group: The event loops of all tunnels of the process; is called for the first one.
    init(
        tls: @escaping Tunnel.TLSSource, on group: @escaping @Sendable () -> any EventLoopGroup, grace: Duration,
        logger: Logger
    ) {
        (self.tls, self.group, self.grace, self.logger) = (tls, group, grace, logger)
    }

    var status: [HostStatus.Tunnel] {
        tunnels.map { tunnel in
            let settings = tunnel.settings
            return .init(
                mode: settings.mode.rawValue, listen: "\(settings.listen)", target: "\(settings.target)",
                connections: tunnel.connections)
        }
    }

    /// Brings the tunnels to what a configuration has: those at the same address go on with new settings, others end or begin.
    ///
    /// - Parameter found: An error leaves them as they are.
    /// - Returns: Whether all of them listen.
    func apply(_ found: Result<(tunnels: [TunnelSettings], grants: Grants), ProviderError>) async -> Bool {
        var new: [(TunnelSettings, Grants)] = []
        var (kept, ending): ([Tunnel], [Tunnel]) = ([], tunnels)
        var failures: [ProviderError] = []
        switch found {
        case .success((let settings, let grants)):
            for settings in settings {
                if let index = ending.firstIndex(where: { $0.continues(as: settings) }) {
                    let tunnel = ending.remove(at: index)
                    tunnel.update(settings, grants: grants)
                    kept.append(tunnel)
                } else {
                    new.append((settings, grants))
                }
            }
        case .failure(let error): (kept, ending, failures) = (tunnels, [], [error])
        }
        tunnels = kept
        leaving += ending
        for tunnel in ending {
            // A new one may have its address.
            await tunnel.stopListening()
            Task {
                await tunnel.stop(grace: Self.removalGrace)
                leaving.removeAll { $0 === tunnel }
            }
        }
        for (settings, grants) in new {
            let tunnel = Tunnel(settings, grants: grants, tls: tls, on: group(), logger: logger)
            do throws(ProviderError) {
                try await tunnel.start()
                tunnels.append(tunnel)
            } catch {
                failures.append(error)
            }
        }
        for error in failures where !self.failures.contains(where: { $0.message == error.message }) {
            logger.error(
                "a tunnel does not listen",
                metadata: ["code": "\(error.code)", "reason": "\(error)"])
        }
        self.failures = failures
        if isStopped { await stop() }
        return failures.isEmpty
    }

    /// Takes no more connections, and gives those that are open some time.
    func stop() async {
        isStopped = true
        let ending = tunnels + leaving
        tunnels = []
        await withTaskGroup { tasks in
            for tunnel in ending { tasks.addTask { [grace] in await tunnel.stop(grace: grace) } }
        }
    }
}

extension Tunnel {
    /// Whether it needs no other socket for other settings.
    fileprivate func continues(as other: TunnelSettings) -> Bool {
        let own = settings
        return own.number == other.number && own.listen == other.listen && own.mode == other.mode
            && own.socketMode == other.socketMode && own.socketGroup == other.socketGroup
    }
}
