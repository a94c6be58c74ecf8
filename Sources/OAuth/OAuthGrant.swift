public import CertificateProviding

/// The authorisation grant with which a client requests tokens (RFC 6749, section 1.3).
public struct OAuthGrant: Sendable {
    enum Kind: Sendable {
        case clientCredentials
        case password(user: String, SecretBytes)
    }
    let kind: Kind

    /// The client-credentials grant: the client's secret alone (section 4.4).
    public static let clientCredentials = Self(kind: .clientCredentials)

    /// The legacy password grant (section 4.3), for servers that offer no other one. OAuth 2.1 has removed it. A
    /// password that the server refuses is not sent again.
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
