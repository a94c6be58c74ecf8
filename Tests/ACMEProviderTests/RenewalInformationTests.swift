import CertificateProviding
import Enrolment
import Foundation
import Synchronization
import TestSupport
import Testing

@testable import ACMEProvider

/// When the server wants a certificate to be renewed (RFC 9773).
@Suite struct RenewalInformationTests {
    private let person = NoUserInteraction()

    private static func text(_ date: Date) -> String { date.formatted(.iso8601) }

    private func window(_ host: Host, from start: Date, to end: Date) {
        host.server.behave { $0.window = { _ in (Self.text(start), Self.text(end)) } }
    }

    @Test("A window moves the renewal, is asked for as often as the server says, and is kept when the server is away")
    func aWindowMovesTheRenewal() async throws {
        let host = try Host()
        let provider = try host.provider()
        let identity = try await provider.getCertificate(person)
        let adviser = try #require(provider.advice)
        #expect(adviser.advice(on: identity) == nil)
        let start = Date() + 86_400
        window(host, from: start, to: start + 3600)
        #expect(await adviser.refreshAdvice(on: identity))
        let advice = try #require(adviser.advice(on: identity))
        let schedule = RenewalSchedule(for: identity, advice: advice)
        #expect(schedule.rule == .advice && schedule.due >= start - 1 && schedule.due <= start + 3600)
        // Another process looks at the record, and does not ask again before its time.
        let other = try #require(host.provider().advice)
        #expect(await !other.refreshAdvice(on: identity) && other.advice(on: identity) == advice)
        #expect(host.server.count(of: "renewalInfo") == 1)
        host.ahead.withLock { $0 = 3700 }
        host.server.fail("renewalInfo", .status(500), .status(500), .status(500))
        #expect(await adviser.refreshAdvice(on: identity))
        #expect(adviser.advice(on: identity) == advice, "the last answer stays")
        #expect(await !adviser.refreshAdvice(on: identity), "a failure is not repeated at once")
        host.ahead.withLock { $0 = 8000 }
        window(host, from: start - 7200, to: start - 3600)
        #expect(await adviser.refreshAdvice(on: identity))
        #expect(adviser.advice(on: identity)?.window.lowerBound ?? .distantFuture < start)
        // It is about one certificate.
        let next = try await provider.getCertificate(person)
        #expect(adviser.advice(on: next) == nil && host.server.mistakes == [])
        try provider.deleteStoredCertificate()
        #expect(!host.records.contains { $0.hasPrefix("advice-") })
    }

    @Test("The certificate is named by issuer and serial number, as the standard's example has it")
    func theNameOfACertificate() async throws {
        let host = try Host()
        let asked = Mutex<[String]>([])
        host.server.behave {
            $0.window = { name in
                asked.withLock { $0.append(name) }; return nil
            }
        }
        let provider = try host.provider()
        let identity = try await provider.getCertificate(person)
        _ = await provider.advice?.refreshAdvice(on: identity)
        let name = try #require(asked.withLock { $0 }.first)
        let parts = name.split(separator: ".").map { ACMEServer.decoded(String($0)) }
        #expect(parts.first == Array(1...20))
        let serial = try Subprocess.run(
            ["openssl", "x509", "-noout", "-serial"], input: Array(identity.certificate.pemRepresentation.utf8))
        let digits = String(decoding: serial, as: UTF8.self).dropFirst("serial=".count).lowercased()
        let named = DisplayText.hexadecimal((parts.last ?? nil) ?? [])
        #expect(named == digits.trimming || named == "00" + digits.trimming)
    }

    @Test("A server without renewal information changes nothing")
    func aServerWithoutIt() async throws {
        let host = try Host()
        host.server.behave { $0.hasRenewalInfo = false }
        let provider = try host.provider()
        let identity = try await provider.getCertificate(person)
        #expect(await provider.advice?.refreshAdvice(on: identity) == true)
        #expect(provider.advice?.advice(on: identity) == nil)
        #expect(await provider.advice?.refreshAdvice(on: identity) == false)
        _ = try await provider.getCertificate(person)
        #expect(host.server.state.withLock { $0.orders.values.allSatisfy { $0.replaces == nil } })
    }

    @Test(
        "An answer that is none is not used",
        arguments: [
            ("2030-01-02T00:00:00Z", "2030-01-01T00:00:00Z"), ("soon", "later"), ("", ""),
            ("2030-01-01T00:00:00Z", "2030-01-01T00:00:00Z"),
        ])
    func aLie(start: String, end: String) async throws {
        let host = try Host()
        let provider = try host.provider()
        let identity = try await provider.getCertificate(person)
        host.server.behave { $0.window = { _ in (start, end) } }
        #expect(await provider.advice?.refreshAdvice(on: identity) == true)
        #expect(provider.advice?.advice(on: identity) == nil)
    }

    @Test("Fractions of a second are read")
    func fractionsOfASecond() async throws {
        let host = try Host()
        let provider = try host.provider()
        let identity = try await provider.getCertificate(person)
        host.server.behave { $0.window = { _ in ("2030-01-02T00:00:00.123Z", "2030-01-03T00:00:00.456Z") } }
        _ = await provider.advice?.refreshAdvice(on: identity)
        #expect(provider.advice?.advice(on: identity) != nil)
    }

    @Test("A certificate that was replaced already is renewed without that claim")
    func alreadyReplaced() async throws {
        let host = try Host()
        let provider = try host.provider()
        _ = try await provider.getCertificate(person)
        host.server.fail("newOrder", .status(409, problem: "alreadyReplaced"))
        _ = try await provider.getCertificate(person)
        #expect(host.server.count(of: "newOrder") == 3 && host.server.mistakes == [])
    }

    private static let refusals: [ACMEServer.Fault] = [
        .status(400, problem: "malformed"), .status(401, problem: "unauthorized"),
        .status(403, problem: "unauthorized"),
        .status(404, problem: "malformed"), .status(409, problem: "alreadyReplaced"), .status(422, problem: "conflict"),
        .status(500, problem: "serverInternal"), .status(501), .status(503),
    ]

    @Test("A server that refuses each order with the claim gets one without it", arguments: refusals.indices)
    func theClaimIsOptional(refusal: Int) async throws {
        let host = try Host()
        let provider = try host.provider()
        let first = try await provider.getCertificate(person)
        host.server.behave { $0.refusalOfReplaces = Self.refusals[refusal] }
        let second = try await provider.getCertificate(person)
        #expect(second.certificate != first.certificate && host.server.count(of: "newOrder") == 3)
        #expect(host.server.state.withLock { $0.orders.values.allSatisfy { $0.replaces == nil } })
        #expect(host.server.mistakes == [] && host.log.warnings == [])
    }

    @Test(
        "A server that wants the order later gets no other one now",
        arguments: [
            ACMEServer.Fault.status(429, problem: "rateLimited"), .status(403, problem: "rateLimited"),
            .status(503, headers: [("Retry-After", "900")]),
        ])
    func theClaimIsNotTheReason(refusal: ACMEServer.Fault) async throws {
        let host = try Host()
        let provider = try host.provider()
        _ = try await provider.getCertificate(person)
        host.server.behave { $0.refusalOfReplaces = refusal }
        #expect(await code { _ = try await provider.getCertificate(person) } == .unavailable)
        #expect(host.server.count(of: "newOrder") == 2)
    }
}
