import CertificateProviding
import FoundationEssentials

/// The validated response of a token endpoint (RFC 6749, section 5.1).
struct TokenResponse: Sendable {
    let token: SecretBytes
    let lifetime: Duration
    /// As the server has named it: at most a century.
    let expiresIn: Duration?
    let refreshToken: SecretBytes?
    let scopes: [String]?
    let idToken: SecretBytes?

    /// The lifetime if the server gives none, or not as a number. If it is too short, that costs one more request.
    static let unknownLifetime = Duration.seconds(300)
    /// Tokens with a longer lifetime are replaced after this time, too.
    static let maximumLifetime = Duration.seconds(86_400)
    /// In bytes. Tokens with many claims have some kilobytes; servers refuse larger header fields.
    private static let maximumToken = 16 * 1024

    /// - Throws: `protocolError`, which quotes nothing of the answer.
    init(_ members: TokenMembers, from server: String) throws(ProviderError) {
        func refuse(_ reason: String) -> ProviderError {
            ProviderError(
                .protocolError,
                "The answer of the token endpoint at \(server) cannot be used: \(reason). Ask its administrator.")
        }
        guard let token = members.accessToken, !token.isEmpty else { throw refuse("it has no 'access_token'") }
        guard token.utf8.count <= Self.maximumToken else { throw refuse("its token is too long") }
        // Anything else would be another header field, or none.
        guard token.utf8.allSatisfy({ (0x21...0x7e).contains($0) }) else {
            throw refuse("its token contains invalid characters")
        }
        guard let type = members.tokenType else { throw refuse("it has no 'token_type'") }
        guard type.lowercased() == "bearer" else {
            // The value is not quoted: it may be the token.
            throw refuse("its 'token_type' is not 'bearer'")
        }
        self.token = SecretBytes(utf8: token)
        lifetime = Self.lifetime(members.expiresIn)
        expiresIn = members.expiresIn.flatMap { $0 >= 0 ? .seconds(min($0, 3_155_760_000).rounded(.down)) : nil }
        refreshToken = Self.optional(members.refreshToken)
        idToken = Self.optional(members.idToken)
        scopes = members.scope.map { $0.split(separator: " ").prefix(100).map(String.init) }
    }

    private static func optional(_ token: String?) -> SecretBytes? {
        token.flatMap { (1...maximumToken).contains($0.utf8.count) ? SecretBytes(utf8: $0) : nil }
    }

    private static func lifetime(_ seconds: Double?) -> Duration {
        guard let seconds, !seconds.isNaN else { return unknownLifetime }
        return .seconds(min(max(0, seconds.rounded(.down)), Double(maximumLifetime.components.seconds)))
    }
}

/// The members of a token response that are used (RFC 6749, section 5). A member of the wrong type counts as missing.
struct TokenMembers: Decodable, Sendable {
    let accessToken: String?
    let tokenType: String?
    let expiresIn: Double?
    let refreshToken: String?
    let scope: String?
    let idToken: String?
    let error: String?
    let errorDescription: String?
    let errorURI: String?

    static let maximumSize = 64 * 1024
    private static let maximumDepth = 8

    /// - Returns: `nil` for a body that is not a JSON object, is too large, or is nested too deeply.
    init?(_ body: [UInt8]) {
        guard body.count <= Self.maximumSize, Self.depth(of: body) <= Self.maximumDepth,
            let members = try? JSONDecoder().decode(Self.self, from: Data(body))
        else { return nil }
        self = members
    }

    private enum Name: String, CodingKey {
        case accessToken = "access_token"
        case tokenType = "token_type"
        case expiresIn = "expires_in"
        case refreshToken = "refresh_token"
        case scope, error
        case idToken = "id_token"
        case errorDescription = "error_description"
        case errorURI = "error_uri"
    }

    init(from decoder: any Decoder) throws {
        let members = try decoder.container(keyedBy: Name.self)
        func text(_ name: Name) -> String? { try? members.decode(String.self, forKey: name) }
        accessToken = text(.accessToken)
        tokenType = text(.tokenType)
        // Some servers write the number as a text.
        expiresIn = (try? members.decode(Double.self, forKey: .expiresIn)) ?? text(.expiresIn).flatMap(Double.init)
        refreshToken = text(.refreshToken)
        scope = text(.scope)
        idToken = text(.idToken)
        error = text(.error)
        errorDescription = text(.errorDescription)
        errorURI = text(.errorURI)
    }

    private static func depth(of body: [UInt8]) -> Int {
        var (depth, deepest, isText, isEscaped) = (0, 0, false, false)
        for byte in body {
            switch byte {
            case _ where isEscaped: isEscaped = false
            case UInt8(ascii: "\\") where isText: isEscaped = true
            case UInt8(ascii: "\""): isText.toggle()
            case _ where isText: break
            case UInt8(ascii: "{"), UInt8(ascii: "["):
                depth += 1
                deepest = max(deepest, depth)
            case UInt8(ascii: "}"), UInt8(ascii: "]"): depth -= 1
            default: break
            }
        }
        return deepest
    }
}
