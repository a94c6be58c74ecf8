import CertificateProviding
import Foundation
import HTTPTypes
import Hummingbird
import Logging

/// Has signatures verified: of the user of the token, on a hash that was given out here, by the user's first key.
struct SignatureController: Sendable {
    let tokens: AccessTokens
    let hashes: GivenHashes
    let authorization: DocumentAuthorization
    let keys: BoundKeys
    let verifier: Verifier
    let logger: Logger

    private struct Question: Decodable {
        let verificationData: SignatureObject
        let timestamp: Int
        let authToken: String?
    }

    private struct DocumentData: Decodable {
        let hash: String?
        let timestamp: Int
        let authToken: String?
    }

    private struct Answer: Encodable {
        let verified: Bool
        let status: VerificationStatus
    }

    func addRoutes(to router: some RouterMethods<BasicRequestContext>) {
        router.post("verify-signature") { request, _ in
            let user = try tokens.user(of: request)
            let question = try await request.json(Question.self)
            return try await answer(question.verificationData, question.timestamp, question.authToken, of: user)
        }
        for method in [HTTPRequest.Method.get, .post] {
            router.on("login/VerifySignature", method: method) { request, _ in
                let user = try tokens.user(of: request)
                func parameter<Content: Decodable>(_ type: Content.Type, _ name: String) throws -> Content {
                    try HTTPError.json(
                        type, Data((try request.queryParameter(name) ?? "").utf8), "The parameter \(name)")
                }
                let signature = try parameter(SignatureObject.self, "verificationData")
                let document = try parameter(DocumentData.self, "documentData")
                if let hash = document.hash, hash.lowercased() != signature.hash {
                    throw HTTPError(.badRequest, message: "The signature is of another hash than the document's.")
                }
                return try await answer(signature, document.timestamp, document.authToken, of: user)
            }
        }
    }

    private func answer(
        _ signature: SignatureObject, _ timestamp: Int, _ authToken: String?, of user: String
    ) async throws -> Response {
        // Byte by byte: texts are equal where accents are composed in another way.
        guard try signature.user().utf8.elementsEqual(user.utf8) else {
            throw HTTPError(.forbidden, message: "The signature is not of the user of the access token.")
        }
        let status = try await status(of: signature, timestamp, authToken, of: user)
        logger.notice("signature", metadata: ["status": "\(status.rawValue)"])
        return try .json(.ok, Answer(verified: status == .valid, status: status))
    }

    private func refused(_ reason: String) -> VerificationStatus {
        logger.notice("signature refused", metadata: ["reason": "\(reason)"])
        return .invalid
    }

    private func status(
        of signature: SignatureObject, _ timestamp: Int, _ authToken: String?, of user: String
    ) async throws(ProviderError) -> VerificationStatus {
        if let authToken {
            guard SecretBytes(utf8: authToken) == SecretBytes(utf8: authorization.token(for: signature.hash)) else {
                return .invalid
            }
        }
        let draft: BoundKeys.Draft?
        do throws(ProviderError) {
            let known = try keys.key(of: user)
            // Another key is no reason to ask: the verifier would count a try.
            guard known ?? signature.publicKey == signature.publicKey else {
                return refused(
                    "the user's first signature was with another key; relying-party forget-user --config FILE USER permits another"
                )
            }
            guard hashes.contains(signature.hash, timestamp, of: user) else {
                return refused("the hash and the time were not given to this user in the last ten minutes")
            }
            // On disk before the verifier counts: a disk that is full costs no try.
            draft = known == nil ? try keys.draft(signature.publicKey, of: user) : nil
        } catch { throw error.beforeVerification }
        defer { if let draft { keys.discard(draft) } }
        let status = try await verifier.verify(signature, at: timestamp)
        guard status == .valid, let draft else { return status }
        // Nothing is valid before the key is on disk as the user's.
        return try keys.bind(draft) ? .valid : .invalid
    }
}
