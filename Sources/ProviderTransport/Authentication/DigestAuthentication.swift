import CertificateProviding
import Crypto

/// HTTP Digest (RFC 7616): proves the password without sending it.
///
/// MD5 is used only if the server supports nothing else; the connection is TLS in any case.
struct DigestAuthentication: Sendable {
    private enum Algorithm: String { case sha256 = "SHA-256", md5 = "MD5" }

    private let algorithm: Algorithm
    private let isSession: Bool
    private let realm: String
    private let nonce: String
    private let opaque: String?
    private let hasQuality: Bool
    /// The same for all answers to the challenge, since the key of a session is derived from it (section 3.4.2).
    private let clientNonce: String
    private var count: UInt32 = 0

    /// - Returns: `nil` for a challenge that cannot be answered: another algorithm, or protection of the body.
    init?(_ challenge: AuthenticationChallenge) {
        let parameters = challenge.parameters
        guard challenge.scheme == "digest", let nonce = parameters["nonce"], let realm = parameters["realm"] else {
            return nil
        }
        var name = (parameters["algorithm"] ?? "MD5").uppercased()
        isSession = name.hasSuffix("-SESS")
        if isSession { name = String(name.dropLast(5)) }
        guard let algorithm = Algorithm(rawValue: name) else { return nil }
        if let qualities = parameters["qop"] {
            guard qualities.lowercased().split(whereSeparator: { $0 == "," || $0 == " " }).contains("auth") else {
                return nil
            }
            hasQuality = true
        } else {
            hasQuality = false
        }
        (self.algorithm, self.nonce, self.realm, self.opaque) = (algorithm, nonce, realm, parameters["opaque"])
        clientNonce = Self.freshNonce()
    }

    /// Returns the strongest of the supported challenges (section 3.7).
    static func strongest(of challenges: [AuthenticationChallenge]) -> DigestAuthentication? {
        let known = challenges.compactMap { DigestAuthentication($0) }
        return known.first { $0.algorithm == .sha256 } ?? known.first
    }

    /// Whether a refusal only means that the nonce is too old (section 3.3), and the password may be right.
    static func isStale(_ challenges: [AuthenticationChallenge]) -> Bool {
        challenges.contains { $0.scheme == "digest" && $0.parameters["stale"]?.lowercased() == "true" }
    }

    /// Returns the `Authorization` field for one request.
    mutating func field(
        user: String, password: SecretBytes, method: HTTPRequest.Method, target: String
    ) -> String {
        count += 1
        let digits = String(count, radix: 16)
        let number = String(repeating: "0", count: 8 - digits.count) + digits
        var secret = password.withUnsafeBytes { bytes in hash(Array("\(user):\(realm):".utf8) + Array(bytes)) }
        if isSession { secret = hash("\(secret):\(nonce):\(clientNonce)") }
        let subject = hash("\(method.rawValue):\(target)")
        let response = hash(
            hasQuality
                ? "\(secret):\(nonce):\(number):\(clientNonce):auth:\(subject)" : "\(secret):\(nonce):\(subject)")
        var fields = [
            "username=\(Self.quoted(user))", "realm=\(Self.quoted(realm))", "nonce=\(Self.quoted(nonce))",
            "uri=\(Self.quoted(target))", "algorithm=\(algorithm.rawValue)\(isSession ? "-sess" : "")",
            "response=\"\(response)\"",
        ]
        if hasQuality || isSession { fields.append("cnonce=\"\(clientNonce)\"") }
        if hasQuality { fields += ["qop=auth", "nc=\(number)"] }
        if let opaque { fields.append("opaque=\(Self.quoted(opaque))") }
        return "Digest " + fields.joined(separator: ", ")
    }

    static func freshNonce() -> String { SymmetricKey(size: .bits128).withUnsafeBytes { Array($0).hexEncoded } }

    private func hash(_ text: String) -> String { hash(Array(text.utf8)) }

    private func hash(_ bytes: [UInt8]) -> String {
        switch algorithm {
        case .sha256: Array(SHA256.hash(data: bytes)).hexEncoded
        case .md5: Array(Insecure.MD5.hash(data: bytes)).hexEncoded
        }
    }

    private static func quoted(_ text: String) -> String {
        "\"" + text.flatMap { $0 == "\"" || $0 == "\\" ? ["\\", $0] : [$0] } + "\""
    }
}
