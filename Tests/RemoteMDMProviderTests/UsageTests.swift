import CertificateProviding
import Enrolment
import Foundation
import SwiftASN1
import TestSupport
import Testing
import X509

@testable import RemoteMDMProvider

/// The side of TLS that an enrolment is for, and servers that issue another certificate than the requested one.
@Suite(.timeLimit(.minutes(20))) struct UsageTests {
    private let person = NoUserInteraction()

    @Test(
        "An enrolment asks for the key purposes of its usage, and so does its renewal",
        arguments: IdentityUsage.sidesOfTLS)
    func theUsageIsRequested(usage: IdentityUsage) async throws {
        let server = try ESTResponder(.basic)
        let provider = try server.provider(["usage": usage.rawValue])
        for _ in 1...2 {
            let identity = try await provider.getCertificate(person)
            #expect(identity.usage == usage && identity.obstacle(at: Date()) == nil)
            #expect(identity.certificate.declares(usage))
            #expect(identity.certificate.declares(.both) == (usage == .both), "no more than was asked for")
        }
        let listed = try #require(await provider.listIdentities().identities.first)
        #expect(listed.usage == usage && listed.obstacle(at: Date()) == nil)
        // Servers refuse a certificate without clientAuth in the handshake: the password authenticates that renewal.
        #expect(server.requests.contains { $0.operation == .simplereenroll } == (usage != .server))
    }

    @Test("Each usage is an identity of its own, beside the others of the same server")
    func eachUsageIsAnIdentity() async throws {
        let server = try ESTResponder(.basic)
        let storage = InMemoryStorage()
        let client = try await server.provider(storage: storage).getCertificate(person)
        let both = try server.provider(storage: storage, ["usage": "both"])
        #expect(try both.getStoredCertificate() == nil)
        #expect(try await both.getCertificate(person).certificate != client.certificate)
        #expect(try server.provider(storage: storage).getStoredCertificate()?.certificate == client.certificate)
    }

    @Test("A wish of the server for an extended key usage is met with that of the usage")
    func theWishIsMetWithTheUsage() async throws {
        let server = try ESTResponder(.basic, .init(wishes: ["extension:2.5.29.37"], enforcesWishes: true))
        for usage in IdentityUsage.sidesOfTLS {
            let identity = try await server.provider(["usage": usage.rawValue]).getCertificate(person)
            #expect(identity.certificate.declares(usage))
        }
    }

    @Test(
        "A certificate without the requested subject, or with another, is used and renewed",
        arguments: [
            ("no-subject", ""), ("wrong-subject", "CN=Somebody Else,O=Enrolment Test"),
        ])
    func theServerDecidesOnTheSubject(fault: String, subject: String) async throws {
        let server = try ESTResponder(.basic)
        let storage = InMemoryStorage()
        let names = ["subject-alternative-names": "dns:client.example"]
        for isRenewal in [false, true] {
            let provider = try server.provider(storage: storage, label: "fault-\(fault)", names)
            let identity = try await provider.getCertificate(person)
            #expect(identity.certificate.subject == subject)
            #expect(identity.certificate.subjectAlternativeNames == [.dns("client.example")])
            // The renewal has the names of the certificate (RFC 7030, section 4.2.2), else this server refuses it.
            #expect(server.requests.contains { $0.operation == .simplereenroll } == isRenewal)
        }
    }

    @Test(
        "The parameter names sets the rule for the subject",
        arguments: [("requested", SubjectRule.required), ("server", .server), ("", .preferred)])
    func theSubjectRule(names: String, rule: SubjectRule) throws {
        #expect(try ESTResponder(.basic).provider(["names": names]).plan.subjectRule == rule)
    }
}
