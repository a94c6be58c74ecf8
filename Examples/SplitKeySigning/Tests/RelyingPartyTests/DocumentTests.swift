import CertificateProviding
import Crypto
import Foundation
import HTTPTypes
import HummingbirdTesting
import NIOCore
import Testing

@testable import RelyingParty

/// `/document` and `/login/CreateDocumentHash`.
@Suite(.timeLimit(.minutes(30))) struct DocumentTests {
    @Test func aDocumentGetsItsHash() async throws {
        try await Site.run { (site: Site) async throws in
            let bearer = try await site.bearer()
            let (hash, timestamp, authToken) = try await site.document(bearer, "abc")
            #expect(hash == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
            #expect(timestamp == Int(site.clock.now().timeIntervalSince1970))
            let key = SymmetricKey(data: Data(ScriptedServer.clientSecret.utf8))
            let code = DisplayText.hexadecimal(HMAC<SHA256>.authenticationCode(for: Data(hash.utf8), using: key))
            #expect(authToken == Data("\(ScriptedServer.clientID):\(code)".utf8).base64EncodedString())
            for method in [HTTPRequest.Method.get, .post] {
                let (status, json) = try await site.send(
                    "/login/CreateDocumentHash?document=abc", nil, bearer: bearer, method: method)
                #expect(status == 200 && json["hash"] as? String == hash && json["authToken"] as? String == authToken)
            }
            let other = try await site.document(bearer, "1 + 1 = 2 é")
            let (_, json) = try await site.send(
                "/login/CreateDocumentHash?document=1+%2B+1+%3D%202+%C3%A9", nil, bearer: bearer)
            #expect(json["hash"] as? String == other.hash)
        }
    }

    @Test("A document may have 50 MB, and no byte more") func aDocumentHasALimit() async throws {
        try await Site.run { (site: Site) async throws in
            let (bearer, whole) = (try await site.bearer(), Data(count: 50_000_000))
            let (status, json) = try await site.send("/document", whole, bearer: bearer)
            #expect(status == 200)
            #expect(json["hash"] as? String == DisplayText.hexadecimal(SHA256.hash(data: whole)))
            let (tooLarge, answer) = try await site.send("/document", whole + [0], bearer: bearer)
            #expect(tooLarge == 413 && answer["message"] is String)
        }
    }

    @Test("A document in a query may have 8 KiB") func aQueryHasALimit() async throws {
        try await Site.run { (site: Site) async throws in
            let bearer = try await site.bearer()
            let path = "/login/CreateDocumentHash?document="
            let text = String(repeating: "%41", count: 8192)
            #expect(try await site.send(path + text, nil, bearer: bearer).status == 200)
            #expect(try await site.send(path + text + "A", nil, bearer: bearer).status == 413)
            for query in ["", "?document=a&document=b", "?document=%ff", "?other=a"] {
                let path = "/login/CreateDocumentHash" + query
                #expect(try await site.send(path, nil, bearer: bearer).status == 400, "\(query)")
            }
        }
    }

    @Test("Without an access token, 401 comes before the document is read")
    func aTokenIsNeeded() async throws {
        try await Site.run { (site: Site) async throws in
            let bearer = try await site.bearer()
            let tooLarge = Data(count: DocumentController.maximumSize + 1)
            for path in ["/document", "/login/CreateDocumentHash?document=abc", "/login/CreateDocumentHash"] {
                for token in [nil, "", "wrong", bearer + "x"] {
                    let response = try await site.response(path, tooLarge, bearer: token)
                    #expect(response.status == .unauthorized && response.headers[.wwwAuthenticate] == "Bearer")
                }
            }
            #expect(try await site.send("/document", tooLarge, bearer: bearer).status == 413)
            site.clock.advance(3601)
            #expect(try await site.send("/document", Data("abc".utf8), bearer: bearer).status == 401)
        }
    }

    @Test("What is not there is 404 with a message, and a HEAD has no body")
    func whatIsNotThereIsSaid() async throws {
        try await Site.run { (site: Site) async throws in
            for path in ["/", "/login?code=c0de", "/%64ocument", "/x/../document"] {
                let (status, json) = try await site.send(path, nil, method: .get)
                #expect(status == 404 && json["message"] is String)
                let head = try await site.response(path, nil, method: .head)
                #expect(head.status == .notFound && head.body.readableBytes == 0)
            }
            #expect(!site.log.all.contains("c0de"))
        }
    }

    @Test("A user who asks for too many hashes waits, and no other user does")
    func aUserHasALimit() async throws {
        try await Site.run(configure: { $0.documentsPerUser = 2 }) { (site: Site) async throws in
            let (alice, bob) = (try await site.bearer(), try await site.bearer(Site.bob))
            _ = try await site.document(alice, "one")
            site.clock.advance(100)
            let other = try await site.document(alice, "other")
            // The same one at the same second is no other one.
            #expect(try await site.document(alice, "other") == other)
            for path in ["/document", "/login/CreateDocumentHash?document=third"] {
                let response = try await site.response(path, Data("third".utf8), bearer: alice)
                #expect(response.status == .tooManyRequests && response.headers[.retryAfter] == "501")
                #expect(String(buffer: response.body).contains("501 seconds"))
            }
            _ = try await site.document(bob, "third")
            #expect(
                try await site.verify(.signature(other.hash), other.timestamp, bearer: alice).verdict
                    == "ValidSignature")
            site.clock.advance(501)
            _ = try await site.document(alice, "third")
            #expect(try await site.send("/document", Data("fourth".utf8), bearer: alice).status == 429)
        }
    }
}
