import CertificateProviding
import Foundation
import JWTKit

/// A JSON Web Token (RFC 7519) whose header says RS256 (RFC 7518, section 3.3). No other algorithm is taken, whatever key there is.
struct SignedToken: Sendable {
    /// In bytes.
    private static let maximumSize = 16 * 1024

    private struct Header: Decodable {
        let alg: String
        let kid: String?
        let isCritical: Bool

        private enum Name: CodingKey { case alg, kid, crit }

        init(from decoder: any Decoder) throws {
            let members = try decoder.container(keyedBy: Name.self)
            alg = try members.decode(String.self, forKey: .alg)
            kid = try members.decodeIfPresent(String.self, forKey: .kid)
            isCritical = members.contains(.crit)
        }
    }

    private let text: String
    /// The key that the token names.
    let kid: String?

    /// - Returns: `nil` for anything else.
    init?(_ text: String) {
        let parts = text.split(separator: ".", omittingEmptySubsequences: false)
        guard text.utf8.count <= Self.maximumSize, parts.count == 3, let data = Data(base64URL: parts[0]),
            let header = try? JSONDecoder().decode(Header.self, from: data), header.alg == "RS256", !header.isCritical
        else { return nil }
        (self.text, kid) = (text, header.kid)
    }

    /// Returns the claims, if the signature is that of the key.
    func claims<Claims: JWTPayload>(_ type: Claims.Type, signedBy key: Insecure.RSA.PublicKey) async -> Claims? {
        let keys = JWTKeyCollection()
        await keys.add(rsa: key, digestAlgorithm: .sha256)
        return try? await keys.verify(text, as: type)
    }
}

extension Data {
    fileprivate init?(base64URL text: Substring) {
        let base64 = text.replacing("-", with: "+").replacing("_", with: "/")
        self.init(base64Encoded: base64 + String(repeating: "=", count: (4 - base64.utf8.count % 4) % 4))
    }
}

/// The claim `aud`: a text or an array (RFC 7519, section 4.1.3).
struct Audience: Codable, Sendable {
    let values: [String]

    init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        if let value = try? container.decode(String.self) {
            values = [value]
        } else {
            values = try container.decode([String].self)
        }
    }

    func encode(to encoder: any Encoder) throws { try values.encode(to: encoder) }
}
