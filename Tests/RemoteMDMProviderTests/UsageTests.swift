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

    @Test("A server that issues for servers alone is of use to usage=server, and refused for the others")
    func aServerThatIssuesForServers() async throws {
        for usage in IdentityUsage.sidesOfTLS {
            let server = try ESTResponder(.basic)
            let provider = try server.provider(label: "fault-server-only", ["usage": usage.rawValue])
            guard usage != .server else {
                let identity = try await provider.getCertificate(person)
                #expect(identity.usage == .server && identity.obstacle(at: Date()) == nil)
                #expect(!identity.certificate.permits(.client))
                continue
            }
            let error = await #expect(throws: ProviderError.self) {
                try await provider.getCertificate(person)
            }
            #expect(error?.code == .protocolError)
            #expect(
                error?.message.contains(
                    "it does not permit TLS client authentication, by its extended key usage, which usage=\(usage) needs"
                )
                    == true, "\(String(describing: error))")
            #expect(try provider.getStoredCertificate() == nil)
        }
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
        "A certificate without the requested subject, or with another, is used with a warning",
        arguments: [
            ("no-subject", ""), ("wrong-subject", "CN=Somebody Else,O=Enrolment Test"),
        ])
    func theServerDecidesOnTheSubject(fault: String, subject: String) async throws {
        let server = try ESTResponder(.basic)
        let storage = InMemoryStorage()
        let names = ["subject-alternative-names": "dns:client.example"]
        for isRenewal in [false, true] {
            let log = TestLog()
            let provider = try server.provider(storage: storage, label: "fault-\(fault)", names, log: log)
            let identity = try await provider.getCertificate(person)
            #expect(identity.certificate.subject == subject)
            #expect(identity.certificate.subjectAlternativeNames == [.dns("client.example")])
            #expect(
                log.warnings.contains {
                    $0.contains("another subject than the requested one") && $0.contains("CN=client")
                },
                "\(log.text)")
            let remarks = await provider.listIdentities().remarks
            #expect(
                remarks.contains {
                    $0.hasSuffix("has issued for the subject '\(subject)' instead of 'CN=client,O=Example'.")
                })
            // The renewal has the names of the certificate (RFC 7030, section 4.2.2), else this server refuses it.
            #expect(server.requests.contains { $0.operation == .simplereenroll } == isRenewal)
        }
    }

    @Test("With names=requested another subject is refused, with names=server it is used without a warning")
    func namesSayWhoDecidesOnTheSubject() async throws {
        let server = try ESTResponder(.basic)
        let storage = InMemoryStorage()
        let names = ["subject-alternative-names": "dns:client.example"]
        func provider(_ rule: String, _ log: TestLog = TestLog()) throws -> any CertificateProvider {
            try server.provider(
                storage: storage, label: "fault-wrong-subject", names.merging(["names": rule]) { $1 }, log: log)
        }
        let error = await failure { try await provider("requested").getCertificate(person) }
        #expect(error?.code == .protocolError && error?.message.contains("set 'names' to server") == true)
        #expect(try provider("requested").getStoredCertificate() == nil)
        for _ in 0..<2 {
            let log = TestLog()
            let provider = try provider("server", log)
            let identity = try await provider.getCertificate(person)
            #expect(identity.certificate.subject == "CN=Somebody Else,O=Enrolment Test")
            #expect(log.warnings.isEmpty, "\(log.text)")
            let remarks = await provider.listing?.listIdentities().remarks
            #expect(remarks == [], "\(String(describing: remarks))")
        }
        #expect(throws: ProviderError.self) { try provider("other") }
    }

    @Test("A certificate without any name is refused")
    func someNameIsNeeded() async throws {
        let server = try ESTResponder(.basic)
        let provider = try server.provider(label: "fault-no-subject")
        let error = await #expect(throws: ProviderError.self) { try await provider.getCertificate(person) }
        #expect(error?.code == .protocolError)
        #expect(
            error?.message.contains("it has no name: the server has dropped the subject 'CN=client,O=Example'") == true,
            "\(String(describing: error))")
    }
}
