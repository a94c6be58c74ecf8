import CertificateProviding
import CertificateTLS
import OAuth
import Synchronization
import TestSupport

extension ESTServer {
    static let clientID = "estclient"
    static let secret = SecretBytes(utf8: "estsecret")

    func endpoint(
        fault: String = "", trust: ServerTrust? = nil, timeout: Duration = .seconds(200)
    ) throws -> TokenEndpoint {
        try TokenEndpoint(
            "https://localhost:\(port)/token" + (fault.isEmpty ? "" : "/fault-token-\(fault)"),
            trust: trust ?? ServerTrust(trustAnchors: .pemFile(directory["ca.pem"])), timeout: timeout)
    }

    func tokens(
        fault: String = "", secret: SecretBytes = secret, authentication: OAuthClient.Authentication = .basic,
        grant: OAuthGrant = .clientCredentials, scopes: [String] = [], clock: Clock = Clock(),
        timeout: Duration = .seconds(200)
    ) throws -> AccessTokenSource {
        try AccessTokenSource(
            endpoint(fault: fault, timeout: timeout),
            client: OAuthClient(Self.clientID, secret: secret, authentication: authentication), grant: grant,
            scopes: scopes, now: clock.now)
    }

    /// The grants that were asked for, and what became of each.
    func grants() throws -> [String] {
        try requests().compactMap { request in
            guard request["operation"] as? String == "token" else { return nil }
            return "\(request["grant_type"] as? String ?? "-") \(request["grant"] as? String ?? "-")"
        }
    }

    /// Whether the server takes a token for an enrolment; without one that is 401, else the CSR is missing.
    func takes(_ token: AccessToken) throws -> Bool {
        let status = try Subprocess.run(
            [
                "curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}", "--cacert",
                directory["ca.pem"], "--request", "POST", "--header", "Content-Type: application/pkcs10", "--header",
                "@-",
                "https://localhost:\(port)/.well-known/est/simpleenroll",
            ], input: Array("Authorization: \(token.authorization)\n".utf8))
        return String(decoding: status, as: UTF8.self) != "401"
    }
}

/// A clock that is turned by hand.
final class Clock: Sendable {
    private let offset = Mutex(Duration.zero)
    private let start = ContinuousClock.now

    var now: @Sendable () -> ContinuousClock.Instant { { [self] in start + offset.withLock { $0 } } }

    func advance(_ duration: Duration) { offset.withLock { $0 += duration } }
}
