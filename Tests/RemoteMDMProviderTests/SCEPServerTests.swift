import CertificateProviding
import Enrolment
import Foundation
import ProviderTransport
import TestSupport
import Testing

@testable import RemoteMDMProvider

/// Against Debian's scepserver.
@Suite struct SCEPServerTests {
    let server = Result { try SCEPServer() }

    private func client(challenge: String? = SCEPServer.challenge) throws -> SCEPClient {
        let server = try server.get()
        return .testing(
            try SCEPConfiguration(trusting: server.authority), challenge: challenge, transport: server.transport)
    }

    /// Checks a certificate with `openssl verify`.
    private func verify(_ certificate: X509Certificate) throws {
        let folder = try TemporaryDirectory()
        let authority = try server.get().authority
        try folder.write(authority.pemRepresentation.utf8, to: "ca.pem")
        try folder.write(certificate.pemRepresentation.utf8, to: "leaf.pem")
        try Subprocess.openssl("verify", "-CAfile", "ca.pem", "leaf.pem", in: folder.path)
    }

    @Test func theRightChallengeGivesACertificate() async throws {
        let key = try TestKeys.rsa.get()
        let answer = try await client().enrol(.testing(key: key))
        let leaf = try #require(try answer.certificates().first)
        #expect(leaf.publicKey == key.publicKey)
        #expect(leaf.subject == "CN=device,O=Example")
        #expect(leaf.subjectAlternativeNames == [.dns("device.example")])
        try verify(leaf)
    }

    @Test("The server reads the names for directories, and issues for the URIs")
    func namesForDirectories() async throws {
        let names = ["sid:S-1-5-21-1-2-3-1001", "uri:urn:device:SN-1"]
        let answer = try await client().enrol(.testing(names: names, key: TestKeys.rsa.get()))
        let leaf = try #require(try answer.certificates().first)
        #expect(try leaf.subjectAlternativeNames == names.map { name in try AlternativeName(name) })
        #expect(leaf.subjectAlternativeNames.compactMap(\.sid) == ["S-1-5-21-1-2-3-1001"])
    }

    @Test func aWrongChallengeIsRejected() async throws {
        let error = await #expect(throws: ProviderError.self) {
            try await client(challenge: "wrong").enrol(.testing(key: TestKeys.rsa.get()))
        }
        #expect(error?.code == .rejected)
        #expect(error?.nativeCode == 2)
        #expect(error?.message.contains("badRequest") == true)
        #expect(try server.get().log.contains("invalid challenge"))
    }

    @Test func aWrongFingerprintSendsNothing() async throws {
        let server = try server.get()
        let recorder = RecordingTransport(server.transport)
        let asked = Counter()
        let client = SCEPClient.testing(
            try SCEPConfiguration(target: "/scep", fingerprint: [UInt8](repeating: 0xab, count: 32)),
            asked: asked, transport: recorder.transport)
        let error = await #expect(throws: ProviderError.self) {
            try await client.enrol(.testing(key: TestKeys.rsa.get()))
        }
        #expect(error?.code == .serverNotTrusted)
        #expect(error?.message.contains(server.authority.sha256Fingerprint.hexEncoded) == true)
        #expect(recorder.operations == ["GET GetCACert"])
        #expect(asked.value == 0)
        #expect(!server.log.contains("PKIOperation"))
    }

    @Test func aStoppedServerIsUnavailable() async throws {
        let server = try server.get()
        let client = try client()
        server.stop()
        let error = await #expect(throws: ProviderError.self) {
            try await client.enrol(.testing(key: TestKeys.rsa.get()))
        }
        #expect(error?.code == .unavailable)
    }

    @Test(arguments: [true, false]) func anIdentityIsRenewed(withRenewalReq: Bool) async throws {
        let server = try server.get()
        let current = try Identity(
            certificateChain: try await client().enrol(.testing(key: TestKeys.rsa.get())).certificates(),
            key: TestKeys.rsa.get(), provenance: .init(provider: ProviderID("test")))
        let transport = server.transport
        let client = SCEPClient.testing(try SCEPConfiguration(trusting: server.authority)) {
            request async throws(ProviderError) in
            var response = try await transport(request)
            if !withRenewalReq, request.target.contains("GetCACaps") {
                response.body = Array("POSTPKIOperation\nSHA-256\nAES".utf8)
            }
            return response
        }
        let new = try TestKeys.otherRSA.get()
        let leaf = try #require(
            try await client.enrol(.testing(key: new, current: current)).certificates().first)
        #expect(leaf.publicKey == new.publicKey)
        #expect(leaf.subject == current.certificate.subject)
        #expect(leaf != current.certificate)
        #expect(server.log.contains("RenewalReq (17)") == withRenewalReq)
        try verify(leaf)
    }

    @Test func aServerThatCannotPostIsSentAGet() async throws {
        let server = try server.get()
        let transport = server.transport
        let recorder = RecordingTransport { request async throws(ProviderError) in
            var response = try await transport(request)
            if request.target.contains("GetCACaps") { response.body = Array("SHA-256\r\nAES".utf8) }
            return response
        }
        let client = SCEPClient.testing(
            try SCEPConfiguration(trusting: server.authority), transport: recorder.transport)
        let leaf = try #require(try await client.enrol(.testing(key: TestKeys.rsa.get())).certificates().first)
        #expect(recorder.operations == ["GET GetCACert", "GET GetCACaps", "GET PKIOperation"])
        try verify(leaf)
    }

    @Test func keysThatCannotDecryptAreRefusedFirst() async throws {
        let server = try server.get()
        let recorder = RecordingTransport(server.transport)
        let client = SCEPClient.testing(
            try SCEPConfiguration(trusting: server.authority), transport: recorder.transport)
        for key: any IdentityKey in [try TestKeys.p256.get(), TestKey(try TestKeys.rsa.get())] {
            let error = await #expect(throws: ProviderError.self) {
                try await client.enrol(.testing(key: key))
            }
            #expect(error?.code == .unsupportedAlgorithm)
        }
        #expect(recorder.requests.isEmpty)
    }

    @Test func theServersCertificateIsTheCAAndIsAskedForOnce() async throws {
        let server = try server.get()
        let recorder = RecordingTransport(server.transport)
        let client = SCEPClient.testing(
            try SCEPConfiguration(trusting: server.authority), transport: recorder.transport)
        #expect(try await client.authorities() == [server.authority])
        _ = try await client.enrol(.testing(key: TestKeys.rsa.get())).certificates()
        #expect(recorder.operations == ["GET GetCACert", "GET GetCACaps", "POST PKIOperation"])
    }
}
