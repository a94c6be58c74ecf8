import CertificateProviding
import Foundation
import OAuth
import ProviderTransport
import Synchronization

/// The OpenID provider of the users: where a login begins, and who has logged in.
final class OpenIDProvider: Sendable {
    /// A part of the provider's metadata (OpenID Connect Discovery 1.0, section 3).
    private struct Metadata: Decodable {
        let issuer: String
        let authorization_endpoint: String
        let token_endpoint: String
        let jwks_uri: String
    }

    /// Why a code is not a login. The message has no secrets.
    struct Refusal: Error {
        let message: String
    }

    private static let age: TimeInterval = 600

    private let configuration: RelyingPartyConfiguration
    private let client: OAuthClient
    private let calls: ServerCalls
    private let keys: KeySet
    private let now: @Sendable () -> Date
    private let metadata = Mutex<(Metadata, Date)?>(nil)

    init(
        _ configuration: RelyingPartyConfiguration, _ calls: ServerCalls, now: @escaping @Sendable () -> Date
    ) throws(ProviderError) {
        client = try OAuthClient(configuration.clientID, secret: configuration.clientSecret)
        (self.configuration, self.calls, self.now) = (configuration, calls, now)
        keys = KeySet(calls)
    }

    /// Makes a request for a login.
    func authorization() async throws(ProviderError) -> AuthorizationRequest {
        try AuthorizationRequest(
            at: try await metadata(within: calls.budget()).authorization_endpoint, client: client,
            redirectURI: configuration.redirectURI, scopes: ["openid", "profile", "email"])
    }

    /// Exchanges a code, and verifies that it is the login of a user.
    ///
    /// - Throws: ``Refusal``; `ProviderError` if the provider does not give a usable answer.
    func verify(_ code: SecretBytes, of request: AuthorizationRequest, for user: String) async throws {
        // One half for the documents, one for the code.
        let half = calls.timeout / 2
        let budget = calls.budget(half)
        let metadata = try await metadata(within: budget)
        let endpoint = try TokenEndpoint(
            metadata.token_endpoint, trust: configuration.trust, timeout: half, date: now,
            network: calls.transport.network)
        let tokens = try AccessTokenSource(endpoint, client: client, grant: .authorizationCode(code, for: request))
        let answer: AccessToken
        do throws(ProviderError) { answer = try await tokens.token() } catch {
            guard error.reason == .rejectedGrant else { throw error }
            throw Refusal(message: "The code is wrong, used or over. Log in again.")
        }
        guard let text = answer.idToken?.withUnsafeBytes({ String(decoding: $0, as: UTF8.self) }),
            let token = SignedToken(text)
        else { throw Refusal(message: "The provider sends no ID token that is signed with RS256.") }
        guard
            let key = try await keys.key(token.kid, at: try ServerCalls.server(metadata.jwks_uri), within: budget),
            let claims = await token.claims(IDTokenClaims.self, signedBy: key)
        else { throw Refusal(message: "The ID token is not signed by a key of the provider.") }
        let problem = claims.problem(
            issuer: configuration.issuer, client: client.id, nonce: request.nonce, user: user, at: now())
        if let problem { throw Refusal(message: "The ID token cannot be used: \(problem).") }
    }

    private func metadata(within budget: TimeBudget) async throws(ProviderError) -> Metadata {
        if let (metadata, date) = metadata.withLock(\.self), (0..<Self.age).contains(now().timeIntervalSince(date)) {
            return metadata
        }
        let found = try await calls.document(
            Metadata.self, at: try ServerCalls.server(configuration.issuer, "/.well-known/openid-configuration"),
            within: budget)
        guard found.issuer == configuration.issuer else {
            throw ProviderError(
                .protocolError,
                "The OpenID provider \(configuration.issuer) says that it is \(DisplayText.visible(String(found.issuer.prefix(200)))); check 'RelyingParty.issuer'."
            )
        }
        metadata.withLock { $0 = (found, now()) }
        return found
    }
}
