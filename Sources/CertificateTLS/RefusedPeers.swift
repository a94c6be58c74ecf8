import CertificateProviding
import CoreMetrics
import FoundationEssentials
import Logging
import NIOCore
import Synchronization

/// Logs and counts the peers that are refused: each refusal in the counter, the same one at most once a minute in the log.
final class RefusedPeers: Sendable {
    private struct Refusal: Hashable {
        /// The fingerprint of the leaf; empty for none.
        let peer: [UInt8]
        let reason: PeerRefusal.Reason
    }
    private struct State {
        /// When each was logged.
        var logged: [Refusal: Date] = [:]
        /// When the log said that there are too many.
        var overflow: Date?
    }
    private let state = Mutex(State())
    private let logger: Logger
    private let metrics: any MetricsFactory

    private static let pause: TimeInterval = 60
    /// A peer that presents ever new certificates must not fill the memory.
    private static let maximumCount = 1024

    init(logger: Logger, metrics: any MetricsFactory) { (self.logger, self.metrics) = (logger, metrics) }

    /// - Parameter server: The name of the server; `nil` for a client.
    func note(
        _ refusal: PeerRefusal, _ leaf: X509Certificate?, server: String?, address: SocketAddress?, at now: Date
    ) {
        let role = server == nil ? "client" : "server"
        Counter(
            label: "certprov_peers_refused_total",
            dimensions: [("peer", role), ("reason", refusal.reason.rawValue)], factory: metrics
        ).increment()
        switch isDue(Refusal(peer: leaf?.sha256Fingerprint ?? [], reason: refusal.reason), at: now) {
        case .no: return
        case .overflow:
            logger.warning("more different peers are refused than are logged, until the next minute")
        case .yes:
            let names = leaf?.subjectAlternativeNames.prefix(16).map { Self.shortened($0.description) } ?? []
            var metadata: Logger.Metadata = [
                "subject": "\(Self.shortened(leaf?.subject ?? "unknown"))", "code": "\(refusal.reason.rawValue)",
                "names": "\(names.joined(separator: ", "))",
                "reason": "\(Self.shortened(refusal.error.message, to: 1024))",
            ]
            if let address { metadata["address"] = "\(address.ipAddress ?? "\(address)")" }
            if let server { metadata["server"] = "\(server.withVisibleControls)" }
            logger.notice("\(role) refused", metadata: metadata)
        }
    }

    /// A certificate that its holder has made has names of any length.
    static func shortened(_ text: String, to length: Int = 256) -> String {
        text.utf8.count <= length ? text : String(text.prefix(length)) + "…"
    }

    private enum Answer { case yes, no, overflow }

    private func isDue(_ refusal: Refusal, at now: Date) -> Answer {
        func isRecent(_ date: Date) -> Bool { abs(now.timeIntervalSince(date)) < Self.pause }
        return state.withLock { state in
            if let last = state.logged[refusal], isRecent(last) { return .no }
            if state.logged.count >= Self.maximumCount, state.logged[refusal] == nil {
                state.logged = state.logged.filter { isRecent($0.value) }
                if state.logged.count >= Self.maximumCount {
                    if let last = state.overflow, isRecent(last) { return .no }
                    state.overflow = now
                    return .overflow
                }
            }
            state.logged[refusal] = now
            return .yes
        }
    }
}
