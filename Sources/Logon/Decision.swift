package import CertificateProviding

/// A step of an operation of the ``LogonManager``: the provider, the request and the result.
package struct Decision: Sendable {
    /// The request to a provider. Open.
    package struct Step: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
        package let rawValue: String
        package init(rawValue: String) { self.rawValue = rawValue }
        package var description: String { rawValue }

        /// ``/CertificateProviding/CertificateProvider/getStoredCertificate()``
        package static let stored = Self(rawValue: "stored")
        /// ``/CertificateProviding/CertificateProvider/getCertificate(_:)``
        package static let get = Self(rawValue: "get")
        /// ``/CertificateProviding/CertificateProvider/deleteStoredCertificate()``
        package static let delete = Self(rawValue: "delete")
        /// ``/CertificateProviding/IdentityListing/listIdentities()``
        package static let list = Self(rawValue: "list")
    }

    /// The result of a step. Open.
    package struct Outcome: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
        package let rawValue: String
        package init(rawValue: String) { self.rawValue = rawValue }
        package var description: String { rawValue }

        /// The provider returned an identity, which is the result of the operation.
        package static let identity = Self(rawValue: "identity")
        /// The provider has no stored identity.
        package static let none = Self(rawValue: "none")
        /// The provider failed with a code after which the next one is tried; see ``Decision/error``.
        package static let movedOn = Self(rawValue: "movedOn")
        /// The provider failed with a code that ended the operation; see ``Decision/error``.
        package static let stopped = Self(rawValue: "stopped")
        /// The stored identity was deleted.
        package static let deleted = Self(rawValue: "deleted")
        /// The provider was not asked; see ``Decision/reason``.
        package static let notAsked = Self(rawValue: "notAsked")
        /// The provider would be asked for an identity next. Only in an ``Explanation``.
        package static let wouldBeAsked = Self(rawValue: "wouldBeAsked")
    }

    /// The provider.
    package var provider: ProviderID
    /// The request.
    package var step: Step
    /// The result.
    package var outcome: Outcome
    /// The reason of the outcome in words, such as why the provider was not asked.
    package var reason: String?
    /// The error of the provider; `nil` if it succeeded or was not asked.
    package var error: ProviderError?
    /// The time that the provider took; zero if it was not asked.
    package var duration: Duration

    init(
        provider: ProviderID, step: Step, outcome: Outcome, reason: String? = nil,
        error: ProviderError? = nil, duration: Duration = .zero
    ) {
        self.provider = provider
        self.step = step
        self.outcome = outcome
        self.reason = reason
        self.error = error
        self.duration = duration
    }
}

extension Decision: CustomStringConvertible {
    package var description: String {
        let detail = error.map { "\($0.message) [\($0.code)]" } ?? reason
        return "\(provider): \(step): \(outcome)" + (detail.map { ": \($0)" } ?? "")
    }
}

/// The provider that would be chosen now, and the reasons.
package struct Explanation: Sendable {
    /// The provider whose identity would be used, or that would be asked for a new one first; `nil` if the operation
    /// would fail.
    package var chosen: ProviderID?
    /// At least one decision for every provider, in the order in which they would be asked.
    package var decisions: [Decision]

    init(chosen: ProviderID?, decisions: [Decision]) {
        self.chosen = chosen
        self.decisions = decisions
    }
}

/// Collects the decisions of an operation and measures their duration.
struct DecisionLog {
    /// The time since a fixed moment.
    let uptime: @Sendable () -> Duration
    private(set) var decisions: [Decision] = []

    init(uptime: @escaping @Sendable () -> Duration) { self.uptime = uptime }

    mutating func append(
        _ provider: ProviderID, _ step: Decision.Step, _ outcome: Decision.Outcome, reason: String? = nil,
        error: ProviderError? = nil, since start: Duration? = nil
    ) {
        decisions.append(
            Decision(
                provider: provider, step: step, outcome: outcome, reason: reason, error: error,
                duration: start.map { uptime() - $0 } ?? .zero))
    }

    /// Records that the providers after the deciding one were not asked.
    mutating func appendNotAsked(
        _ providers: some Sequence<any CertificateProvider>, _ step: Decision.Step, because reason: String
    ) {
        for provider in providers { append(provider.id, step, .notAsked, reason: reason) }
    }
}
