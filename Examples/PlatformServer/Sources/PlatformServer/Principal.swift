import X509

/// The party that a request comes from. Connections belong to principals.
struct Principal: Hashable, Sendable, Codable {
    /// The authority of users with a password. No certificate has this issuer: a name in a certificate contains `=`.
    static let users = "users"

    /// The certificate's subject (RFC 4514), or the user's name.
    var name: String
    /// The certificate's issuer (RFC 4514), or ``users``.
    var authority: String

    init(name: String, authority: String) {
        self.name = name
        self.authority = authority
    }

    init(user name: String) { self.init(name: name, authority: Self.users) }

    /// A renewed certificate has the same subject and issuer, and thus the same principal.
    /// - Returns: nil if the certificate has no subject.
    init?(_ certificate: Certificate) {
        guard !certificate.subject.isEmpty else { return nil }
        self.init(name: "\(certificate.subject)", authority: "\(certificate.issuer)")
    }
}
