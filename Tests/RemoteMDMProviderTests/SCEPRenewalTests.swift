import CertificateProviding
import Enrolment
import Foundation
import NIOHTTP1
import SwiftASN1
import TestSupport
import Testing
import X509

@testable import ProviderTransport
@testable import RemoteMDMProvider

/// The provider's behaviour if a SCEP server or a file is silent.
@Suite(.timeLimit(.minutes(20))) struct SCEPRenewalTests {
    private let folder: TemporaryDirectory
    private let storage = InMemoryStorage()

    init() throws { folder = try TemporaryDirectory() }

    private func provider(
        _ server: SCEPHTTPServer, challenge: String, timeout: Int = 20, usage: IdentityUsage = .client
    ) throws -> EnrollingProvider {
        let parameters = [
            "protocol": "scep", "url": server.url, "challenge-source": challenge, "timeout": "\(timeout)",
            "ca-fingerprint": try CertifiedKey.authority.get().certificate.sha256Fingerprint.hexEncoded,
            "subject": "CN=client,O=Example", "usage": usage.rawValue,
        ]
        let provider = try RemoteMDMProvider.make(
            environment: .testing(storage: storage, transport: Transport(retryPolicy: RetryPolicy(random: { 0 }))),
            parameters: ProviderParameters(parameters.mapValues { .init($0) }))
        return provider
    }

    private func hasChallenge(_ message: SCEPResponder.Received?) throws -> Bool {
        let csr = try CertificateSigningRequest(derEncoded: try #require(message).content)
        return csr.attributes[oid: [1, 2, 840, 113549, 1, 9, 7]] != nil
    }

    @Test func aRenewalNeedsNoChallengeThatIsGone() async throws {
        let responder = try SCEPResponder()
        let server = try await SCEPHTTPServer(responder)
        let file = folder["challenge"]
        // Nothing else speaks for a first request.
        for source in ["file:\(file)", "prompt"] {
            let first = try provider(server, challenge: source)
            let code = await code { _ = try await first.getCertificate(NoUserInteraction()) }
            #expect(code == (source == "prompt" ? .interactionRequired : .fileNotFound))
        }
        #expect(responder.received.isEmpty)
        try folder.write("secret".utf8, to: "challenge")
        _ = try await provider(server, challenge: "file:\(file)").getCertificate(NoUserInteraction())
        #expect(try hasChallenge(responder.received.last))
        // If the file can be read, its challenge goes along.
        _ = try await provider(server, challenge: "file:\(file)").getCertificate(NoUserInteraction())
        #expect(try hasChallenge(responder.received.last))
        try FileManager.default.removeItem(atPath: file)
        let sources = ["file:\(file)", "prompt", "env:GONE", "systemd:gone", "fd:900"]
        for source in sources {
            _ = try await provider(server, challenge: source).getCertificate(NoUserInteraction())
            #expect(responder.received.last?.type == "17")
            #expect(try !hasChallenge(responder.received.last))
        }
        #expect(responder.received.count == 2 + sources.count)
        // An existing file that cannot be used is reported.
        try folder.write("secret".utf8, to: "challenge", mode: 0o644)
        let unsafe = try provider(server, challenge: "file:\(file)")
        #expect(await code { _ = try await unsafe.getCertificate(NoUserInteraction()) } == .configurationInvalid)
    }

    @Test(
        "The request has the key purposes of the usage, with a challenge and without",
        arguments: IdentityUsage.sidesOfTLS
    )
    func theUsageIsRequested(usage: IdentityUsage) async throws {
        let responder = try SCEPResponder()
        let server = try await SCEPHTTPServer(responder)
        try folder.write("secret".utf8, to: "challenge")
        let provider = try provider(server, challenge: "file:\(folder["challenge"])", usage: usage)
        for isRenewal in [false, true] {
            // A renewal goes without the challenge that is gone.
            if isRenewal { try FileManager.default.removeItem(atPath: folder["challenge"]) }
            _ = try await provider.getCertificate(NoUserInteraction())
            let csr = try CertificateSigningRequest(derEncoded: try #require(responder.received.last).content)
            let asked = try csr.attributes.extensionRequest?.extensions.extendedKeyUsage
            let expected = try usage == .client ? nil : ExtendedKeyUsage(usage.purposes)
            #expect(asked == expected)
            #expect(try hasChallenge(responder.received.last) != isRenewal)
        }
    }

    @Test("A server that refuses RenewalReq gets one PKCSReq, signed with the current certificate")
    func aPKCSReqFollowsARefusedRenewalReq() async throws {
        let responder = try SCEPResponder(.init(refusedTypes: ["17"]))
        let server = try await SCEPHTTPServer(responder)
        try folder.write("secret".utf8, to: "challenge")
        let provider = try provider(server, challenge: "file:\(folder["challenge"])")
        let first = try await provider.getCertificate(NoUserInteraction())
        let second = try await provider.getCertificate(NoUserInteraction())
        #expect(first.certificate != second.certificate)
        #expect(responder.received.map(\.type) == ["19", "17", "19"])
        #expect(responder.received.dropFirst().allSatisfy { $0.certificate == first.certificate.derRepresentation })
        #expect(Set(responder.received.dropFirst().map(\.transactionID)).count == 1)
    }

    @Test func aRefusedPKCSReqIsTheEnd() async throws {
        let first = try SCEPResponder()
        try folder.write("secret".utf8, to: "challenge")
        let before = try await SCEPHTTPServer(showing: nil) { try first.answer($0) }
        let provider = try provider(before, challenge: "file:\(folder["challenge"])")
        let current = try await provider.getCertificate(NoUserInteraction())
        first.behave(.init(refusedTypes: ["17", "19"]))
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .rejected)
        #expect(first.received.map(\.type) == ["19", "17", "19"])
        #expect(try provider.getStoredCertificate()?.certificate == current.certificate)
    }

    @Test("The enrolment continues if the server does not answer GetCACaps")
    func capabilitiesThatDoNotComeAreNone() async throws {
        let responder = try SCEPResponder()
        let server = try await SCEPHTTPServer(showing: nil) { request in
            if request.operation == "GetCACaps" { return HTTPResponse(status: 0, headers: [:], body: []) }
            return try responder.answer(request)
        }
        try folder.write("secret".utf8, to: "challenge")
        let provider = try provider(server, challenge: "file:\(folder["challenge"])", timeout: 40)
        _ = try await provider.getCertificate(NoUserInteraction())
        #expect(server.operations == ["GetCACert", "GetCACaps", "PKIOperation"])
    }
}
