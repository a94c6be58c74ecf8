import CertificateProviding
import Enrolment
import Foundation
import OpenSSLSupport
import SwiftASN1
import TestSupport
import Testing
import X509

@testable import RemoteMDMProvider

/// The client's messages, as a server reads them.
@Suite struct SCEPTransactionTests {
    private func client(
        _ responder: SCEPResponder, asked: Counter = Counter(), permitsTripleDES: Bool = false
    ) throws -> SCEPClient {
        .testing(
            try SCEPConfiguration(trusting: responder.authority.certificate, permitsTripleDES: permitsTripleDES),
            asked: asked, transport: responder.transport)
    }

    @Test func aPendingRequestIsPolledForWithTheSameKey() async throws {
        let responder = try SCEPResponder(.init(pending: 2))
        let asked = Counter()
        let key = try TestKeys.rsa.get()
        for isPending in [false, true] {
            // As after a restart, each time.
            let answer = try await client(responder, asked: asked).enrol(.testing(key: key, isPending: isPending))
            guard case .pending = answer else { return #expect(Bool(false), "\(answer)") }
        }
        let leaf = try #require(
            try await client(responder, asked: asked).enrol(.testing(key: key, isPending: true)).certificates().first)
        #expect(leaf.publicKey == key.publicKey)
        #expect(responder.received.map(\.type) == ["19", "20", "20"])
        #expect(Set(responder.received.map(\.transactionID)) == [key.publicKey.sha256.hexEncoded])
        #expect(Set(responder.received.map(\.nonce)).count == 3)
        #expect(asked.value == 1)
        // IssuerAndSubject: a sequence of both names.
        let names = responder.authority.certificate.subjectDER + leaf.subjectDER
        #expect(responder.received[1].content.first == 0x30)
        #expect(Array(responder.received[1].content.dropFirst(2)) == names)
    }

    /// A server may encrypt for the certificate that a process before this one had signed.
    @Test func aReplyToAnEarlierProcessIsRead() async throws {
        let key = try TestKeys.rsa.get()
        let first = try SCEPResponder(.init(pending: 1))
        _ = try await client(first).enrol(.testing(key: key))
        let earlier = try #require(first.received.first?.certificate)
        let responder = try SCEPResponder(.init(recipient: earlier))
        let later = Date(timeIntervalSinceNow: 3600)
        let client = SCEPClient.testing(
            try SCEPConfiguration(trusting: responder.authority.certificate), now: { later },
            transport: responder.transport)
        _ = try await client.enrol(.testing(key: key)).certificates()
        #expect(responder.received.first.map { $0.certificate != earlier } == true)
    }

    @Test func theFirstMessageIsSignedByTheKeyItself() async throws {
        let responder = try SCEPResponder()
        let key = try TestKeys.rsa.get()
        _ = try await client(responder).enrol(.testing(key: key))
        let message = try #require(responder.received.first)
        let signer = try X509Certificate(derRepresentation: message.certificate)
        #expect(signer.publicKey == key.publicKey)
        #expect(signer.isSelfIssued)
        let csr = try CertificateSigningRequest(derEncoded: message.content)
        #expect(csr.subject == (try signer.certificate().subject))
        let password = try #require(csr.attributes[oid: [1, 2, 840, 113549, 1, 9, 7]]?.values.first)
        #expect(try ASN1PrintableString(asn1Any: password) == ASN1PrintableString(SCEPServer.challenge))
        #expect(message.digest == "SHA256")
        #expect(message.cipher == .aes128CBC)
    }

    @Test(arguments: [(true, "17"), (false, "19")])
    func aRenewalIsSignedWithTheCurrentCertificate(isAnnounced: Bool, type: String) async throws {
        let responder = try SCEPResponder(
            .init(capabilities: isAnnounced ? "Renewal\nSCEPStandard" : "SCEPStandard"))
        let current = try await identity(responder)
        _ = try await client(responder).enrol(.testing(key: TestKeys.otherRSA.get(), current: current))
        let message = try #require(responder.received.last)
        #expect(message.type == type)
        #expect(message.certificate == current.certificate.derRepresentation)
        #expect(message.transactionID == (try TestKeys.otherRSA.get().publicKey.sha256.hexEncoded))
    }

    /// The current key reads the reply.
    @Test func aRenewalCertifiesAKeyThatCannotDecrypt() async throws {
        let responder = try SCEPResponder()
        let current = try await identity(responder)
        let new = TestKey(try TestKeys.otherRSA.get())
        let leaf = try await client(responder).enrol(.testing(key: new, current: current)).certificates().first
        #expect(leaf?.publicKey == new.publicKey)
    }

    @Test func anExpiredIdentityRenewsNothing() async throws {
        let responder = try SCEPResponder()
        let current = try await identity(responder)
        let later = Date(timeIntervalSinceNow: 5 * 86_400)
        let client = SCEPClient.testing(
            try SCEPConfiguration(trusting: responder.authority.certificate), now: { later },
            transport: responder.transport)
        _ = try await client.enrol(.testing(key: TestKeys.otherRSA.get(), current: current))
        #expect(responder.received.last?.type == "19")
        #expect(responder.received.last?.certificate != current.certificate.derRepresentation)
    }

    private func identity(_ responder: SCEPResponder) async throws -> Identity {
        let key = try TestKeys.rsa.get()
        return try Identity(
            certificateChain: try await client(responder).enrol(.testing(key: key)).certificates(), key: key,
            provenance: .init(provider: ProviderID("test")))
    }

    @Test("A certificate with an empty subject can be requested")
    func aRequestWithoutASubject() async throws {
        let responder = try SCEPResponder()
        let leaf = try await client(responder).enrol(.testing("", key: TestKeys.rsa.get())).certificates().first
        #expect(leaf?.subject.isEmpty == true)
    }

    struct Choice: Sendable {
        let capabilities: String
        var permitsTripleDES = false
        let digest: String
        let cipher: CMSCipher
    }

    @Test(arguments: [
        Choice(capabilities: "", digest: "SHA256", cipher: .aes128CBC),
        Choice(capabilities: "<html>\nNot found", digest: "SHA256", cipher: .aes128CBC),
        Choice(capabilities: "SHA-1\r\nSHA-256\r\nAES", digest: "SHA256", cipher: .aes128CBC),
        Choice(capabilities: "sha-512\naes\nDES3\n", digest: "SHA512", cipher: .aes128CBC),
        Choice(capabilities: "DES3\nSHA-256", permitsTripleDES: true, digest: "SHA256", cipher: .tripleDESCBC),
        Choice(capabilities: "DES3\nSCEPStandard", permitsTripleDES: true, digest: "SHA256", cipher: .aes128CBC),
    ])
    func algorithmsAreChosenByCapability(_ choice: Choice) async throws {
        let responder = try SCEPResponder(.init(capabilities: choice.capabilities))
        _ = try await client(responder, permitsTripleDES: choice.permitsTripleDES)
            .enrol(.testing(key: TestKeys.rsa.get()))
        #expect(responder.received.first?.digest == choice.digest)
        #expect(responder.received.first?.cipher == choice.cipher)
    }

    @Test(arguments: ["SHA-1\nAES", "SHA-256\nDES3"]) func oldAlgorithmsAreNotSent(capabilities: String) async throws {
        let responder = try SCEPResponder(.init(capabilities: capabilities))
        let asked = Counter()
        let error = await #expect(throws: ProviderError.self) {
            try await client(responder, asked: asked).enrol(.testing(key: TestKeys.rsa.get()))
        }
        #expect(error?.code == .unsupportedAlgorithm)
        #expect(responder.received.isEmpty)
        #expect(asked.value == 0)
    }

    @Test("The enrolment continues with GET if GetCACaps fails with an HTTP error", arguments: [400, 404, 500, 503])
    func capabilitiesThatCannotBeHadAreNone(status: Int) async throws {
        let responder = try SCEPResponder(.init(statuses: ["GetCACaps": status]))
        let recorder = RecordingTransport(responder.transport)
        let client = SCEPClient.testing(
            try SCEPConfiguration(trusting: responder.authority.certificate), transport: recorder.transport)
        _ = try await client.enrol(.testing(key: TestKeys.rsa.get()))
        #expect(recorder.operations.last == "GET PKIOperation")
    }

    @Test func aRequestThatIsTooLongForAURLIsNotSent() async throws {
        let responder = try SCEPResponder(.init(capabilities: "AES"))
        let request = try await EnrolmentRequest.testing(
            names: (0..<300).map { "dns:host-\($0).example" }, key: TestKeys.rsa.get())
        let error = await #expect(throws: ProviderError.self) {
            try await client(responder).enrol(request)
        }
        #expect(error?.code == .protocolError)
        #expect(error?.message.contains("POSTPKIOperation") == true)
        #expect(responder.received.isEmpty)
    }

    @Test("A challenge may contain any text but must not be empty", arguments: ["", "\u{e4}\u{f6}", "a*b@c"])
    func challengesAreText(challenge: String) async throws {
        let responder = try SCEPResponder()
        let client = SCEPClient.testing(
            try SCEPConfiguration(trusting: responder.authority.certificate), challenge: challenge,
            transport: responder.transport)
        guard !challenge.isEmpty else {
            let error = await #expect(throws: ProviderError.self) {
                try await client.enrol(.testing(key: TestKeys.rsa.get()))
            }
            #expect(error?.code == .configurationInvalid)
            return
        }
        _ = try await client.enrol(.testing(key: TestKeys.rsa.get()))
        let csr = try CertificateSigningRequest(derEncoded: try #require(responder.received.first).content)
        let password = try #require(csr.attributes[oid: [1, 2, 840, 113549, 1, 9, 7]]?.values.first)
        #expect(try ASN1UTF8String(asn1Any: password) == ASN1UTF8String(challenge))
    }
}
