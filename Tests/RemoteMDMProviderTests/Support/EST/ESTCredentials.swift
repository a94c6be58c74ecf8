import CertificateProviding
import Crypto
import Foundation
import NIOHTTP1
import ProviderTransport
import TestSupport

/// How a responder wants clients to authenticate. Of several HTTP schemes one is enough; a certificate comes on top.
struct ESTAuthentication: OptionSet, Hashable {
    let rawValue: Int
    static let basic = ESTAuthentication(rawValue: 1)
    static let digest = ESTAuthentication(rawValue: 2)
    static let bearer = ESTAuthentication(rawValue: 4)
    static let certificate = ESTAuthentication(rawValue: 8)
}

/// A responder's knowledge of its clients.
struct ESTCredentials {
    var schemes: ESTAuthentication
    var password = ESTServer.password
    /// How many right answers come too late for their nonce.
    var staleAnswers = 0
    private static let token = "esttoken"
    private static let realm = "Enrolment Test"
    /// The counts of each nonce that were used.
    private var counts: [String: Set<String>] = [:]

    init(_ schemes: ESTAuthentication) { self.schemes = schemes }

    /// Re-enrolment stands on the certificate that it renews, and needs a password only where a certificate alone is
    /// never enough.
    ///
    /// - Returns: The user, if the client is one.
    mutating func check(
        _ request: HTTPRequest, for operation: ESTOperation, isCertified: Bool
    ) throws(ESTRefusal) -> String? {
        if !isCertified, schemes.contains(.certificate) || operation == .simplereenroll {
            throw Self.refusal(403, "A client certificate is required.")
        }
        var wanted = schemes.subtracting(.certificate)
        if operation == .simplereenroll, !schemes.contains(.certificate) { wanted = [] }
        guard !wanted.isEmpty else { return nil }
        let parts = (request.headers.first(name: "Authorization") ?? "").split(separator: " ", maxSplits: 1)
        let (scheme, rest) = (parts.first?.lowercased() ?? "", parts.count == 2 ? String(parts[1]) : "")
        var isStale = false
        switch scheme {
        case "basic" where wanted.contains(.basic):
            let right = Data("\(ESTServer.user):\(password)".utf8).base64EncodedString()
            if rest == right { return ESTServer.user }
        case "bearer" where wanted.contains(.bearer): if rest == Self.token { return "bearer" }
        case "digest" where wanted.contains(.digest):
            switch answers(rest, request) {
            case true: return ESTServer.user
            case nil: isStale = true
            case false: break
            }
        default: break
        }
        throw Self.refusal(401, "Authentication is required.", challenges(wanted, isStale, scheme == "bearer"))
    }

    private static func refusal(_ status: Int, _ text: String, _ challenges: [String] = []) -> ESTRefusal {
        var refusal = ESTRefusal(status, text, challenges.map { ("WWW-Authenticate", $0) })
        refusal.isUnauthenticated = true
        return refusal
    }

    private mutating func challenges(_ wanted: ESTAuthentication, _ isStale: Bool, _ isBearer: Bool) -> [String] {
        var challenges: [String] = []
        if wanted.contains(.digest) {
            let nonce = UUID().uuidString
            counts[nonce] = []
            let stale = isStale ? ", stale=true" : ""
            challenges.append(
                "Digest realm=\"\(Self.realm)\", qop=\"auth\", algorithm=SHA-256, nonce=\"\(nonce)\"\(stale)")
        }
        if wanted.contains(.basic) { challenges.append("Basic realm=\"\(Self.realm)\", charset=\"UTF-8\"") }
        if wanted.contains(.bearer) {
            challenges.append("Bearer realm=\"\(Self.realm)\"" + (isBearer ? ", error=\"invalid_token\"" : ""))
        }
        return challenges
    }

    // MARK: - Digest (RFC 7616), with `qop=auth` and SHA-256

    /// - Returns: `nil` if the nonce is too old, not one of ours, or was used with this count.
    private mutating func answers(_ text: String, _ request: HTTPRequest) -> Bool? {
        var given: [String: String] = [:]
        for field in text.split(separator: ",") {
            let parts = field.split(separator: "=", maxSplits: 1).map(String.init)
            guard parts.count == 2 else { return false }
            given[parts[0].trimmingCharacters(in: .whitespaces)] = parts[1].trimmingCharacters(in: ["\"", " "])
        }
        guard given["username"] == ESTServer.user, given["realm"] == Self.realm, given["uri"] == request.target,
            given["qop"] == "auth", given["algorithm"] == "SHA-256", let nonce = given["nonce"],
            let count = given["nc"],
            let clientNonce = given["cnonce"]
        else { return false }
        let secret = Self.hash("\(ESTServer.user):\(Self.realm):\(password)")
        let subject = Self.hash("\(request.method.rawValue):\(request.target)")
        let expected = Self.hash("\(secret):\(nonce):\(count):\(clientNonce):auth:\(subject)")
        guard given["response"] == expected else { return false }
        if staleAnswers > 0 {
            staleAnswers -= 1
            return nil
        }
        return counts[nonce]?.insert(count).inserted == true ? true : nil
    }

    private static func hash(_ text: String) -> String { Array(SHA256.hash(data: Data(text.utf8))).hexEncoded }
}
