import CertificateProviding
import Enrolment
import Foundation
import IdentityStore
import Logging
import Synchronization
import TestSupport
import Testing

@testable import ACMEProvider

/// Enrolment, renewal, revocation and deletion, with a server that checks every request.
@Suite struct ACMEEnrolmentTests {
    private let person = NoUserInteraction()

    @Test("An identity is enrolled, renewed by a new key, and deleted")
    func anIdentityIsEnrolledAndRenewed() async throws {
        let host = try Host()
        let provider = try host.provider(["identifiers": "dns:host.example, dns:www.host.example,ip:192.0.2.1"])
        let first = try await provider.getCertificate(person)
        #expect(
            first.certificate.subjectAlternativeNames.map(\.description).sorted() == [
                "dns:host.example", "dns:www.host.example", "ip:192.0.2.1",
            ])
        #expect(first.trust?.certificates == [host.server.authority])
        #expect(try provider.getStoredCertificate()?.certificate == first.certificate)
        let second = try await provider.getCertificate(person)
        #expect(second.key.publicKey != first.key.publicKey)
        #expect(host.server.openOrders == 0 && host.server.issuedCount == 2 && host.server.mistakes == [])
        #expect(host.server.state.withLock(\.accounts.count) == 1)
        let replaced = host.server.state.withLock { $0.orders.values.compactMap(\.replaces) }
        #expect(replaced == [ACMEClient.renewalID(of: first.certificate)])
        #expect(host.challenges.isEmpty)
        try provider.deleteStoredCertificate()
        #expect(try provider.getStoredCertificate() == nil)
        // The account stays, and is found again.
        _ = try await host.provider().getCertificate(person)
        #expect(host.server.state.withLock(\.accounts.count) == 1)
    }

    @Test("Refused nonces are replaced at once, three times, and then after a pause")
    func refusedNoncesAreReplaced() async throws {
        let host = try Host()
        host.server.behave { $0.refusedNonces = 3 }
        _ = try await host.provider().getCertificate(person)
        #expect(host.pauses.withLock { $0.allSatisfy { $0 <= .seconds(1) } })
        host.server.behave { $0.refusedNonces = 9 }
        _ = try await host.provider().getCertificate(person)
        #expect(host.pauses.withLock { $0.contains(.seconds(2)) })
        // At the URL of the account, and in the look-up by its key.
        host.server.behave { $0.refusedNonces = 2 * 28 }
        let error = try #require(await failure { _ = try await host.provider().getCertificate(person) })
        #expect(error.code == .unavailable && error.message.contains("badNonce"))
        host.server.behave {
            $0.namesNonces = false; $0.refusedNonces = 0
        }
        _ = try await host.provider().getCertificate(person)
        #expect(host.server.mistakes == [])
    }

    @Test("No usage is requested, since servers may refuse it, and the certificate must permit it")
    func theRequestedUsage() async throws {
        let host = try Host()
        _ = try await host.provider(["usage": "both"]).getCertificate(person)
        let csr = try #require(host.server.state.withLock { $0.orders.values.compactMap(\.csr).first })
        let text = try Subprocess.run(["openssl", "req", "-noout", "-text", "-inform", "DER"], input: csr)
        #expect(!String(decoding: text, as: UTF8.self).contains("Extended Key Usage"))
    }

    @Test("A server that decides at once is not waited for a second, and one that does not say is asked more rarely")
    func thePauses() async throws {
        let host = try Host()
        _ = try await host.provider().getCertificate(person)
        #expect(host.pauses.withLock { $0.allSatisfy { $0 < .seconds(1) } })
        host.server.behave { $0.orderLooks = 20 }
        _ = try await host.provider().getCertificate(person)
        #expect(host.pauses.withLock { $0.reduce(.zero, +) } > .seconds(60))
    }

    @Test("The delay that an authorisation names is kept, too")
    func theDelayOfAnAuthorisation() async throws {
        let host = try Host()
        host.server.behave { $0.authorizationRetryAfter = "17" }
        _ = try await host.provider().getCertificate(person)
        #expect(host.pauses.withLock { $0.reduce(.zero, +) } >= .seconds(17))
    }

    @Test("Authorisations and orders that take their time are waited for, as the server says")
    func slowDecisionsAreWaitedFor() async throws {
        let host = try Host()
        host.server.behave {
            $0.looks = 4
            $0.orderLooks = 4; $0.retryAfter = "7"
        }
        _ = try await host.provider().getCertificate(person)
        let waited = host.pauses.withLock { $0.reduce(Duration.zero, +) }
        #expect(waited >= .seconds(56) && host.server.count(of: "newOrder") == 1)
        #expect(host.server.count(of: "chall") == 1, "the answer is submitted once")
    }

    @Test("An order that is not decided is gone on with by the next run")
    func aPendingOrderIsGoneOnWith() async throws {
        let host = try Host()
        host.server.behave { $0.orderLooks = 10_000 }
        #expect(await code { _ = try await host.provider().getCertificate(person) } == .pending)
        #expect(host.challenges.isEmpty, "no challenge is left")
        #expect(try await host.provider().listIdentities().remarks.contains { $0.contains("has not decided yet") })
        host.server.behave { $0.orderLooks = 0 }
        _ = try await host.provider().getCertificate(person)
        #expect(host.server.count(of: "newOrder") == 1 && host.server.issuedCount == 1 && host.server.mistakes == [])
    }

    @Test("An order that the server has lost is begun anew, with the same key", arguments: [404, 410])
    func aLostOrderIsBegunAnew(status: Int) async throws {
        let host = try Host()
        host.server.behave { $0.orderLooks = 10_000 }
        #expect(await code { _ = try await host.provider().getCertificate(person) } == .pending)
        let keys = try ownedKeys(host)
        host.server.state.withLock {
            $0.orders = [:]; $0.behaviour.orderLooks = 0
        }
        if status == 410 { host.server.fail("order", .status(410, problem: "malformed")) }
        let identity = try await host.provider().getCertificate(person)
        #expect(host.server.count(of: "newOrder") == 2 && keys.contains(identity.key.publicKey))
        #expect(host.log.warnings.contains { $0.contains("lost by the server") })
    }

    /// The keys that the host's records name.
    private func ownedKeys(_ host: Host) throws -> [PublicKeyInfo] {
        let environment = host.environment()
        return try host.records.filter { $0.hasPrefix("owned-") }.flatMap { name in
            try OwnedKeys(
                try environment.keyStores.store("store:", pinSource: nil, parameter: "key"), environment, record: name
            )
            .recorded().map(\.publicKey)
        }
    }

    @Test("An order that is refused by an authorisation ends with the server's reason, and the next run makes another")
    func aRefusedAuthorisation() async throws {
        let host = try Host()
        host.server.behave { $0.refusal = "connection" }
        let error = try #require(await failure { _ = try await host.provider().getCertificate(person) })
        #expect(error.code == .rejected)
        #expect(error.message.contains("host.example") && error.message.contains("connection, The test refuses"))
        #expect(error.message.contains("serves files below"))
        #expect(host.challenges.isEmpty)
        host.server.behave { $0.refusal = nil }
        _ = try await host.provider().getCertificate(person)
        #expect(host.server.count(of: "newOrder") == 2 && host.server.mistakes == [])
    }

    @Test("An order that ends without a reason, as those of some public CAs do, is explained by its authorisations")
    func anOrderWithoutAReason() async throws {
        let host = try Host()
        host.server.behave {
            $0.refusal = "connection"
            $0.decidesByOrder = true
        }
        let error = try #require(await failure { _ = try await host.provider().getCertificate(person) })
        #expect(error.message.contains("has not accepted the proof for host.example"), "\(error)")
        #expect(error.message.contains("connection, The test refuses") && error.message.contains("'http-root'"))
        host.server.behave { $0.refusal = nil }
        _ = try await host.provider().getCertificate(person)
    }

    @Test("A refused order names type, detail and names of each problem")
    func aRefusedOrder() async throws {
        let host = try Host()
        let problem = """
            {"type": "urn:ietf:params:acme:error:compound", "detail": "Some names are refused", "subproblems": [
            {"type": "urn:ietf:params:acme:error:rejectedIdentifier", "detail": "Not yours\\u001b[31m", "identifier":
            {"type": "dns", "value": "host.example"}}, {"type": "urn:ietf:params:acme:error:caa", "detail": "Forbidden"}]}
            """
        host.server.fail("newOrder", .status(400, headers: [("X", "y")]))
        #expect(await code { _ = try await host.provider().getCertificate(person) } == .rejected)
        host.server.fail("newOrder", .body(problem, type: "application/problem+json", status: 403))
        let error = try #require(await failure { _ = try await host.provider().getCertificate(person) })
        #expect(error.message.contains("compound, Some names are refused"), "\(error)")
        #expect(error.message.contains("rejectedIdentifier, Not yours") && error.message.contains("dns:host.example"))
        #expect(!error.message.unicodeScalars.contains("\u{1b}"))
    }

    @Test("A limit of the rate says when to come back")
    func aRateLimit() async throws {
        let host = try Host()
        host.server.fail("newOrder", .status(429, problem: "rateLimited", headers: [("Retry-After", "3600")]))
        let error = try #require(await failure { _ = try await host.provider().getCertificate(person) })
        #expect(error.code == .unavailable && error.retryAfter == .seconds(3600))
        #expect(error.message.contains("rateLimited") && error.message.contains("try again after 20"))
    }

    @Test(
        "A certificate that was not asked for is refused, and the old identity stays",
        arguments: ACMEServer.Issue.allCases)
    func aCertificateIsChecked(issue: ACMEServer.Issue) async throws {
        let host = try Host()
        let changes: [String: String?] = [
            "subject": "CN=host.example", "names": issue == .otherSubject ? "requested" : nil,
        ]
        let old = try await host.provider(changes).getCertificate(person)
        host.server.behave { $0.issue = issue }
        let result = await failure { _ = try await host.provider(changes).getCertificate(person) }
        switch issue {
        case .right, .twice, .reversed, .text, .many: #expect(result == nil)
        default:
            #expect(result?.code == .protocolError, "\(issue): \(String(describing: result))")
            #expect(try host.provider(changes).getStoredCertificate()?.certificate == old.certificate)
            // The next run does not meet the same order; that of an answer without a certificate ends later.
            host.server.behave { $0.issue = .right }
            for _ in 1...2 where issue == .huge {
                _ = await failure { _ = try await host.provider(changes).getCertificate(person) }
            }
            _ = try await host.provider(changes).getCertificate(person)
        }
        #expect(host.server.mistakes == [])
    }

    @Test("A subject that the server changes is taken with names = server, and without a subject")
    func aChangedSubject() async throws {
        let host = try Host()
        host.server.behave { $0.issue = .otherSubject }
        let error = await failure { _ = try await host.provider(["subject": "CN=x"]).getCertificate(person) }
        #expect(error?.message.contains("set 'names' to server") == true)
        let taken = try await host.provider(["subject": "CN=x", "names": "server"]).getCertificate(person)
        #expect(taken.certificate.subject == "CN=dropped.example")
        #expect(try await host.provider(["subject": "CN=x", "names": "server"]).listIdentities().remarks.isEmpty)
        _ = try await host.provider().getCertificate(person)
        #expect(host.log.warnings == [])
    }

    @Test("A leaf without its CA is taken if the trust anchors have issued it")
    func aLeafAlone() async throws {
        let host = try Host()
        host.server.behave { $0.issue = .leafAlone }
        let file = try host.directory.write(Array(host.server.authority.pemRepresentation.utf8), to: "ca.pem")
        _ = try await host.provider(["trust-anchors": file]).getCertificate(person)
    }

    @Test("A certificate is revoked once, by the account or its own key", arguments: [true, false])
    func aCertificateIsRevoked(hasAccount: Bool) async throws {
        let host = try Host()
        let provider = try host.provider()
        #expect(await code { try await provider.revocation?.revokeStoredCertificate(.superseded, person) } == .notFound)
        let identity = try await provider.getCertificate(person)
        if !hasAccount { host.server.state.withLock { $0.accounts = [:] } }
        let revocation = try #require(provider.revocation)
        try await revocation.revokeStoredCertificate(.superseded, person)
        try await revocation.revokeStoredCertificate(.superseded, person)
        let revoked = host.server.state.withLock(\.revoked)
        #expect(revoked.count == 1 && revoked.first?.reason == 4)
        #expect(try provider.getStoredCertificate()?.certificate == identity.certificate)
        #expect(host.server.mistakes == [])
    }

    @Test("A profile is requested, and an unknown one is an error before an order is made")
    func aProfile() async throws {
        let host = try Host()
        host.server.behave { $0.profiles = ["short": "Six days", "tls": "Ninety days"] }
        host.server.behave { $0.profiles = nil }
        let none = await failure { _ = try await host.provider(["profile": "long"]).getCertificate(person) }
        #expect(none?.code == .configurationInvalid && none?.message.contains("leave out 'profile'") == true)
        host.server.behave { $0.profiles = ["short": "Six days", "tls": "Ninety days"] }
        let error = await failure { _ = try await host.provider(["profile": "long"]).getCertificate(person) }
        #expect(error?.message.contains("short, tls") == true && host.server.count(of: "newOrder") == 0)
        _ = try await host.provider(["profile": "short"]).getCertificate(person)
        #expect(host.server.state.withLock { $0.orders.values.compactMap(\.profile) } == ["short"])
    }

    @Test("A server that has authorised the account needs no challenge")
    func noChallenge() async throws {
        let host = try Host()
        let changes: [String: String?] = ["challenge": "none", "http-root": nil]
        let error = await failure { _ = try await host.provider(changes).getCertificate(person) }
        #expect(error?.message.contains("set it to one of: http-01, dns-01, tls-alpn-01") == true)
        // The order is gone on with when the configuration is right.
        host.server.state.withLock { state in
            for name in state.authorizations.keys { state.authorizations[name]?.status = "valid" }
        }
        _ = try await host.provider(changes).getCertificate(person)
        #expect(host.server.count(of: "newOrder") == 1)
    }

    @Test(
        "Names that need other challenges, and mistakes in the configuration, are errors at once",
        arguments: [
            (["identifiers": "host.example"], "'host.example' is not a valid identifier: write dns:"),
            (["identifiers": "dns:*.host.example"], "only challenge=dns-01"),
            (["identifiers": "dns:a.*.example"], "only the first label"),
            (["identifiers": "mail:x"], "the kinds are dns:"),
            (["identifiers": " , "], "at least one name"),
            (["identifiers": "hardware-module:serial"], "hardware-module:SERIAL/OID"),
            (["identifiers": "hardware-module:a/b/1.2.3"], "hardware-module:SERIAL/OID"),
            (["identifiers": "hardware-module:a/b"], "hardware-module:SERIAL/OID"),
            (["identifiers": "permanent-identifier:"], "permanent-identifier:VALUE"),
            (["identifiers": "permanent-identifier:a/b"], "VALUE/OID, with the OID of its assigner"),
            (["identifiers": "permanent-identifier:a/b/1.2.3"], "VALUE/OID"),
            (["directory": "http://ca.example/dir"], "must begin with https:"),
            (["directory": "https://ca.example/dir"], "set it to a PEM file with the CA of ca.example"),
            (["challenge": "dns-01", "http-root": ""], "dns-hook"),
            (["challenge": "dns-01", "dns-hook": "hook.sh", "http-root": ""], "absolute path"),
            (["http-listen": "0", "http-root": ""], "must be PORT"),
            (["http-listen": "localhost:80", "http-root": ""], "with an IP address of this host"),
            (["http-listen": "80"], "exclude each other"),
            (["eab-kid": "k"], "eab-key-source"),
            (["contact": "nobody"], "must be mail addresses"),
            (["pin-mode": "pin-only"], "needs a 'pin'"),
            (["ca-fingerprint": "12:34"], "must be the SHA-256 hash"),
        ])
    func mistakesOfTheConfiguration(changes: [String: String], part: String) async throws {
        let host = try Host()
        let error = failure { _ = try host.provider(changes.mapValues { $0.isEmpty ? String?.none : $0 }) }
        #expect(error?.message.contains(part) == true, "\(String(describing: error))")
        #expect(host.server.heard == [])
    }
}
