import CertificateProviding
import CertificateTLS
import Foundation
import NIOCore
import NIOHTTP1
import TestSupport
import Testing

@testable import ProviderTransport
@testable import RemoteMDMProvider

/// Redirections of a server: within its own origin they are followed, and nowhere else.
@Suite(.timeLimit(.minutes(20))) struct RedirectionTests {
    /// References as RFC 3986, section 5.4, has them; the request is for `/a/b/c?d`.
    @Test(arguments: [
        ("/x", "/x"), ("x", "/a/b/x"), ("../x", "/a/x"), ("./x?y=1", "/a/b/x?y=1"), ("?y=1", "/a/b/c?y=1"),
        ("/x#part", "/x"), ("#part", "/a/b/c?d"), ("//localhost:PORT/x", "/x"), ("//LOCALHOST:PORT/x", "/x"),
        ("https://localhost:PORT/x?y", "/x?y"), ("HTTPS://LocalHost:PORT/x", "/x"), ("/x%20y", "/x%20y"),
        ("https://localhost:PORT", "/"),
    ])
    func theSameOriginIsFollowed(location: String, target: String) async throws {
        let (error, targets) = try await outcome(of: location)
        #expect(error == nil, "\(String(describing: error))")
        #expect(targets == ["/a/b/c?d", target])
    }

    @Test(
        "A redirection to another origin or without a valid Location is refused",
        arguments: [
            (String?("//other.example/x"), ProviderError.Code.configurationInvalid, "another server"),
            ("https://localhost.other.example:PORT/x", .configurationInvalid, "another server"),
            ("https://localhost/x", .configurationInvalid, "another server"),
            ("http://localhost:PORT/x", .configurationInvalid, "another server"),
            ("https://me@localhost:PORT/x", .protocolError, "not a valid server URL"),
            ("mailto:a@b.example", .protocolError, "not a valid server URL"),
            (nil, .protocolError, "without a Location"), ("", .protocolError, "without a Location"),
        ])
    func nothingElseIs(location: String?, code: ProviderError.Code, words: String) async throws {
        let (error, targets) = try await outcome(of: location)
        #expect(error?.code == code && error?.message.contains(words) == true, "\(String(describing: error))")
        #expect(words == "another server" || error?.message.contains("another server") == false)
        #expect(targets == ["/a/b/c?d"])
    }

    /// With 303 the answer to a POST is elsewhere, and does not have a certificate.
    @Test("A redirected POST stays a POST, and 303 is not followed", arguments: [301, 302, 303, 307, 308])
    func aPOSTStaysOne(status: Int) async throws {
        let (server, session) = try await session { request in
            HTTPResponse(status: request.target == "/x" ? 200 : status, headers: ["Location": "/x"], body: [])
        }
        let response = try await session.response(
            to: HTTPRequest(method: .post, target: "/", body: [1, 2]), before: .now() + .seconds(600))
        await session.close()
        #expect(response.status == (status == 303 ? 303 : 200))
        #expect(server.requests.map(\.method) == (status == 303 ? [.post] : [.post, .post]))
        #expect(server.requests.last?.body == [1, 2])
    }

    @Test("A request that asks for it gets the redirection itself", arguments: ["/x", "https://other.example/x"])
    func itIsNotFollowed(location: String) async throws {
        let (server, session) = try await session { _ in
            HTTPResponse(status: 302, headers: ["Location": location], body: [])
        }
        var request = HTTPRequest(target: "/")
        request.followsRedirections = false
        let response = try await session.response(to: request, before: .now() + .seconds(600))
        await session.close()
        #expect(response.status == 302 && response.headers.first(name: "Location") == location)
        #expect(server.requests.count == 1)
    }

    private func outcome(of location: String?) async throws -> (ProviderError?, [String]) {
        let (server, session) = try await session { request in
            let port = request.headers.first(name: "Host")?.split(separator: ":").last ?? ""
            let headers = location.map { ["Location": $0.replacing("PORT", with: port)] as HTTPHeaders }
            return HTTPResponse(status: request.target == "/a/b/c?d" ? 307 : 200, headers: headers ?? [:], body: [])
        }
        var failure: ProviderError?
        do throws(ProviderError) {
            let response = try await session.response(
                to: HTTPRequest(target: "/a/b/c?d"), before: .now() + .seconds(600))
            #expect(response.status == 200)
        } catch {
            // A redirection to itself is followed up to the limit.
            if location != "#part" { failure = error }
        }
        await session.close()
        return (failure, Array(server.requests.map(\.target).prefix(2)))
    }

    private func session(
        _ answer: @escaping SCEPHTTPServer.Answer
    ) async throws -> (SCEPHTTPServer, AuthenticatingSession) {
        let identity = try TestAuthority().issue("server")
        let server = try await SCEPHTTPServer(showing: identity, answer)
        let security = ServerSecurity(
            trust: ServerTrust(
                trustAnchors: .system, pins: [CertificatePin(identity.certificate)], isPinOnly: true),
            credentials: nil, now: { Date() })
        return (server, AuthenticatingSession(try #require(ServerURL(server.url)), security, .none))
    }
}
