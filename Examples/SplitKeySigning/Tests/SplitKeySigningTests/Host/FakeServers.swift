import CertificateProviding
import Crypto
import Foundation
import NIOHTTP1
import ProviderTransport
import SplitKeySigning
import Synchronization
import Testing

@testable import SplitKeySigning

/// G2 without points: a public key is the digest of 1/z in as many bytes, and the servers of a test know z.
final class FakePairing: PairingComputing {
    /// z by public key.
    let factors = Mutex<[[UInt8]: SecretScalar]>([:])

    func multiple(of number: SecretScalar) async throws(ProviderError) -> [UInt8] {
        let group = try G1Group.bls12381.get()
        let bytes = try number.bytes(count: 32).withUnsafeBytes { Array($0) }
        let key = (0..<6).flatMap { SplitKeyScheme.hash($0, bytes) }
        let z = try group.inverse(of: number)
        factors.withLock { $0[key] = z }
        return key
    }
}

/// An authority and a relying party in this process, which know z and so need no pairing. What they are sent is recorded. They
/// misbehave as a test says.
final class FakeServers: Exchange {
    struct Recorded: Sendable {
        let path: String
        let body: [UInt8]
        let token: String?

        /// A member of the JSON, such as `signature`.
        func signature() throws -> SignatureObject {
            struct Content: Decodable {
                let signature: SignatureObject?
                let verificationData: SignatureObject?
            }
            let content = try JSONDecoder().decode(Content.self, from: Data(body))
            guard let signature = content.signature ?? content.verificationData else {
                throw CocoaError(.coderValueNotFound)
            }
            return signature
        }
    }

    struct State {
        var recorded: [Recorded] = []
        /// Answers instead of the servers, where it does.
        var instead: (@Sendable (Recorded) throws(ProviderError) -> (Int, String)?)?
        var wrong: [String: Int] = [:]
        var accessTokens: Set<String> = []
        /// Whether a document needs an access token.
        var demandsToken = true
    }

    let authority: ServerURL
    let relyingParty: ServerURL

    let state = Mutex(State())
    let pairing: FakePairing
    private let (s1, s2): (SecretScalar, SecretScalar)
    let userID: String

    init(_ pairing: FakePairing, userID: String = "alice@example.com") throws {
        let group = try G1Group.bls12381.get()
        (s1, s2) = (try group.randomScalar(), try group.randomScalar())
        (self.pairing, self.userID) = (pairing, userID)
        authority = try #require(ServerURL("https://authority.example"))
        relyingParty = try #require(ServerURL("https://shop.example"))
    }

    var recorded: [Recorded] { state.withLock(\.recorded) }
    func paths() -> [String] { recorded.map(\.path) }
    func count(_ path: String) -> Int { paths().count { $0 == path } }

    /// Has a path answered otherwise: `nil` lets the servers answer.
    func answer(_ body: @escaping @Sendable (Recorded) throws(ProviderError) -> (Int, String)?) {
        state.withLock { $0.instead = body }
    }

    func response(
        to request: HTTPRequest, at server: ServerURL, token: SecretBytes?
    ) async throws(ProviderError) -> HTTPResponse {
        let path = String(request.target.prefix { $0 != "?" })
        let recorded = Recorded(
            path: path, body: request.body,
            token: token.map { $0.withUnsafeBytes { String(decoding: $0, as: UTF8.self) } })
        let instead = state.withLock { state in
            state.recorded.append(recorded)
            return state.instead
        }
        let (status, text): (Int, String)
        if let given = try instead?(recorded) {
            (status, text) = given
        } else {
            (status, text) = try answer(to: recorded)
        }
        var headers = HTTPHeaders()
        if status == 302 { headers.add(name: "Location", value: text) }
        return HTTPResponse(status: status, headers: headers, body: Array(text.utf8))
    }

    static func identity(_ userID: String, _ scope: String) -> String {
        let salt = DisplayText.hexadecimal((0..<16).map { _ in UInt8.random(in: 0...255) })
        return
            #"{"iat":1,"userID":"\#(userID)","cID":"COMPANY","salt":"\#(salt)","v":5,"scope":["\#(scope)"],"dtas":["dta1","dta2"],"vt":"pv"}"#
    }

    /// The answer to a registration.
    func registration(
        _ recorded: Recorded, identity: String? = nil, curve: String = "BLS12381", share: String? = nil
    ) throws(ProviderError) -> String {
        let content = try Self.members(recorded.body)
        let scope = content["token"] == "code" ? "auth" : "dvs-auth"
        let identity = Array((identity ?? Self.identity(userID, scope)).utf8)
        let a = try self.a(identity, ByteText.bytes(hexadecimal: content["publicKey"] ?? "") ?? [])
        var first = DisplayText.hexadecimal(try a.times(s1).bytes())
        if let share { first = share }
        let second = DisplayText.hexadecimal(try a.times(s2).bytes())
        return
            #"{"dvsClientSecretShare":"\#(first)","cs2url":"https://issuer.example/\#(second)","curve":"\#(curve)","dtas":"WyJkdGExIl0=","mpinId":"\#(DisplayText.hexadecimal(identity))"}"#
    }

    private func a(_ identity: [UInt8], _ publicKey: [UInt8]) throws(ProviderError) -> G1Point {
        try SplitKeyScheme(try G1Group.bls12381.get()).point(of: identity + publicKey)
    }

    private func answer(to recorded: Recorded) throws(ProviderError) -> (Int, String) {
        switch recorded.path {
        case "/rps/v2/dvsregister": return (200, try registration(recorded))
        case "/rps/v2/login/challenge":
            return (200, #"{"challenge":"\#(String(repeating: "ab", count: 32))","expires":60}"#)
        case "/rps/v2/dvsconfirm": return (try verdict(recorded), "{}")
        case "/rps/v2/login": return (try verdict(recorded), #"{"session":"session-1","expires":600}"#)
        case "/oidc/authorize": return (302, "https://shop.example/login?code=c-1&state=s-1")
        case "/authzurl":
            return (200, #"{"authorizeURL":"https://authority.example/oidc/authorize?client_id=shop&state=s-1"}"#)
        case "/authtoken":
            let token = state.withLock { state in
                let token = "access-\(state.accessTokens.count + 1)-\(UInt32.random(in: 0 ... .max))"
                state.accessTokens.insert(token)
                return token
            }
            return (200, #"{"access_token":"\#(token)","token_type":"Bearer","expires_in":3600}"#)
        case "/document":
            let isKnown = state.withLock { $0.accessTokens.contains(recorded.token ?? "") }
            if state.withLock(\.demandsToken), !isKnown { return (401, "{}") }
            let digest = DisplayText.hexadecimal(Array(SHA256.hash(data: recorded.body)))
            let time = UInt32(Date().timeIntervalSince1970)
            return (200, #"{"hash":"\#(digest)","timestamp":\#(time),"authToken":"a"}"#)
        case "/verify-signature":
            let isKnown = state.withLock { $0.accessTokens.contains(recorded.token ?? "") }
            guard isKnown else { return (401, "{}") }
            return switch try verdict(recorded) {
            case 200: (200, #"{"verified":true,"status":"ValidSignature"}"#)
            case 410: (200, #"{"verified":false,"status":"UserBlocked"}"#)
            default: (200, #"{"verified":false,"status":"BadPin"}"#)
            }
        default:
            // The second issuer.
            return (200, #"{"dvsClientSecret":"\#(recorded.path.dropFirst())"}"#)
        }
    }

    /// 200, 401 or 410, as the authority says it.
    private func verdict(_ recorded: Recorded) throws(ProviderError) -> Int {
        guard let signature = try? recorded.signature(), let timestamp = Self.timestamp(recorded.body) else {
            return 400
        }
        let isValid = try isValid(signature, at: timestamp)
        return state.withLock { state in
            if (state.wrong[signature.publicKey] ?? 0) >= 3 { return 410 }
            if isValid {
                state.wrong[signature.publicKey] = 0
            } else {
                state.wrong[signature.publicKey, default: 0] += 1
            }
            return isValid ? 200 : state.wrong[signature.publicKey] == 3 ? 410 : 401
        }
    }

    /// V = −z·(s₁ + s₂)·(U + y·A): what the pairing says, to one who knows z.
    func isValid(_ signature: SignatureObject, at timestamp: UInt32) throws(ProviderError) -> Bool {
        let group = try G1Group.bls12381.get()
        guard let identity = ByteText.bytes(hexadecimal: signature.mpinId),
            let publicKey = ByteText.bytes(hexadecimal: signature.publicKey),
            let u = ByteText.bytes(hexadecimal: signature.u), let v = ByteText.bytes(hexadecimal: signature.v),
            let digest = ByteText.bytes(hexadecimal: signature.hash),
            let z = pairing.factors.withLock({ $0[publicKey] })
        else { return false }
        let y = try SplitKeyScheme(group).challenge(u, digest, at: timestamp)
        let sum = try group.point(u, named: "u").plus(try a(identity, publicKey).times(y))
        return try sum.times(try group.sum(s1, s2)).times(z).negated().bytes() == v
    }

    // MARK: - JSON

    static func members(_ body: [UInt8]) throws(ProviderError) -> [String: String] {
        (try? JSONDecoder().decode([String: String].self, from: Data(body))) ?? [:]
    }

    private static func timestamp(_ body: [UInt8]) -> UInt32? {
        struct Content: Decodable { let timestamp: UInt32 }
        return try? JSONDecoder().decode(Content.self, from: Data(body)).timestamp
    }
}
