import CertificateProviding
import Crypto
import Foundation
import HTTPTypes
import Hummingbird
import NIOCore

/// What shows to whoever has the client's secret that it has given a hash out.
struct DocumentAuthorization: Sendable {
    private let clientID: String
    private let clientSecret: SecretBytes

    init(_ clientID: String, _ clientSecret: SecretBytes) {
        (self.clientID, self.clientSecret) = (clientID, clientSecret)
    }

    /// base64(clientId ":" hex HMAC-SHA256(clientSecret, hash's hex)).
    func token(for hash: String) -> String {
        let key = clientSecret.withUnsafeBytes { SymmetricKey(data: $0) }
        let code = HMAC<SHA256>.authenticationCode(for: Data(hash.utf8), using: key)
        return Data("\(clientID):\(DisplayText.hexadecimal(code))".utf8).base64EncodedString()
    }
}

/// Hashes documents, which are not kept.
struct DocumentController: Sendable {
    static let maximumSize = 50_000_000
    static let maximumInQuery = 8 * 1024

    let tokens: AccessTokens
    let hashes: GivenHashes
    let authorization: DocumentAuthorization

    private struct Answer: Encodable {
        let hash: String
        let timestamp: Int
        let authToken: String
    }

    func addRoutes(to router: some RouterMethods<BasicRequestContext>) {
        router.post("document") { request, _ in
            // A stranger's document is not looked at.
            let user = try tokens.user(of: request)
            var hash = SHA256()
            try await request.readBody(upTo: Self.maximumSize) { part in
                part.withUnsafeReadableBytes { hash.update(bufferPointer: $0) }
            }
            return try answer(hash.finalize(), for: user)
        }
        for method in [HTTPRequest.Method.get, .post] {
            router.on("login/CreateDocumentHash", method: method) { request, _ in
                let user = try tokens.user(of: request)
                guard let document = try request.queryParameter("document") else {
                    throw HTTPError(.badRequest, message: "The parameter document is missing.")
                }
                guard document.utf8.count <= Self.maximumInQuery else {
                    throw HTTPError(
                        .contentTooLarge,
                        message: "The document is larger than \(Self.maximumInQuery) bytes; send it to /document.")
                }
                return try answer(SHA256.hash(data: Data(document.utf8)), for: user)
            }
        }
    }

    private func answer(_ digest: SHA256Digest, for user: String) throws -> Response {
        let hash = DisplayText.hexadecimal(digest)
        let timestamp: Int
        do { timestamp = try hashes.give(hash, to: user) } catch {
            throw HTTPError(
                .tooManyRequests, headers: [.retryAfter: "\(error.seconds)"],
                message: "Too many documents of this user wait for a signature. Try again in \(error.seconds) seconds.")
        }
        return try .json(
            .ok, Answer(hash: hash, timestamp: timestamp, authToken: authorization.token(for: hash)))
    }
}
