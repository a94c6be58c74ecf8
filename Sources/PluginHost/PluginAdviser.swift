import CertificateProviding
import FoundationEssentials
import Logging
import PluginProtocol

/// The advice of a plugin's issuer. This process remembers the last one: a service asks often, and a plugin must be started for it.
final class PluginAdviser: RenewalAdvising {
    private struct Answer {
        let leaf: X509Certificate
        var advice: RenewalAdvice?
        var holdsUntil: ContinuousClock.Instant
    }
    private let instance: PluginInstance
    private let logger: Logger
    private let last = BlockingMutex<Answer?>(nil)

    /// How long an answer holds that does not say so, and a failure.
    private static let usualInterval = 3600.0
    private static let intervals = 60.0...86_400
    /// The years 1970 to 9999.
    private static let times = 0.0...253_402_300_799

    init(_ instance: PluginInstance, _ logger: Logger) { (self.instance, self.logger) = (instance, logger) }

    private func last(on identity: Identity) -> Answer? {
        last.withLock(\.self).flatMap { $0.leaf == identity.certificate ? $0 : nil }
    }

    func advice(on identity: Identity) -> RenewalAdvice? { last(on: identity)?.advice }

    func refreshAdvice(on identity: Identity) async -> Bool {
        let known = last(on: identity)
        if let known, ContinuousClock.now < known.holdsUntil { return false }
        var (advice, interval) = (known?.advice, Self.usualInterval)
        do throws(ProviderError) {
            let answer = try await instance.withReadyPeer { peer throws(ProviderError) in
                try await peer.request(
                    "advice", AdviceRequest(chain: identity.certificateChain.map { Data($0.derRepresentation) }),
                    .silence(instance.timeout, mayAsk: false), as: AdviceAnswer.self)
            }
            advice = try answer.window.map { window throws(ProviderError) in try Self.advice(window) }
            interval = answer.askAgain ?? interval
        } catch {
            let error = instance.describing(error)
            logger.info(
                "the plugin did not say when to renew; its last answer stays", metadata: ["reason": "\(error.message)"])
        }
        let pause = Duration.seconds(min(max(interval, Self.intervals.lowerBound), Self.intervals.upperBound))
        let answer = Answer(leaf: identity.certificate, advice: advice, holdsUntil: .now + pause)
        last.withLock { $0 = answer }
        return true
    }

    private static func advice(_ window: AdviceAnswer.Window) throws(ProviderError) -> RenewalAdvice {
        guard times.contains(window.start), times.contains(window.end), window.start <= window.end else {
            throw ProviderError(
                .protocolError, "The window of an advice must have a 'start' and a later 'end', in seconds since 1970.")
        }
        return RenewalAdvice(
            window: Date(timeIntervalSince1970: window.start)...Date(timeIntervalSince1970: window.end))
    }
}
