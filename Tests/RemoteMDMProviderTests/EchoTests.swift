import CertificateProviding
import CertificateTLS
import Foundation
import NIOCore
import NIOHTTP1
import TestSupport
import Testing

@testable import ProviderTransport
@testable import RemoteMDMProvider

/// A server that repeats what it was sent: what proves who we are is in no error.
@Suite(.timeLimit(.minutes(20))) struct EchoTests {
    private static let password = "s3cret pä+ss"

    /// In what form the server repeats it.
    enum Form: CaseIterable { case field, credentials, password, percentEncoded, form, base64 }
    /// The place in its answer.
    enum Place: CaseIterable { case text, location, type, multipartType }

    @Test(
        "A secret that the server echoes does not appear in the error", arguments: Form.allCases,
        [
            ServerCredentials.password(user: "me", .init(utf8: password)),
            ServerCredentials(kind: .bearer(.init(utf8: "t0ken+/~=="))),
        ])
    func nothingSecretComesBack(form: Form, credentials: ServerCredentials) async throws {
        let isPassword = if case .password = credentials.kind { true } else { false }
        let shown = isPassword ? Data("me:\(Self.password)".utf8).base64EncodedString() : "t0ken+/~=="
        let secret = isPassword ? Self.password : "t0ken+/~=="
        let repeated =
            switch form {
            case .field: "Basic or Bearer \(shown)"
            case .credentials: "<\(shown)>"
            case .password: "'\(secret)'"
            case .percentEncoded: Self.percentEncoded(secret)
            case .form: Self.percentEncoded(secret).replacing("%20", with: "+")
            case .base64: Data(secret.utf8).base64EncodedString()
            }
        for place in Place.allCases {
            for text in [repeated, repeated.lowercased()] {
                let error = try #require(await failure(credentials, text, place), "\(place)")
                #expect(error.message.contains("<secret>"), "\(place) \(error)")
                for secret in [shown, secret, repeated] {
                    #expect(!"\(error)".lowercased().contains(secret.lowercased()), "\(place) \(error)")
                }
            }
        }
    }

    private static func percentEncoded(_ text: String) -> String {
        text.addingPercentEncoding(withAllowedCharacters: .alphanumerics.intersection(.init(charactersIn: "a"..."z")))
            ?? ""
    }

    /// In a shortened text, half of a secret would not be recognised.
    @Test("Secrets are redacted before the server's text is truncated")
    func aSecretAtTheEndOfWhatIsShownIsNotCut() {
        var response = HTTPResponse(status: 400, headers: [:], body: [])
        response.redaction = Redaction([SecretBytes(utf8: "sEcReT-word")])
        #expect(response.excerpt(of: "Not sEcReT-word, or SECRET-WORD!", limit: 8) == "Not <sec")
        #expect(response.excerpt(of: "Not sEcReT-word, or SECRET-WORD!", limit: 99) == "Not <secret>, or <secret>!")
        #expect(response.excerpt(of: "100% sEcReT", limit: 99) == "100% sEcReT")
    }

    /// - Returns: What comes of an answer that repeats `text`.
    private func failure(
        _ credentials: ServerCredentials, _ text: String, _ place: Place
    ) async throws -> ProviderError? {
        let identity = try TestAuthority().issue("server")
        let server = try await SCEPHTTPServer(showing: identity) { request in
            guard request.headers.contains(name: "Authorization") else {
                return HTTPResponse(status: 401, headers: ["WWW-Authenticate": "Basic realm=\"x\""], body: [])
            }
            return switch place {
            case .text:
                HTTPResponse(
                    status: 403, headers: ["Content-Type": "text/plain"],
                    body: Array((String(repeating: "x", count: 150) + text).utf8))
            case .location:
                HTTPResponse(status: 302, headers: ["Location": "https://other.example/?a=\(text)"], body: [])
            case .type, .multipartType: HTTPResponse(status: 200, headers: ["Content-Type": "text/\(text)"], body: [])
            }
        }
        let url = try #require(ServerURL(server.url))
        let security = ServerSecurity(
            trust: ServerTrust(
                trustAnchors: .system, pins: [CertificatePin(identity.certificate)], isPinOnly: true),
            credentials: nil, now: { Date() })
        let session = AuthenticatingSession(url, security, credentials)
        do {
            let response = try await session.response(to: HTTPRequest(target: "/"), before: .now() + .seconds(600))
            await session.close()
            switch place {
            case .text: return response.refusal(of: "the request", by: url, at: Date())
            case .location: return nil
            case .type: try response.requireType("application/csrattrs", "wishes")
            case .multipartType: _ = try MultipartBody(response)
            }
            return nil
        } catch {
            await session.close()
            return error
        }
    }
}
