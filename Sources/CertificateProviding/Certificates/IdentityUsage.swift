public import X509

/// The side of TLS connections that an identity is for: the extended key usages that its certificate must have (RFC 5280,
/// section 4.2.1.12).
///
/// A certificate without the extension serves all. The extension in the CA certificates of its chain counts too, as TLS peers
/// with OpenSSL judge it: `anyExtendedKeyUsage` alone permits neither side.
public struct IdentityUsage: RawRepresentable, CaseIterable, Hashable, Sendable, CustomStringConvertible {
    public let rawValue: String

    /// Creates a usage; `nil` for another word than `client`, `server` and `both`.
    public init?(rawValue: String) {
        guard let known = Self.allCases.first(where: { $0.rawValue == rawValue }) else { return nil }
        self = known
    }

    private init(_ word: String) { rawValue = word }

    /// TLS clients: `clientAuth`.
    public static let client = Self("client")
    /// TLS servers: `serverAuth`.
    public static let server = Self("server")
    /// Both sides, with one certificate.
    public static let both = Self("both")

    public static let allCases: [IdentityUsage] = [client, server, both]

    public var description: String { rawValue }

    /// The parameter `usage`, which every provider declares. By default an identity is for clients.
    public static let parameter = Parameter<IdentityUsage>.choice(
        "usage", default: .client,
        summary: "The side of TLS that the certificate is for, by its extended key usage: client, server or both.")

    /// The properties by which identities of the same source differ, for ``StoredIdentity/name(distinguishedBy:)``: none for
    /// the default.
    public var distinguishingProperties: [String] { self == .client ? [] : ["usage=\(self)"] }

    /// The key purposes, as a certificate request has them.
    public var purposes: [ExtendedKeyUsage.Usage] {
        switch self {
        case .client: [.clientAuth]
        case .server: [.serverAuth]
        default: [.clientAuth, .serverAuth]
        }
    }

    /// Returns the side that an extended key usage does not permit, for a message; `nil` if it permits all of this usage.
    func refusal(by extendedKeyUsage: ExtendedKeyUsage?) -> String? {
        guard let extendedKeyUsage, let missing = purposes.first(where: { !extendedKeyUsage.contains($0) }) else {
            return nil
        }
        return "TLS \(missing == .clientAuth ? "client" : "server") authentication"
    }
}

extension X509Certificate {
    /// Whether the certificate may authenticate this side of TLS: its key usage, if present, permits signatures, and its
    /// extended key usage, if present, has the key purposes (RFC 5280, sections 4.2.1.3 and 4.2.1.12).
    public func permits(_ usage: IdentityUsage) -> Bool {
        (keyUsage?.digitalSignature ?? true) && usage.refusal(by: extendedKeyUsage) == nil
    }

    /// Whether the certificate says that it is for this side of TLS: its extended key usage has the key purposes.
    public func names(_ usage: IdentityUsage) -> Bool {
        extendedKeyUsage != nil && usage.refusal(by: extendedKeyUsage) == nil
    }
}
