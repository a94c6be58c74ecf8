/// A type of key pair that can be generated, by its name in parameters and on the command line.
public struct KeyType: RawRepresentable, Hashable, Sendable, CaseIterable, CustomStringConvertible {
    public let rawValue: String

    /// Returns `nil` for a name that is not one of ``allCases``.
    public init?(rawValue: String) {
        guard let known = Self.allCases.first(where: { $0.rawValue == rawValue }) else { return nil }
        self = known
    }

    private init(known name: String) { rawValue = name }

    /// The bits of the smallest RSA key that is used.
    package static let smallestRSA = Identity.rsaKeySizes.lowerBound

    /// EC on the curve P-256.
    public static let p256 = Self(known: "p256")
    /// EC on the curve P-384.
    public static let p384 = Self(known: "p384")
    /// EC on the curve P-521.
    public static let p521 = Self(known: "p521")
    /// RSA with 2048 bits.
    public static let rsa2048 = Self(known: "rsa2048")
    /// RSA with 3072 bits.
    public static let rsa3072 = Self(known: "rsa3072")
    /// RSA with 4096 bits.
    public static let rsa4096 = Self(known: "rsa4096")
    /// Ed25519.
    public static let ed25519 = Self(known: "ed25519")

    /// All types, most preferred first.
    public static let allCases: [KeyType] = [.p256, .p384, .p521, .rsa2048, .rsa3072, .rsa4096, .ed25519]

    public var description: String { rawValue }

    /// Whether this is an RSA key.
    public var isRSA: Bool { [.rsa2048, .rsa3072, .rsa4096].contains(self) }

    /// Whether a public key has this type.
    public func fits(_ key: PublicKeyInfo) -> Bool {
        switch self {
        case .p256: key.curve == "P-256"
        case .p384: key.curve == "P-384"
        case .p521: key.curve == "P-521"
        case .ed25519: key.algorithm == .ed25519
        case .rsa2048: key.algorithm == .rsa && key.bits == 2048
        case .rsa3072: key.algorithm == .rsa && key.bits == 3072
        case .rsa4096: key.algorithm == .rsa && key.bits == 4096
        default: false
        }
    }
}
