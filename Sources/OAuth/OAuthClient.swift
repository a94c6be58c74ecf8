public import CertificateProviding
import FoundationEssentials
import NIOHTTP1

/// Who asks for tokens: what the authorisation server has registered (RFC 6749, section 2).
public struct OAuthClient: Sendable {
    /// How a client proves to the token endpoint who it is (section 2.3.1).
    public struct Authentication: Sendable, Hashable {
        private enum Kind { case basic, body }
        private let kind: Kind

        /// By HTTP Basic, which every server takes.
        public static let basic = Self(kind: .basic)
        /// By parameters in the body, for servers that take nothing else.
        public static let body = Self(kind: .body)
    }

    public let id: String
    let secret: SecretBytes?
    let authentication: Authentication

    /// - Parameters:
    ///   - secret: `nil` for a public client, which only names itself.
    ///   - authentication: How the secret is sent.
    /// - Throws: `configurationInvalid` for an empty identifier or secret.
    public init(
        _ id: String, secret: SecretBytes?, authentication: Authentication = .basic
    ) throws(CertificateProviderError) {
        guard !id.isEmpty else {
            throw CertificateProviderError(
                .configurationInvalid, "The OAuth client has no identifier; its authorisation server has given it one.")
        }
        guard secret?.isEmpty != true else {
            throw CertificateProviderError(
                .configurationInvalid, "The secret of the OAuth client '\(id.withVisibleControls)' is empty.")
        }
        self.id = id
        self.secret = secret
        self.authentication = authentication
    }

    /// Puts into a request who sends it.
    func authenticate(_ form: inout FormBody, _ headers: inout HTTPHeaders) {
        guard let secret else { return form.append("client_id", id) }
        if authentication == .basic {
            let text = basicCredentials(with: secret).withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
            headers.add(name: "Authorization", value: "Basic \(text)")
        } else {
            form.append("client_id", id)
            form.append("client_secret", secret)
        }
    }

    /// Both parts are form-encoded first, unlike elsewhere in HTTP: either may have a colon.
    func basicCredentials(with secret: SecretBytes) -> SecretBytes {
        let pair = FormBody.encoded(id.utf8) + [UInt8(ascii: ":")] + secret.withUnsafeBytes { FormBody.encoded($0) }
        return SecretBytes(copying: Data(pair).base64EncodedData())
    }
}
