public import FoundationEssentials

/// The time at which the issuer of a certificate wants it to be renewed (RFC 9773).
public struct RenewalAdvice: Sendable, Hashable {
    /// The window within which the certificate is to be renewed. A start in the past means now.
    public var window: ClosedRange<Date>

    /// Creates an advice.
    public init(window: ClosedRange<Date>) { self.window = window }
}

/// The ability of a ``CertificateProvider`` to ask the issuer when a certificate is to be renewed.
public protocol RenewalAdvising: Sendable {
    /// Returns the issuer's last advice on a stored identity; `nil` if there is none. Blocks for a small file at most, and uses no
    /// network.
    func advice(on identity: Identity) -> RenewalAdvice?

    /// Asks the issuer for its advice on a stored identity, unless it was asked a short time ago: at most as often as it permits.
    /// ``advice(on:)`` then returns it. Never prompts. An issuer that does not answer within seconds changes nothing.
    ///
    /// - Returns: Whether the issuer was asked.
    func refreshAdvice(on identity: Identity) async -> Bool
}

/// The rule that has decided when a certificate is renewed.
public struct RenewalRule: RawRepresentable, Hashable, Sendable {
    public let rawValue: String
    public init(rawValue: String) { self.rawValue = rawValue }

    /// The renewal point, which the parameter `renew-at` sets.
    public static let point = Self(rawValue: "renew-at")
    /// The margin before expiry.
    public static let margin = Self(rawValue: "margin")
    /// The advice of the issuer (``RenewalAdvice``).
    public static let advice = Self(rawValue: "issuer")
}
