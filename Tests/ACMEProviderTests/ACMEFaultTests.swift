import CertificateProviding
import Enrolment
import Foundation
import Synchronization
import TestSupport
import Testing

@testable import ACMEProvider

/// Faults of the server at each of its resources, and kills at each step.
@Suite struct ACMEFaultTests {
    private let person = NoUserInteraction()

    private static let resources = [
        "dir", "newNonce", "newAccount", "newOrder", "order", "authz", "chall", "finalize", "cert",
    ]
    static let faults: [(String, ACMEServer.Fault)] = [
        ("500", .status(500)), ("503 with a delay", .status(503, headers: [("Retry-After", "2")])),
        ("404", .status(404)),
        ("401", .status(401, problem: "unauthorized")), ("403", .status(403, problem: "unauthorized")),
        ("409", .status(409, problem: "conflict")),
        ("302", .status(302, headers: [("Location", "http://198.51.100.1/")])),
        ("lost request", .lostRequest), ("lost answer", .lostAnswer), ("cut", .cut),
        ("page", .body("<html>portal</html>", type: "text/html")), ("empty", .body("")), ("JSON", .body("[1]")),
        ("wrong members", .body("{\"status\": 7}")),
    ]

    @Test(
        "Whatever fault a resource has once, the run ends, the next one succeeds, and one certificate is issued or two",
        arguments: resources, faults.indices)
    func aFaultIsSurvived(resource: String, fault: Int) async throws {
        let host = try Host()
        host.server.behave {
            $0.looks = 1
            $0.orderLooks = 1; if resource == "newNonce" { $0.namesNonces = false }
        }
        host.server.fail(resource, Self.faults[fault].1)
        let first = await failure { _ = try await host.provider().getCertificate(person) }
        if let first {
            #expect(!first.message.isEmpty && first.code != .internal, "\(first)")
            #expect(host.challenges.isEmpty, "no challenge is left: \(first)")
        }
        let second = await failure { _ = try await host.provider().getCertificate(person) }
        #expect(second == nil, "after \(String(describing: first)): \(String(describing: second))")
        #expect(host.server.mistakes == [])
        #expect(try host.provider().getStoredCertificate() != nil)
        // The answer to the order's end may have been lost.
        #expect(host.server.issuedCount <= 2 && host.server.state.withLock(\.accounts.count) == 1)
    }

    @Test(
        "A kill at each step leaves at most one order open, and no challenge; the next run succeeds",
        arguments: [false, true])
    func aKillIsSurvived(isRenewal: Bool) async throws {
        var step = 0
        while true {
            let host = try Host()
            if isRenewal { _ = try await host.provider().getCertificate(person) }
            let issued = host.server.issuedCount
            host.server.behave {
                $0.looks = 1
                $0.orderLooks = 1
            }
            let power = Power()
            let storage = HookedStorage(host.memory) { _, _ throws(ProviderError) in try power.spend() }
            power.cut(after: step)
            let result = await failure {
                _ = try await host.provider(in: host.environment(storage)).getCertificate(person)
            }
            let wasCut = power.isOff
            #expect(host.server.openOrders <= 1, "step \(step)")
            _ = try await host.provider().getCertificate(person)
            // The server may have looked for an answer that the killed run has not written.
            let mistakes = host.server.mistakes.filter { !$0.hasPrefix("no right answer") }
            #expect(host.server.openOrders == 0 && mistakes == [], "step \(step)")
            #expect(host.challenges.isEmpty, "step \(step)")
            #expect(host.server.issuedCount - issued <= (result == nil ? 2 : 1), "step \(step): a second certificate")
            #expect(host.server.state.withLock(\.accounts.count) == 1, "step \(step)")
            guard wasCut else { break }
            step += 1
        }
        #expect(step > 10)
    }

    @Test("A server without a list of orders keeps the promise but for a kill within the request for an order")
    func withoutAListOfOrders() async throws {
        let host = try Host()
        host.server.behave { $0.hasOrderList = false }
        host.server.fail("newOrder", .lostAnswer)
        #expect(await failure { _ = try await host.provider().getCertificate(person) } != nil)
        _ = try await host.provider().getCertificate(person)
        #expect(host.server.count(of: "newOrder") == 2 && host.server.issuedCount == 1)
    }

    @Test("The lost answer to a request for an order leads to the same order")
    func theLostAnswerToAnOrder() async throws {
        let host = try Host()
        host.server.fail("newOrder", .lostAnswer)
        #expect(await failure { _ = try await host.provider().getCertificate(person) } != nil)
        _ = try await host.provider().getCertificate(person)
        #expect(host.server.count(of: "newOrder") == 1 && host.server.issuedCount == 1)
    }

    @Test(
        "URLs that lead elsewhere are not followed without TLS",
        arguments: [
            "http://ca.example", "ftp://127.0.0.1", "https://user@ca.example", "", "file:///etc",
        ])
    func urlsThatLeadElsewhere(origin: String) async throws {
        let host = try Host()
        host.server.behave { $0.origin = origin }
        let error = try #require(await failure { _ = try await host.provider().getCertificate(person) })
        #expect(error.code == .protocolError && error.message.contains("not a valid https: URL"), "\(error)")
    }

    @Test("A token that is a path is not answered", arguments: ["../../etc/cron.d/x", "a/b", "", ".", "a b", "ä"])
    func aTokenThatIsAPath(token: String) async throws {
        let host = try Host()
        host.server.behave { $0.token = token }
        let error = try #require(await failure { _ = try await host.provider().getCertificate(person) })
        #expect(error.code == .protocolError && error.message.contains("no valid token"))
        #expect(!host.directory.contents().contains { $0.hasSuffix("x") || $0.hasSuffix("b") })
    }
}
