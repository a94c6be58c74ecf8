import CertificateProviding
import Foundation
import JWTKit
import Logging
import NIOHTTP1
import ProviderTransport

/// What became of a signature.
enum VerificationStatus: String, Encodable, Sendable {
    case valid = "ValidSignature"
    case badPIN = "BadPin"
    case blocked = "UserBlocked"
    /// The verifier says nothing about the signature.
    case missing = "MissingSignature"
    case invalid = "InvalidSignature"
}

/// The verifier, which alone can check signatures, and whose receipts are checked here.
struct Verifier: Sendable {
    private struct Question: Encodable {
        let signature: SignatureObject
        let timestamp: Int
        let type = "verification"
    }

    private struct Answer: Decodable {
        let certificate: String?
    }

    private let server: ServerURL
    private let keysURL: ServerURL
    private let issuer: String
    private let clientID: String
    private let clientSecret: SecretBytes
    private let calls: ServerCalls
    private let keys: KeySet
    private let logger: Logger
    private let now: @Sendable () -> Date

    init(
        _ configuration: RelyingPartyConfiguration, _ calls: ServerCalls, logger: Logger,
        now: @escaping @Sendable () -> Date
    ) throws(ProviderError) {
        let url = configuration.authority
        issuer = url.hasSuffix("/") ? String(url.dropLast()) : url
        server = try ServerCalls.server(configuration.authority, "/dvs/verify")
        keysURL = try ServerCalls.server(configuration.authority, "/dvs/jwks")
        (clientID, clientSecret) = (configuration.clientID, configuration.clientSecret)
        (self.calls, self.logger, self.now) = (calls, logger, now)
        keys = KeySet(calls)
    }

    /// Has a signature verified. The verifier counts the same signature once, so it may be asked again.
    ///
    /// - Throws: `ProviderError` if it does not give a usable answer, with the reason `verifierNotAsked` if it has certainly
    ///   not counted the signature.
    func verify(
        _ signature: SignatureObject, at timestamp: Int
    ) async throws(ProviderError) -> VerificationStatus {
        let budget = calls.budget()
        var request = try HTTPRequest(
            target: server.target, json: Question(signature: signature, timestamp: timestamp), isRepeatable: true)
        let credentials = clientSecret.withUnsafeBytes { (Data("\(clientID):".utf8) + Data($0)).base64EncodedString() }
        request.headers.add(name: "Authorization", value: "Basic \(credentials)")
        request.maximumResponse = ServerCalls.maximumAnswer
        let response = try await answer(to: request, within: budget)
        switch response.status {
        case 200: break
        case 400:
            logger.warning("signature refused by the verifier; if all are, compare this host's clock with its own")
            return .invalid
        case 401: return .badPIN
        case 410: return .blocked
        case 403:
            throw ProviderError(
                .rejected,
                "\(server.authority) does not know the client \(DisplayText.visible(clientID)), or its secret is wrong; check 'RelyingParty.client-id' and 'RelyingParty.client-secret-source'.",
                nativeCode: 403)
        default:
            throw refusal(response)
        }
        let answer = try response.json(Answer.self, from: server)
        guard let text = answer.certificate, !text.isEmpty else { return .missing }
        var problem: String? = "it is not signed with RS256 by a key of the verifier, or lacks a claim"
        if let token = SignedToken(text), let kid = token.kid,
            let key = try await keys.key(kid, at: keysURL, within: budget),
            let receipt = await token.claims(Receipt.self, signedBy: key)
        {
            problem = receipt.problem(issuer: issuer, client: clientID, signature, at: timestamp, now: now())
        }
        guard let problem else { return .valid }
        logger.warning("receipt refused", metadata: ["reason": "\(problem)"])
        return .invalid
    }

    /// The part of a refusal that says that the signature is not counted: `"counted": false`.
    private struct Uncounted: Decodable { let counted: Bool }

    /// Sends a signature, and the same one again if the answer is lost. Only the first attempt can fail as one that was not counted: a
    /// later one says nothing about it.
    private func answer(
        to request: HTTPRequest, within budget: TimeBudget
    ) async throws(ProviderError) -> HTTPResponse {
        let session = calls.session(with: server, within: budget)
        do throws(ProviderError) { try await session.connect() } catch { throw error.beforeVerification }
        var once = request
        once.isRepeatable = false
        do throws(ProviderError) {
            let response = try await session.response(to: once)
            if response.status == 503, (try? response.json(Uncounted.self, from: server))?.counted == false {
                throw refusal(response).beforeVerification
            }
            // The repetition waits as long as 408 and 429 say.
            if response.status < 500, ![408, 429].contains(response.status) { return response }
        } catch {
            guard error.code == .unavailable, error.reason != .verifierNotAsked else { throw error }
        }
        return try await session.response(to: request)
    }

    /// The error for an unexpected status. The text of the answer is not quoted: the client's secret may be in it.
    private func refusal(_ response: HTTPResponse) -> ProviderError {
        ProviderError(
            response.status >= 500 || response.status == 429 ? .unavailable : .protocolError,
            "\(server.authority) answers the verification of a signature with the status \(response.status); look for the reason in its log.",
            nativeCode: response.status)
    }
}

/// The claims of a verifier's receipt.
struct Receipt: JWTPayload {
    let iss: String
    let aud: Audience
    let exp: Double
    let hash: String
    let mpinId: String
    let publicKey: String
    let timestamp: Int
    let cAt: Double

    func verify(using algorithm: some JWTAlgorithm) {}

    /// - Returns: What is wrong; `nil` if all is right.
    func problem(
        issuer: String, client: String, _ signature: SignatureObject, at timestamp: Int, now: Date
    ) -> String? {
        guard iss == issuer else { return "its issuer is not 'RelyingParty.authority'" }
        guard aud.values == [client] else { return "it is for another client" }
        guard now.timeIntervalSince1970 < exp else { return "it is over" }
        guard hash.lowercased() == signature.hash, mpinId.lowercased() == signature.mpinId,
            publicKey.lowercased() == signature.publicKey, self.timestamp == timestamp, Double(timestamp) <= cAt
        else { return "it is of another signature" }
        return nil
    }
}
