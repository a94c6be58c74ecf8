import CertificateProviding
import CertificateTLS
import Foundation
import NIOCore
import NIOHTTP1
import ServerTransport
import TestSupport
import Testing

@testable import RemoteMDMProvider

/// A server that repeats what it was sent: what proves who we are is in no error.
@Suite(.timeLimit(.minutes(5))) struct EchoTests {
    private static let password = "s3cret pässword"

    /// What comes back of the `Authorization` field.
    enum Echo: CaseIterable { case field, credentials, password }

    @Test(
        arguments: Echo.allCases,
        [ServerCredentials.password(user: "me", .init(utf8: password)), .bearer(.init(utf8: "t0ken"))])
    func nothingSecretComesBack(echo: Echo, credentials: ServerCredentials) async throws {
        let identity = try TestAuthority().issue("server")
        let server = try await SCEPHTTPServer(showing: identity) { request in
            guard let field = request.headers.first(name: "Authorization") else {
                return HTTPResponse(status: 401, headers: ["WWW-Authenticate": "Basic realm=\"x\""], body: [])
            }
            let word = field.split(separator: " ").last.map(String.init) ?? ""
            let text =
                switch echo {
                case .field: "You sent \(field), which is wrong."
                case .credentials: "Not <\(word)>"
                case .password: "The password \(Self.password) or token t0ken is wrong."
                }
            return HTTPResponse(status: 403, headers: ["Content-Type": "text/plain"], body: Array(text.utf8))
        }
        let url = try #require(ServerURL(server.url))
        let security = ServerConnection.Security(
            trust: ServerTrust(
                trustAnchors: .system, pins: [CertificatePin(identity.certificate)], isPinEnough: true),
            credentials: nil, now: { Date() })
        let session = ServerSession(url, security, credentials)
        let response = try await session.response(to: HTTPRequest(target: "/"), before: .now() + .seconds(60))
        #expect(response.status == 403)
        let error = response.refusal(by: url, of: "the request", at: Date())
        let secrets = [Self.password, "t0ken", Data("me:\(Self.password)".utf8).base64EncodedString()]
        #expect(secrets.allSatisfy { !"\(error)".contains($0) && !error.message.contains($0) }, "\(error)")
        await session.close()
    }
}
