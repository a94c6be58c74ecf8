import CertificateProviding
import Crypto
import Foundation
import JWTKit

/// Signs the tokens of the scripted servers, right ones and others.
struct TokenMaker: Sendable {
    /// JSON text of a token's claims.
    typealias Claims = [String: any Sendable]

    /// How a token is signed.
    enum Signature: Sendable, CaseIterable {
        case right, unsigned, hmacWithPublicKey, otherKey, otherKeyIdentifier, otherAlgorithmName, critical, cut
    }

    private let one: any JWTAlgorithm
    private let other: any JWTAlgorithm
    private let publicKey: String
    /// Of the key that signs rightly.
    let modulus: String

    init(_ fixtures: Fixtures) async throws {
        func algorithm(_ name: String) async throws -> any JWTAlgorithm {
            let keys = JWTKeyCollection()
            await keys.add(
                rsa: try Insecure.RSA.PrivateKey(pem: fixtures.text("\(name).pem")), digestAlgorithm: .sha256)
            return try await keys.getKey()
        }
        (one, other) = (try await algorithm("one"), try await algorithm("other"))
        publicKey = try fixtures.text("one.pub")
        let text = try await Program.run(
            ["openssl", "rsa", "-in", "one.pem", "-noout", "-modulus"], in: fixtures.directory.path)
        let digits = text.split(separator: "=")[1].filter(\.isHexDigit)
        modulus = ByteText.base64URL(ByteText.bytes(hexadecimal: digits) ?? [])
    }

    /// A key set, with keys of other kinds.
    var keySet: String {
        #"{"keys":[{"kty":"oct","kid":"secret","k":"AAAA"},{"kty":"RSA","kid":"encryption","use":"enc","n":"\#(modulus)","e":"AQAB"},{"kty":"RSA","kid":"one","alg":"RS256","use":"sig","n":"\#(modulus)","e":"AQAB"}]}"#
    }

    func token(_ claims: Claims, _ signature: Signature = .right, kid: String? = "one") throws -> String {
        var header: Claims = ["typ": "JWT", "alg": "RS256"]
        header["kid"] = kid
        switch signature {
        case .unsigned: header["alg"] = "none"
        case .hmacWithPublicKey: header["alg"] = "HS256"
        case .otherKeyIdentifier: header["kid"] = "encryption"
        case .otherAlgorithmName: header["alg"] = "RS512"
        case .critical: header["crit"] = ["b64"]
        default: break
        }
        let text = try [header, claims].map { ByteText.base64URL(try JSONSerialization.data(withJSONObject: $0)) }
            .joined(separator: ".")
        let data = Data(text.utf8)
        let bytes: Data =
            switch signature {
            case .unsigned: Data()
            case .hmacWithPublicKey:
                Data(HMAC<SHA256>.authenticationCode(for: data, using: SymmetricKey(data: Data(publicKey.utf8))))
            case .otherKey: Data(try other.sign(data))
            case .cut: Data(try one.sign(data)).dropLast()
            default: Data(try one.sign(data))
            }
        return text + "." + ByteText.base64URL(bytes)
    }
}
