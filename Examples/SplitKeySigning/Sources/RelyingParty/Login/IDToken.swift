import CertificateProviding
import Foundation
import JWTKit

/// The claims of an ID token (OpenID Connect Core 1.0, section 2).
struct IDTokenClaims: JWTPayload {
    let iss: String
    let sub: String
    let aud: Audience
    let exp: Double
    let iat: Double
    let nonce: String?
    let azp: String?
    let nbf: Double?

    /// How far the provider's clock may be ahead, in seconds.
    private static let leeway: TimeInterval = 60
    /// A token is for the login that is going on, in seconds.
    private static let maximumAge: TimeInterval = 600

    func verify(using algorithm: some JWTAlgorithm) {}

    /// Checks the claims as section 3.1.3.7 says.
    ///
    /// - Returns: What is wrong; `nil` if all is right.
    func problem(issuer: String, client: String, nonce expected: String, user: String, at now: Date) -> String? {
        let time = now.timeIntervalSince1970
        guard iss == issuer else { return "another issuer" }
        guard aud.values.contains(client) else { return "another audience" }
        // With others in the audience, the token must be issued to this client.
        guard azp == client || azp == nil && aud.values == [client] else { return "another authorized party" }
        let advice = "check the clock of the relying party, then that of the provider"
        guard time < exp else { return "expired; \(advice)" }
        guard iat <= time + Self.leeway, time - Self.maximumAge <= iat, nbf ?? 0 <= time + Self.leeway else {
            return "of another time; \(advice)"
        }
        guard let nonce, SecretBytes(utf8: nonce) == SecretBytes(utf8: expected) else { return "another nonce" }
        // Byte by byte: texts are equal where accents are composed in another way.
        guard sub.utf8.elementsEqual(user.utf8) else { return "another user" }
        return nil
    }
}
