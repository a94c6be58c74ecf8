/// A type of key pair that can be generated, by its name in parameters and on the command line.
public struct KeyType: RawRepresentable, Hashable, Sendable, CaseIterable, CustomStringConvertible {
    public let rawValue: String

    /// Returns `nil` for a name that is not one of ``allCases``.
    public init?(rawValue: String) {
        guard let known = Self.allCases.first(where: { $0.rawValue == rawValue }) else { return nil }
        self = known
    }

    private init(known name: String) { rawValue = name }

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
}
