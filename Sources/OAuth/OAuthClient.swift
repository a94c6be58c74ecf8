public import CertificateProviding
import FoundationEssentials
import NIOHTTP1

/// A client that is registered with the authorisation server (RFC 6749, section 2).
public struct OAuthClient: Sendable {
    /// How a client authenticates to the token endpoint (section 2.3.1).
    public struct Authentication: Sendable, Hashable {
        private enum Kind { case basic, body }
        private let kind: Kind

        /// HTTP Basic, which every server supports.
        public static let basic = Self(kind: .basic)
        /// Parameters in the body, for servers that do not support HTTP Basic.
        public static let body = Self(kind: .body)
    }

    /// The client identifier (section 2.2).
    public let id: String
    let secret: SecretBytes?
    let authentication: Authentication

    /// Creates a client.
    ///
    /// - Parameters:
    ///   - secret: `nil` for a public client, which sends only its identifier.
    ///   - authentication: How the secret is sent.
    /// - Throws: `configurationInvalid` for an empty identifier or secret.
    public init(
        _ id: String, secret: SecretBytes?, authentication: Authentication = .basic
    ) throws(ProviderError) {
        guard !id.isEmpty else {
            throw ProviderError(
                .configurationInvalid,
                "The OAuth client has no identifier; set the one that the authorisation server has assigned.")
        }
        guard secret?.isEmpty != true else {
            throw ProviderError(
                .configurationInvalid,
                "The secret of the OAuth client '\(id.withVisibleControls)' is empty; correct its source.")
        }
        self.id = id
        self.secret = secret
        self.authentication = authentication
    }

    /// Adds the client's authentication to a request.
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

    /// Returns the credentials for HTTP Basic. Unlike elsewhere in HTTP, both parts are form-encoded first, since
    /// either may contain a colon.
    func basicCredentials(with secret: SecretBytes) -> SecretBytes {
        let pair = FormBody.encoded(id.utf8) + [UInt8(ascii: ":")] + secret.withUnsafeBytes { FormBody.encoded($0) }
        return SecretBytes(copying: Data(pair).base64EncodedData())
    }
}
