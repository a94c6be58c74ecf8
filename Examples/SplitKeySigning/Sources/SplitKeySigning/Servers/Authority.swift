public import CertificateProviding
import FoundationEssentials
import NIOHTTP1
public import ProviderTransport

/// The authority: issuers and verifier.
public struct Authority: Sendable {
    private let json: JSONServer
    private let exchange: any Exchange

    public init(_ server: ServerURL, _ exchange: any Exchange) {
        json = JSONServer(server, exchange)
        self.exchange = exchange
    }

    var server: ServerURL { json.server }
    /// Distinguishes it from other authorities.
    public var url: String { json.url }

    /// The first issuer's answer.
    struct Registration: Decodable {
        let dvsClientSecretShare: String
        let cs2url: String
        let curve: String
        let dtas: String
        let mpinId: String
    }

    private struct RegistrationRequest: Encodable {
        let token: String
        let publicKey: String
    }

    /// Asks for a key.
    ///
    /// - Parameter token: An activation code, for a login key; the session of a login, for a signing key.
    func register(
        _ token: SecretBytes, publicKey: [UInt8]
    ) async throws(ProviderError) -> Registration {
        let content = RegistrationRequest(
            token: token.withUnsafeBytes { String(decoding: $0, as: UTF8.self) },
            publicKey: DisplayText.hexadecimal(publicKey))
        let response = try await json.post("/rps/v2/dvsregister", content, isRepeatable: true)
        guard response.status == 200 else {
            throw json.refusal(
                response, of: "the request for a key",
                [
                    401: (
                        .rejected,
                        "\(server.authority) does not know the activation code, or it is used or over; get a new one"
                    )
                ])
        }
        return try response.json(Registration.self, from: server)
    }

    private struct SecondShare: Decodable { let dvsClientSecret: String }

    /// Gets the share of the second issuer, which gives it once.
    func secondShare(_ url: String) async throws(ProviderError) -> String {
        guard let issuer = ServerURL(url), issuer.isSecure else {
            throw ProviderError(
                .protocolError, "\(server.authority) names no https: URL of its second issuer. Nothing was sent there.")
        }
        let response = try await exchange.response(to: HTTPRequest(target: issuer.target), at: issuer, token: nil)
        guard response.status == 200 else {
            throw json.refusal(
                response, of: "the request for the second share",
                [
                    410: (
                        .rejected,
                        "\(issuer.authority) has given the second share already, or its time is over; begin again"
                    )
                ])
        }
        return try response.json(SecondShare.self, from: issuer).dvsClientSecret
    }

    // MARK: - Signatures

    private struct Confirmation: Encodable {
        let token: String
        let signature: SignatureObject
        let timestamp: UInt32
    }

    /// Has a signature on a number of this host verified, which enrols a key or tests its PIN.
    ///
    /// - Throws: `pinIncorrect`, `pinLocked`; `rejected` if the token is not for this key.
    func confirm(_ signed: TimedSignature, _ token: SecretBytes) async throws(ProviderError) {
        let content = Confirmation(
            token: token.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }, signature: signed.signature,
            timestamp: signed.timestamp)
        let response = try await json.post("/rps/v2/dvsconfirm", content, isRepeatable: true)
        guard response.status == 200 else { throw pinRefusal(response, of: "the confirmation of the key") }
    }

    private struct ChallengeRequest: Encodable { let mpinId: String }
    private struct Challenge: Decodable { let challenge: String }

    /// Asks for the number that a login signs.
    func challenge(for identity: MPinID) async throws(ProviderError) -> [UInt8] {
        let content = ChallengeRequest(mpinId: identity.hexadecimal)
        let response = try await json.post("/rps/v2/login/challenge", content, isRepeatable: true)
        guard response.status == 200 else {
            throw json.refusal(
                response, of: "the request for a login",
                [404: (.notFound, "\(server.authority) does not know this login key; enrol again: dvs enrol")])
        }
        let text = try response.json(Challenge.self, from: server).challenge
        guard let challenge = ByteText.bytes(hexadecimal: text), challenge.count == 32 else {
            throw ProviderError(
                .protocolError, "The challenge of \(server.authority) is not one of 32 bytes.")
        }
        return challenge
    }

    private struct Session: Decodable { let session: String }

    /// Logs in.
    ///
    /// - Returns: The session.
    func login(_ signed: TimedSignature) async throws(ProviderError) -> SecretBytes {
        let response = try await json.post("/rps/v2/login", signed, isRepeatable: true)
        guard response.status == 200 else { throw pinRefusal(response, of: "the login") }
        return try json.token(try response.json(Session.self, from: server).session, of: "the login")
    }

    private func pinRefusal(_ response: HTTPResponse, of purpose: String) -> ProviderError {
        json.refusal(
            response, of: purpose,
            [
                401: (.pinIncorrect, "\(server.authority) says that the PIN is wrong"),
                410: (
                    .pinLocked,
                    "\(server.authority) has blocked the key: three wrong PINs in a row. Enrol again with a new activation code: dvs enrol"
                ),
                400: (
                    .rejected,
                    "\(server.authority) refuses \(purpose); if the reason is the time, check the clock of this host"
                ),
                403: (.rejected, "\(server.authority) refuses \(purpose): the code or the session is not for this key"),
            ])
    }

    // MARK: - OpenID Connect

    /// Opens the URL of an authorization with a session, as a browser with a cookie does.
    ///
    /// - Returns: The code, and the state of the redirection.
    /// - Throws: `protocolError` for a URL of another server: the session goes to the authority only; and for a redirection to
    ///   another relying party, whose login the code is.
    func authorize(
        _ url: String, _ session: SecretBytes, for relyingParty: RelyingParty
    ) async throws(ProviderError) -> (code: String, state: String?) {
        guard let target = ServerURL(url), target.isOfSameOrigin(as: server) else {
            throw ProviderError(
                .protocolError,
                "The relying party leads to another server than the authority \(server.authority) for the login. Nothing was sent there; check 'SplitKey.authority' and 'SplitKey.relying-party'."
            )
        }
        var request = HTTPRequest(target: target.target)
        // To the relying party, which gets the code another way.
        request.followsRedirections = false
        let response = try await json.send(request, token: session)
        guard response.status == 302 else { throw json.refusal(response, of: "the authorization") }
        let text = response.headers.first(name: "Location") ?? ""
        guard relyingParty.isLogin(String(text.prefix { $0 != "?" })) else {
            throw ProviderError(
                .protocolError,
                "The login of \(relyingParty.server.authority) leads to another relying party, which it is not given to; check 'SplitKey.relying-party'."
            )
        }
        let location = URLComponents(string: text)
        func value(_ name: String) -> String? { location?.queryItems?.first { $0.name == name }?.value }
        guard let code = value("code") else {
            let reason = value("error").map { ": " + response.excerpt(of: $0, limit: 100) } ?? ""
            throw ProviderError(
                .rejected, "\(server.authority) gives the relying party no code\(reason).")
        }
        return (code, value("state"))
    }
}
