/// The point in its lifetime at which a certificate is renewed: after a share of it, or a time before expiry.
public struct RenewalPoint: Sendable, Hashable {
    enum Kind: Sendable, Hashable {
        /// Within ``RenewalPoint/shares``.
        case share(Double)
        case beforeExpiry(Duration)
    }
    let kind: Kind

    /// After a share of the lifetime, limited to 0.01…0.99.
    public static func share(_ share: Double) -> Self {
        Self(kind: .share(min(max(share, shares.lowerBound), shares.upperBound)))
    }

    /// A time before expiry. If it exceeds two thirds of the lifetime, the certificate is renewed after one third;
    /// otherwise it would be due as soon as it is issued.
    public static func beforeExpiry(_ duration: Duration) -> Self { Self(kind: .beforeExpiry(duration)) }

    /// The default: after two thirds of the lifetime.
    public static let standard = Self.share(2.0 / 3)

    private init(kind: Kind) { self.kind = kind }

    /// Reads a share from 0.01 to 0.99, such as `0.66` or `66%`, or a time before expiry, such as `30d`: weeks (`w`),
    /// days, hours, minutes or seconds (`s`), a whole number up to 999999. Returns `nil` for any other text.
    package init?(_ text: String) {
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
    /// The lengths of the units in seconds.
    private static let unitLengths: [Character: Int] = ["w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1]
}

extension UInt8 {
    fileprivate var isDigit: Bool { (0x30...0x39).contains(self) }
}

extension Parameter where Value == RenewalPoint {
    /// The parameter `renew-at`. Every provider has it: the manager reads it.
    package static var renewAt: Self {
        Self(
            "renew-at", .string, absent: .standard, defaultValue: "two thirds",
            summary: "When to renew: a share of the lifetime (0.66, 66%) or a time before expiry (30d, 12h)"
        ) { text, _ throws(ParameterProblem) in
            guard let point = RenewalPoint(text) else {
                throw .expected(
                    "must be a share of the lifetime such as 0.66 or 66%, or a time before expiry such as 30d or 12h")
            }
            return point
        }
    }
}

extension ProviderDescriptor {
    /// The parameters that a property file may set: those of the provider, and those that the manager reads for it.
    package var configurableParameters: [ParameterDescriptor] {
        let renewAt = Parameter<RenewalPoint>.renewAt.descriptor
        return parameters + (parameters.contains { $0.name == renewAt.name } ? [] : [renewAt])
    }
}

extension ProviderParameters {
    /// Returns the value of `renew-at`, or ``RenewalPoint/standard`` if it is not set.
    /// - Throws: `configurationInvalid`, with the parameter's origin.
    package func renewalPoint(provider: ProviderID) throws(ProviderError) -> RenewalPoint {
        let renewAt = Parameter<RenewalPoint>.renewAt
        var own = ProviderParameters()
        own[renewAt.name] = self[renewAt.name]
        return try Parameters(own, of: [renewAt.descriptor], owner: provider, keyStores: .none)[renewAt]
    }
}
