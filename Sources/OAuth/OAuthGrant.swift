public import CertificateProviding

/// By what right a client asks for a token (RFC 6749, section 1.3).
public struct OAuthGrant: Sendable {
    enum Kind: Sendable {
        case clientCredentials
        case password(user: String, SecretBytes)
    }
    let kind: Kind

    /// By its own: the client's secret is all there is (section 4.4).
    public static let clientCredentials = Self(kind: .clientCredentials)

    /// By a person's password, which the client has to know (section 4.3). For servers that offer nothing else: OAuth
    /// 2.1 has dropped it. A password that the server refuses is not sent to it again.
    public static func legacyPassword(user: String, password: SecretBytes) -> Self {
        Self(kind: .password(user: user, password))
    }

    func write(to form: inout FormBody) {
        switch kind {
        case .clientCredentials: form.append("grant_type", "client_credentials")
        case .password(let user, let password):
            form.append("grant_type", "password")
            form.append("username", user)
            form.append("password", password)
        }
    }

    var password: SecretBytes? {
        guard case .password(_, let password) = kind else { return nil }
        return password
    }
}
