public import CertificateProviding
import FoundationEssentials
import Logging

extension EnrollingProvider: RenewalAdvising {
    public var advice: (any RenewalAdvising)? { server.givesRenewalAdvice ? self : nil }

    /// The name of the record with the server's last advice.
    var adviceRecordName: String { "advice-\(plan.storageName)" }

    /// Not secret.
    private struct Record: Codable {
        static let format = VersionedRecord<Self>(of: "the issuer's advice", ifDamaged: "the server is asked again")
        /// The fingerprint of the certificate that it is about.
        let leaf: [UInt8]
        /// The window; `nil` if the server does not say.
        var start: Date?
        var end: Date?
        /// The server is not asked again before.
        var askAfter: Date

        var advice: RenewalAdvice? {
            guard let start, let end, start <= end else { return nil }
            return RenewalAdvice(window: start...end)
        }
    }

    /// How long an answer holds that does not say so.
    private static let usualInterval = Duration.seconds(6 * 3600)
    /// How long an answer holds at least and at most, whatever the server says.
    private static let intervals = Duration.seconds(60)...Duration.seconds(86_400)
    /// The pause after a failure.
    private static let pauseAfterFailure = Duration.seconds(3600)

    public func advice(on identity: Identity) -> RenewalAdvice? { adviceRecord(on: identity)?.advice }

    public func refreshAdvice(on identity: Identity) async -> Bool {
        guard server.givesRenewalAdvice else { return false }
        var record = try? await environment.executor.run { [self] in adviceRecord(on: identity) }
        let now = environment.now()
        // A clock that was set back must not silence the server for long.
        let longest = now.addingTimeInterval(Self.intervals.upperBound / .seconds(1))
        if let record, now < record.askAfter, record.askAfter <= longest { return false }
        var next = record ?? Record(leaf: identity.certificate.sha256Fingerprint, askAfter: now)
        do throws(ProviderError) {
            let information = try await server.renewalInformation(for: identity)
            let window = information?.advice.window
            (next.start, next.end) = (window?.lowerBound, window?.upperBound)
            let interval = information.map { $0.retryAfter ?? Self.usualInterval } ?? Self.intervals.upperBound
            next.askAfter = now + min(max(interval, Self.intervals.lowerBound), Self.intervals.upperBound) / .seconds(1)
        } catch {
            environment.logger.info(
                "\(server.serverName) did not say when to renew; its last answer stays",
                metadata: ["reason": "\(error.message)"])
            next.askAfter = now + Self.pauseAfterFailure / .seconds(1)
        }
        record = next
        do throws(ProviderError) {
            let encoded = try Record.format.record(of: next)
            try await environment.executor.run { [self] () throws(ProviderError) in
                try environment.storage.updateRecord(named: adviceRecordName) { _ in encoded }
            }
        } catch {
            environment.logger.warning(
                "the server's renewal information could not be stored", metadata: ["reason": "\(error.message)"])
        }
        return true
    }

    /// Returns the record; `nil` for another certificate, and for one that cannot be read: the server is then asked again.
    private func adviceRecord(on identity: Identity) -> Record? {
        guard let record = try? environment.storage.record(named: adviceRecordName),
            let known = try? Record.format.content(of: record), known.leaf == identity.certificate.sha256Fingerprint
        else { return nil }
        return known
    }
}
