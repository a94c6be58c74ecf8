import CertificateProviding
import Enrolment
import Foundation
import Synchronization
import TestSupport
import Testing

@testable import ACMEProvider

/// The download of an issued certificate: it is there later, and its alternate chains may never be.
@Suite struct DownloadTests {
    private let person = NoUserInteraction()

    private static let faults: [ACMEServer.Fault] = [
        .status(404, problem: "malformed"), .status(410), .status(403, problem: "unauthorized"), .status(400),
        .body("<html>portal</html>", type: "text/html"), .body("", type: "text/plain"),
        // These two requests are repeated twice.
        .status(500), .lostAnswer, .cut,
    ]

    @Test(
        "A certificate that cannot be downloaded is downloaded by the third run, and not ordered anew",
        arguments: faults.indices)
    func threeRunsOneCertificate(fault: Int) async throws {
        let host = try Host()
        let repeated = (6...7).contains(fault) ? 3 : 1
        for _ in 0..<2 * repeated { host.server.fail("cert", Self.faults[fault]) }
        for run in 1...2 {
            let error = try #require(await failure { _ = try await host.provider().getCertificate(person) })
            #expect(fault == 8 || !error.message.contains("'directory'"), "run \(run): \(error)")
            if repeated == 1 { #expect(error.message.contains("The next attempt downloads it again."), "\(error)") }
        }
        _ = try await host.provider().getCertificate(person)
        #expect(host.server.count(of: "newOrder") == 1 && host.server.count(of: "finalize") == 1)
        #expect(host.server.issuedCount == 1 && host.server.mistakes == [])
    }

    @Test("A certificate that stays away after three runs is ordered anew", arguments: [404, 410])
    func aLostCertificate(status: Int) async throws {
        let host = try Host()
        for _ in 0..<4 { host.server.fail("cert", .status(status)) }
        for _ in 1...3 {
            let error = try #require(await failure { _ = try await host.provider().getCertificate(person) })
            #expect(error.code == .unavailable && error.nativeCode == status, "\(error)")
        }
        #expect(host.server.issuedCount == 1)
        _ = try await host.provider().getCertificate(person)
        #expect(host.server.count(of: "newOrder") == 2 && host.server.openOrders == 0)
    }

    private static let root = "http://127.0.0.1:14000"

    @Test(
        "Alternate chains that cannot be used are skipped for the next one",
        arguments: [
            "\(root)/alternate/missing", "/alternate/missing", "https://192.0.2.1:1/chain", "ftp://x", "",
            "\(root)/alternate/other", "\(root)/broken",
        ])
    func anAlternateIsSkipped(link: String) async throws {
        let host = try Host()
        // Of another certificate, whose chain leads to the same root.
        _ = try await host.provider(["identifiers": "dns:other.example"]).getCertificate(person)
        host.server.behave { $0.alternates = [link, "\(Self.root)/alternate/NAME"] }
        host.server.fail("broken", .status(500))
        let identity = try await host.provider(["preferred-chain": "Other Root"]).getCertificate(person)
        #expect(identity.trust?.certificates == [host.server.crossCertificate])
        #expect(host.server.issuedCount == 2 && host.log.warnings == [] && host.server.mistakes == [])
    }

    @Test("A relative link to an alternate chain is one to the same server")
    func aRelativeLink() async throws {
        let host = try Host()
        host.server.behave { $0.alternates = ["/alternate/NAME"] }
        let identity = try await host.provider(["preferred-chain": "Other Root"]).getCertificate(person)
        #expect(identity.trust?.certificates == [host.server.crossCertificate] && host.log.warnings == [])
    }

    @Test(
        "Without a usable alternate chain the default one is taken, with a warning, and one certificate is issued for each run",
        arguments: [["\(root)/alternate/missing", "https://192.0.2.1:1/chain"], ["\(root)/alternate/other"], []])
    func theDefaultIsTaken(links: [String]) async throws {
        let host = try Host()
        _ = try await host.provider(["identifiers": "dns:other.example"]).getCertificate(person)
        host.server.behave { $0.alternates = links }
        for run in 1...3 {
            let identity = try await host.provider(["preferred-chain": "Other Root"]).getCertificate(person)
            #expect(identity.trust?.certificates == [host.server.authority])
            #expect(host.log.warnings.count { $0.contains("no chain to the preferred root") } == run)
            #expect(host.server.issuedCount == 1 + run)
        }
    }

    @Test(
        "A delay beyond the timeout ends the run, with the time to come back",
        arguments: ["order", "authz", "newAccount"])
    func aDelayBeyondTheTimeout(resource: String) async throws {
        let host = try Host()
        host.server.fail(resource, .status(503, headers: [("Retry-After", "86400")]))
        let error = try #require(
            await failure { _ = try await host.provider(["timeout": "12"]).getCertificate(person) })
        #expect(error.code == .unavailable && error.retryAfter == .seconds(86_400), "\(error)")
        #expect(error.message.contains("try again after 20"), "\(error)")
        #expect(host.pauses.withLock { $0.reduce(.zero, +) } < .seconds(12) && host.challenges.isEmpty)
        // A delay within it is waited for.
        host.server.fail(resource, .status(503, headers: [("Retry-After", "5")]))
        _ = try await host.provider(["timeout": "12"]).getCertificate(person)
        #expect(host.pauses.withLock { $0.contains(.seconds(5)) })
    }
}
