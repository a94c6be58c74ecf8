import CertificateProviding
import Enrolment
import OpenSSLSupport
import ProviderTransport
import SwiftASN1
import TestSupport
import Testing
import X509

@testable import RemoteMDMProvider

/// Answers that were cut off or damaged: an error, or what the CA had signed, and nothing else.
@Suite struct SCEPFuzzTests {
    private struct Exchange {
        let client: SCEPClient
        let authority: X509Certificate
        let message: SCEPMessage
        let requester: SCEPRequester
        let reply, envelope, bag: [UInt8]

        init() async throws {
            let responder = try SCEPResponder()
            authority = responder.authority.certificate
            client = .testing(try SCEPConfiguration(trusting: authority), transport: responder.transport)
            let request = try await EnrolmentRequest.testing(key: TestKeys.rsa.get())
            let csr = try await CertificateRequest(request.names, key: request.key)
            let parsed = try CertificateSigningRequest(derEncoded: csr.derRepresentation)
            let signer = try SCEPSigner(for: request, now: client.now())
            requester = try await SCEPRequester(signer, csr: parsed, now: client.now())
            message = SCEPMessage(.pkcsReq, csr.derRepresentation, key: request.key.publicKey)
            let encoded = try await message.encoded(
                by: requester, for: authority, digest: "SHA256", cipher: .aes128CBC, with: client.library)
            reply = try responder.reply(to: encoded)
            envelope = try client.library.verifySignedData(reply, signers: [authority.derRepresentation]).content
            bag = try responder.bag([responder.authority.issue(parsed)])
        }

        func read(_ bytes: [UInt8]) throws(ProviderError) -> SCEPReply {
            try SCEPReply(bytes, to: message, signers: [authority], with: client.library)
        }

        func decrypt(_ bytes: [UInt8]) async throws -> [UInt8] {
            let envelope = try CMSEnvelope(
                bytes, for: requester.certificate, accepting: [.aes128CBC, .desCBC, .tripleDESCBC],
                with: client.library)
            // As with a key that decrypts to whatever it may be.
            let key = SecretBytes(copying: [UInt8](repeating: 7, count: 16))
            _ = try? envelope.content(key: key, with: client.library)
            let decrypter = try #require(requester.key.decrypter)
            let contentKey = try await decrypter.decrypt(envelope.encryptedKey, using: .rsaPKCS1)
            return try envelope.content(key: contentKey, with: client.library)
        }
    }

    @Test("Truncated SCEP replies, envelopes and certificate bags are refused")
    func whatIsCutOffAnywhereIsRefused() async throws {
        let exchange = try await Exchange()
        _ = try exchange.read(exchange.reply)
        for count in exchange.reply.indices {
            #expect(throws: ProviderError.self) { try exchange.read(Array(exchange.reply.prefix(count))) }
        }
        for count in exchange.envelope.indices {
            await #expect(throws: OpenSSLError.self) {
                try await exchange.decrypt(Array(exchange.envelope.prefix(count)))
            }
        }
        for count in exchange.bag.indices {
            #expect(throws: ProviderError.self) {
                try CertificateBag.certificates(in: Array(exchange.bag.prefix(count)))
            }
        }
    }

    @Test("A damaged SCEP reply is refused or keeps its signed content")
    func damagedRepliesSayNothingElse() async throws {
        let exchange = try await Exchange()
        var mutator = Mutator(seeds: [exchange.reply], seed: 1)
        var rounds = FuzzRounds(atLeast: 3000)
        while rounds.next() {
            guard let reply = try? exchange.read(mutator.next()) else { continue }
            // Unsigned parts, such as the certificates that go along, may have been changed.
            guard case .success(let envelope) = reply.status else {
                Issue.record("a success became \(reply.status)")
                return
            }
            #expect(envelope == exchange.envelope)
        }
    }

    @Test func damagedBagsAndEnvelopesAreReadOrRefused() async throws {
        let exchange = try await Exchange()
        var mutator = Mutator(seeds: [exchange.bag, exchange.envelope], seed: 2)
        var rounds = FuzzRounds(atLeast: 3000)
        while rounds.next() {
            let bytes = mutator.next()
            do { _ = try CertificateBag.certificates(in: bytes) } catch {
                #expect(error.code == .protocolError, "\(error)")
            }
            _ = try? await exchange.decrypt(bytes)
        }
    }
}
