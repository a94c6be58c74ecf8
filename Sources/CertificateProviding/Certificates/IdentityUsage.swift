public import X509

/// The use that an identity is for: a side of TLS connections, by the extended key usages that its certificate must have (RFC 5280,
/// section 4.2.1.12); or signatures alone, which need none.
///
/// A certificate without the extension serves all. The extension in the CA certificates of its chain counts too, as TLS peers
/// with OpenSSL judge it: `anyExtendedKeyUsage` alone permits neither side.
public struct IdentityUsage: RawRepresentable, CaseIterable, Hashable, Sendable, CustomStringConvertible {
    public let rawValue: String

    /// Creates a usage; `nil` for another word than `client`, `server`, `both` and `signature`.
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

    /// Signatures of files and for signing requests, and no TLS.
    public static let signature = Self("signature")

    public static let allCases: [IdentityUsage] = sidesOfTLS + [signature]
    /// Those for TLS.
    package static let sidesOfTLS: [IdentityUsage] = [client, server, both]

    public var description: String { rawValue }

    /// The parameter `usage`, which every provider declares. By default an identity is for clients.
    public static let parameter = Parameter<IdentityUsage>.choice(
        "usage", default: .client,
        summary:
            "The side of TLS that the certificate is for, by its extended key usage: client, server or both; or signature for one that only signs files and requests."
    )

    /// The properties by which identities of the same source differ, for ``StoredIdentity/name(distinguishedBy:)``: none for
    /// the default.
    public var distinguishingProperties: [String] { self == .client ? [] : ["usage=\(self)"] }

    /// The key purposes, as a certificate request has them.
    public var purposes: [ExtendedKeyUsage.Usage] {
        switch self {
        case .client: [.clientAuth]
        case .server: [.serverAuth]
        case .signature: []
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
    /// Whether the certificate may be used so: its key usage, if present, permits signatures, and its extended key usage, if present,
    /// has the key purposes (RFC 5280, sections 4.2.1.3 and 4.2.1.12). For signatures of files, nonRepudiation alone does as well.
    public func permits(_ usage: IdentityUsage) -> Bool {
        let permitsSignatures = keyUsage.map { $0.digitalSignature || usage == .signature && $0.nonRepudiation } ?? true
        return permitsSignatures && usage.refusal(by: extendedKeyUsage) == nil
    }

    /// Whether the certificate says that it is for this use: its extended key usage has the key purposes. For signatures of files: it
    /// says nonRepudiation, or has other key purposes than those of TLS.
    public func declares(_ usage: IdentityUsage) -> Bool {
        if usage == .signature {
            return keyUsage?.nonRepudiation == true || extendedKeyUsage != nil && !isForTLS
        }
        return extendedKeyUsage != nil && usage.refusal(by: extendedKeyUsage) == nil
    }

    /// Whether its extended key usage permits a side of TLS, which it does where there is none.
    package var isForTLS: Bool {
        extendedKeyUsage.map { usage in
            [.clientAuth, .serverAuth, .any].contains { usage.contains($0) }
        } ?? true
    }
}
