import Crypto
import Foundation
import HTTPTypes
import Hummingbird
import Synchronization

/// The relying party's own access tokens, in memory: random, good for an hour, each for one user. Of a token its SHA-256 is kept.
final class AccessTokens: Sendable {
    static let lifetime: TimeInterval = 3600

    private let users = Mutex<[Data: (user: String, expiry: Date)]>([:])
    private let now: @Sendable () -> Date

    init(now: @escaping @Sendable () -> Date) { self.now = now }

    func make(for user: String) -> String {
        let token = SymmetricKey(size: .bits256).withUnsafeBytes { Data($0) }.base64EncodedString()
            .replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
        let now = now()
        users.withLock { users in
            users = users.filter { now < $0.value.expiry }
            users[Self.digest(token)] = (user, now + Self.lifetime)
        }
        return token
    }

    /// Returns whose token it is; `nil` for one that is unknown or over.
    func user(of token: String) -> String? {
        guard let (user, expiry) = users.withLock({ $0[Self.digest(token)] }), now() < expiry else { return nil }
        return user
    }

    /// Returns the user of a request's bearer token (RFC 6750, section 2.1).
    ///
    /// - Throws: `HTTPError`: 401.
    func user(of request: Request) throws -> String {
        let parts = (request.headers[.authorization] ?? "").split(separator: " ")
        guard parts.count == 2, parts[0].lowercased() == "bearer", let user = user(of: String(parts[1])) else {
            throw HTTPError(
                .unauthorized, headers: [.wwwAuthenticate: "Bearer"],
                message:
                    "The access token is missing, unknown or over: it ends after an hour and at a restart. Log in again."
            )
        }
        return user
    }

    private static func digest(_ token: String) -> Data { Data(SHA256.hash(data: Data(token.utf8))) }
}
