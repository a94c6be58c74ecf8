import CertificateProviding
import CertificateTLS
import Foundation
import ProviderTransport
import Testing

@testable import SplitKeySigning

/// Answers that are lost on the way.
struct LostAnswerTests {
    private func confirm(_ server: LoopbackServer) async throws -> ProviderError.Code? {
        let test = try await TestHost.enrolled()
        let key = try test.host().key(of: TestHost.user, .signing)
        let signed = try key.sign(
            [UInt8](repeating: 7, count: 32), at: 1_700_000_000, with: try PIN(SecretBytes(utf8: TestHost.signingPIN)))
        let exchange = NetworkExchange(
            trusting: ServerTrust(trustAnchors: .system), timeout: .seconds(60),
            transport: Transport(retryPolicy: RetryPolicy(sleep: { _ in }, random: { 0 })))
        let authority = Authority(try #require(ServerURL("http://localhost:\(server.port)")), exchange)
        return await ProviderError.of { () throws(ProviderError) in
            try await authority.confirm(signed, SecretBytes(utf8: "token"))
        }?.code
    }

    @Test(
        "A relying party that is silent, or drips, at a document costs the time of the setting",
        arguments: [true, false])
    func slowDocument(isSilent: Bool) async throws {
        let server = try LoopbackServer(isSilent: isSilent)
        let exchange = NetworkExchange(trusting: ServerTrust(trustAnchors: .system), timeout: .seconds(1))
        let relyingParty = RelyingParty(try #require(ServerURL("http://localhost:\(server.port)")), exchange)
        let start = ContinuousClock.now
        let error = await ProviderError.of { () throws(ProviderError) in
            try await relyingParty.document([1], access: SecretBytes(utf8: "token"))
        }
        #expect(error?.code == .timedOut && ContinuousClock.now - start < .seconds(30), "\(String(describing: error))")
    }

    @Test("The same u and v are sent again")
    func again() async throws {
        let server = try LoopbackServer { $0 == 0 ? nil : "{}" }
        #expect(try await confirm(server) == nil)
        let requests = server.requests
        #expect(requests.count == 2 && requests[0] == requests[1] && requests[0].contains(#""u":"04"#))
    }

    @Test("A connection that cannot be opened is said to have sent nothing, and a lost answer is not")
    func nothingSent() async throws {
        let exchange = NetworkExchange(
            trusting: ServerTrust(trustAnchors: .system), timeout: .seconds(60),
            transport: Transport(retryPolicy: RetryPolicy(sleep: { _ in }, random: { 0 })))
        let server = try LoopbackServer { _ in nil }
        // A port below 1024, which no other test takes.
        let cases: [(Int, ProviderError.Reason?)] = [(1, .nothingSent), (Int(server.port), nil)]
        for (port, reason) in cases {
            let url = try #require(ServerURL("http://localhost:\(port)"))
            let error = await ProviderError.of { () throws(ProviderError) in
                try await exchange.response(to: HTTPRequest(target: "/", isRepeatable: true), at: url, token: nil)
            }
            #expect(error?.code == .unavailable && error?.reason == reason, "\(port)")
        }
    }

    @Test("Twice at most")
    func atMostTwice() async throws {
        let server = try LoopbackServer { _ in nil }
        #expect(try await confirm(server) == .unavailable)
        #expect(server.requests.count == 3 && Set(server.requests).count == 1)
    }
}
