import CertificateProviding
import Enrolment
import Foundation
import OpenSSLSupport
import TestSupport
import Testing

@testable import RemoteMDMProvider

/// Replies that are not what they should be.
@Suite struct SCEPReplyTests {
    private func failure(
        of behaviour: SCEPResponder.Behaviour
    ) async throws -> ProviderError? {
        let responder = try SCEPResponder(behaviour)
        let client = SCEPClient.testing(
            try SCEPConfiguration(trusting: responder.authority.certificate), transport: responder.transport)
        return await #expect(throws: ProviderError.self) {
            try await client.enrol(.testing(key: TestKeys.rsa.get()))
        }
    }

    @Test(arguments: [
        ("0", "badAlg"), ("1", "badMessageCheck"), ("2", "badRequest"), ("3", "badTime"), ("4", "badCertId"),
        ("17", "failInfo 17"), ("", "failInfo"), ("999999999999999999999", "failInfo 99999999"),
    ]) func aRefusalIsToldWithItsReason(failInfo: String, name: String) async throws {
        var behaviour = SCEPResponder.Behaviour(failInfo: failInfo)
        behaviour.attributes[SCEPAttribute.failInfoText] = .utf8String("ask \u{1b}[31mthe help desk")
        let error = try await failure(of: behaviour)
        #expect(error?.code == .rejected)
        #expect(error?.nativeCode == Int(failInfo))
        #expect(error?.message.contains(name) == true)
        #expect(error?.message.contains("ask \\1b[31mthe help desk") == true)
    }

    @Test func aRefusalThatRepeatsTheChallengeIsToldWithoutIt() async throws {
        var behaviour = SCEPResponder.Behaviour(failInfo: "2")
        behaviour.attributes[SCEPAttribute.failInfoText] = .utf8String("'\(SCEPServer.challenge)' is wrong")
        let error = try await failure(of: behaviour)
        #expect(error?.message.contains("'<secret>' is wrong") == true)
        #expect(error?.message.contains(SCEPServer.challenge) == false)
    }

    struct Lie: Sendable {
        let name: String
        let behaviour: SCEPResponder.Behaviour
        var code = ProviderError.Code.protocolError
    }

    private static func lie(_ type: String, _ value: CMSAttribute.Value?) -> SCEPResponder.Behaviour {
        var behaviour = SCEPResponder.Behaviour()
        behaviour.attributes[type] = .some(value)
        return behaviour
    }

    @Test(arguments: [
        Lie(
            name: "another nonce",
            behaviour: lie(SCEPAttribute.recipientNonce, .octetString([UInt8](repeating: 1, count: 16)))),
        Lie(name: "no nonce", behaviour: lie(SCEPAttribute.recipientNonce, nil)),
        Lie(name: "a nonce that is text", behaviour: lie(SCEPAttribute.recipientNonce, .printableString("1"))),
        Lie(name: "another transaction", behaviour: lie(SCEPAttribute.transactionID, .printableString("1"))),
        Lie(name: "no transaction", behaviour: lie(SCEPAttribute.transactionID, nil)),
        Lie(name: "another message", behaviour: lie(SCEPAttribute.messageType, .printableString("19"))),
        Lie(name: "no message type", behaviour: lie(SCEPAttribute.messageType, nil)),
        Lie(name: "an unknown status", behaviour: lie(SCEPAttribute.pkiStatus, .printableString("1"))),
        Lie(name: "no status", behaviour: lie(SCEPAttribute.pkiStatus, nil)),
        Lie(
            name: "success without content",
            behaviour: {
                var behaviour = lie(SCEPAttribute.pkiStatus, .printableString("0"))
                behaviour.failInfo = "2"
                return behaviour
            }()),
        Lie(name: "MD5", behaviour: .init(digest: "MD5"), code: .unsupportedAlgorithm),
        Lie(name: "nothing", behaviour: .init(change: { _ in [] })),
        Lie(name: "no CMS", behaviour: .init(change: { _ in Array("<html>Welcome".utf8) })),
        Lie(name: "more than the message", behaviour: .init(change: { $0 + [0] })),
        Lie(name: "oversized", behaviour: .init(change: { $0 + [UInt8](repeating: 0, count: 1 << 20) })),
        Lie(name: "wrong challenge as HTTP 500", behaviour: .init(statuses: ["PKIOperation": 500]), code: .rejected),
    ])
    func aReplyThatDoesNotFitIsRefused(_ lie: Lie) async throws {
        #expect(try await failure(of: lie.behaviour)?.code == lie.code, "\(lie.name)")
    }

    @Test func anotherSignerIsRefused() async throws {
        let error = try await failure(of: .init(signer: CertifiedKey.impostor.get()))
        #expect(error?.code == .protocolError)
    }

    @Test func aReplyForAnotherCannotBeRead() async throws {
        let other = try CertifiedKey.impostor.get().certificate.derRepresentation
        #expect(try await failure(of: .init(recipient: other))?.code == .protocolError)
    }

    /// The same names and numbers, and another key.
    @Test func aReplyForAnotherKeyOfTheSameNameCannotBeRead() async throws {
        let responder = try SCEPResponder()
        let client = SCEPClient.testing(
            try SCEPConfiguration(trusting: responder.authority.certificate), transport: responder.transport)
        let certificate = try CertifiedKey("device", key: TestKeys.rsa.get()).certificate.derRepresentation
        let envelope = try client.library.envelopedData([1, 2, 3], recipient: certificate, cipher: .aes128CBC)
        let read = try CMSEnvelope(envelope, for: certificate, accepting: [.aes128CBC], with: client.library)
        let error = await #expect(throws: ProviderError.self) {
            try await TestKeys.otherRSA.get().decrypt(read.encryptedKey, using: .rsaPKCS1)
        }
        #expect(error?.code == .malformedData)
    }

    @Test(arguments: Array(400...599)) func everyStatusIsATypedError(status: Int) async throws {
        for operation in ["GetCACert", "PKIOperation"] {
            let error = try await failure(of: .init(statuses: [operation: status]))
            let expected: Set<ProviderError.Code> = [
                .rejected, .configurationInvalid, .unavailable, .protocolError,
            ]
            #expect(error.map { expected.contains($0.code) } == true)
        }
    }
}
