/// When in its lifetime a certificate is to be renewed: after a share of it, or some time before its end.
public struct RenewalPoint: Sendable, Hashable {
    enum Kind: Sendable, Hashable {
        /// Of ``RenewalPoint/shares``.
        case share(Double)
        case beforeExpiry(Duration)
    }
    let kind: Kind

    /// After a share of the lifetime; one outside 0.01…0.99 is taken as the nearest of these.
    public static func share(_ share: Double) -> Self {
        Self(kind: .share(min(max(share, shares.lowerBound), shares.upperBound)))
    }

    /// Some time before expiry. A certificate of which that is more than two thirds is renewed after one third, since
    /// it would else be due as soon as it is there.
    public static func beforeExpiry(_ duration: Duration) -> Self { Self(kind: .beforeExpiry(duration)) }

    /// After two thirds of the lifetime.
    public static let standard = Self.share(2.0 / 3)

    private init(kind: Kind) { self.kind = kind }

    /// Reads a share from 0.01 to 0.99, as `0.66` or `66%`, or a time before expiry, as `30d`: whole weeks (`w`), days,
    /// hours, minutes or seconds (`s`), at most 999999. Returns `nil` for anything else.
    public init?(_ text: String) {
        guard let unit = text.last, text.utf8.count <= 16 else { return nil }
        if let length = Self.unitLengths[unit] {
            let digits = text.dropLast()
            guard (1...6).contains(digits.utf8.count), digits.utf8.allSatisfy(\.isDigit), let count = Int(digits),
                count > 0
            else { return nil }
            self.init(kind: .beforeExpiry(.seconds(count * length)))
        } else {
            let isPercentage = unit == "%"
            let number = isPercentage ? text.dropLast() : text[...]
            // Double(_:) by itself would take signs, exponents and words.
            guard number.utf8.allSatisfy({ $0.isDigit || $0 == UInt8(ascii: ".") }), let value = Double(number) else {
                return nil
            }
            let share = isPercentage ? value / 100 : value
            guard Self.shares.contains(share) else { return nil }
            self.init(kind: .share(share))
        }
    }

    private static let shares = 0.01...0.99
    /// In seconds.
    private static let unitLengths: [Character: Int] = ["w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1]
}

extension UInt8 {
    fileprivate var isDigit: Bool { (0x30...0x39).contains(self) }
}

extension ParameterDescriptor {
    /// The parameter `renew-at`, which every provider has: the manager reads it.
    public static let renewAt = ParameterDescriptor(
        "renew-at", .string, defaultValue: "two thirds",
        summary: "When to renew: a share of the lifetime (0.66, 66%) or a time before expiry (30d, 12h)")
}

extension ProviderDescriptor {
    /// What a property file may say to the provider: its own parameters, and those that the manager reads for it.
    public var configurableParameters: [ParameterDescriptor] {
        parameters + (parameters.contains { $0.name == ParameterDescriptor.renewAt.name } ? [] : [.renewAt])
    }
}

extension ProviderParameters {
    /// Returns what `renew-at` says, or ``RenewalPoint/standard``.
    /// - Throws: `configurationInvalid`, with the place of the parameter.
    public func renewalPoint(provider: ProviderID) throws(CertificateProviderError) -> RenewalPoint {
        let name = ParameterDescriptor.renewAt.name
        guard let text = string(name) else { return .standard }
        guard let point = RenewalPoint(text) else {
            throw invalid(
                name, "must be a share of the lifetime such as 0.66 or 66%, or a time before expiry such as 30d or 12h",
                provider: provider)
        }
        return point
    }
}
