public import CertificateProviding

/// One step on the way to an identity, as the ``LogonManager`` keeps it: whom it asked, what for, and what came of it.
public struct Decision: Sendable {
    /// What a provider was asked for. Open.
    public struct Step: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
        public let rawValue: String
        public init(rawValue: String) { self.rawValue = rawValue }
        public var description: String { rawValue }

        /// ``/CertificateProviding/CertificateProvider/getStoredCertificate()``
        public static let stored = Self(rawValue: "stored")
        /// ``/CertificateProviding/CertificateProvider/getCertificate(_:)``
        public static let get = Self(rawValue: "get")
        /// ``/CertificateProviding/CertificateProvider/deleteStoredCertificate()``
        public static let delete = Self(rawValue: "delete")
        /// ``/CertificateProviding/IdentityListing/listIdentities()``
        public static let list = Self(rawValue: "list")
    }

    /// What came of a step. Open.
    public struct Outcome: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
        public let rawValue: String
        public init(rawValue: String) { self.rawValue = rawValue }
        public var description: String { rawValue }

        /// The provider returned an identity, which was taken.
        public static let identity = Self(rawValue: "identity")
        /// The provider has none stored.
        public static let none = Self(rawValue: "none")
        /// The provider failed in a way that lets the next one be tried; see ``Decision/error``.
        public static let movedOn = Self(rawValue: "movedOn")
        /// The provider failed in a way that ended the operation; see ``Decision/error``.
        public static let stopped = Self(rawValue: "stopped")
        /// The stored identity is gone.
        public static let deleted = Self(rawValue: "deleted")
        /// The provider did not come to its turn; see ``Decision/reason``.
        public static let notAsked = Self(rawValue: "notAsked")
        /// The provider would be asked for an identity next. Only in an ``Explanation``.
        public static let wouldBeAsked = Self(rawValue: "wouldBeAsked")
    }

    public var provider: ProviderID
    public var step: Step
    public var outcome: Outcome
    /// What was seen, or why the provider was not asked, in words.
    public var reason: String?
    public var error: CertificateProviderError?
    /// How long the provider took; zero when it was not asked.
    public var duration: Duration

    public init(
        provider: ProviderID, step: Step, outcome: Outcome, reason: String? = nil,
        error: CertificateProviderError? = nil, duration: Duration = .zero
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
    public var description: String {
        let detail = error.map { "\($0.message) [\($0.code)]" } ?? reason
        return "\(provider): \(step): \(outcome)" + (detail.map { ": \($0)" } ?? "")
    }
}

/// Which provider would be chosen now, and why.
public struct Explanation: Sendable {
    /// The provider whose identity would be taken, or that would be asked for one first; `nil` when there would be an
    /// error instead.
    public var chosen: ProviderID?
    /// At least one for every provider, in the order in which they would be asked.
    public var decisions: [Decision]

    public init(chosen: ProviderID?, decisions: [Decision]) {
        self.chosen = chosen
        self.decisions = decisions
    }
}

/// Collects decisions while an operation runs, and measures what they took.
struct DecisionLog {
    /// Time since some fixed moment.
    let uptime: @Sendable () -> Duration
    private(set) var decisions: [Decision] = []

    init(uptime: @escaping @Sendable () -> Duration) { self.uptime = uptime }

    mutating func append(
        _ provider: ProviderID, _ step: Decision.Step, _ outcome: Decision.Outcome, reason: String? = nil,
        error: CertificateProviderError? = nil, since start: Duration? = nil
    ) {
        decisions.append(
            Decision(
                provider: provider, step: step, outcome: outcome, reason: reason, error: error,
                duration: start.map { uptime() - $0 } ?? .zero))
    }

    /// Records that those after the one that decided were not asked.
    mutating func appendNotAsked(
        _ providers: some Sequence<any CertificateProvider>, _ step: Decision.Step, because reason: String
    ) {
        for provider in providers { append(provider.id, step, .notAsked, reason: reason) }
    }
}
