import CertificateProviding
import Foundation
import NIOHTTP1
import OpenSSLSupport
import ProviderTransport
import SwiftASN1
import Synchronization
import X509

@testable import RemoteMDMProvider

/// A SCEP server in memory, which misbehaves on request.
final class SCEPResponder: Sendable {
    /// The faults of the answers.
    struct Behaviour: Sendable {
        var capabilities = "SCEPStandard\nRenewal\nGetNextCACert\n"
        /// HTTP statuses by operation.
        var statuses: [String: Int] = [:]
        /// How often the answer is still to come.
        var pending = 0
        var failInfo: String?
        /// The types of messages that get the failInfo badRequest.
        var refusedTypes: Set<String> = []
        /// Attributes of the reply by their type; nil leaves one out.
        var attributes: [String: CMSAttribute.Value?] = [:]
        var digest = "SHA256"
        var cipher = CMSCipher.aes128CBC
        var signer: CertifiedKey?
        /// Of the announcement of the next CA, where that is another.
        var nextSigner: CertifiedKey?
        /// The recipient of encrypted replies: by default the sender of the message that is answered.
        var recipient: [UInt8]?
        /// The answer to GetCACert, if it is not the CA's certificate alone.
        var certificates: [X509Certificate]?
        /// The answer to GetNextCACert, if it is not the impostor's.
        var next: X509Certificate?
        /// Changes the body of the answer to a PKIOperation.
        var change: @Sendable ([UInt8]) -> [UInt8] = { $0 }
    }

    /// A message, as it was read.
    struct Received: Sendable {
        let type, transactionID: String
        let nonce: CMSAttribute.Value?
        let digest: String
        let cipher: CMSCipher
        let content: [UInt8]
        /// The signer's, DER.
        let certificate: [UInt8]
    }

    let authority: CertifiedKey
    /// The recipient that decrypts messages.
    let reader: CertifiedKey
    let library = OpenSSLLibrary()
    private let behaviour: Mutex<Behaviour>
    private let messages = Mutex<[Received]>([])
    /// CSRs of transactions that are pending.
    private let waiting = Mutex<[String: [UInt8]]>([:])

    init(_ behaviour: Behaviour = Behaviour(), authority: CertifiedKey? = nil, reader: CertifiedKey? = nil) throws {
        self.authority = try authority ?? CertifiedKey.authority.get()
        self.reader = reader ?? self.authority
        self.behaviour = Mutex(behaviour)
    }

    /// Behaves otherwise from now on.
    func behave(_ new: Behaviour) { behaviour.withLock { $0 = new } }

    var received: [Received] { messages.withLock(\.self) }

    var transport: SCEPClient.Transport {
        { request async throws(ProviderError) in
            do {
                return try self.answer(request)
            } catch {
                throw ProviderError(.internal, "The responder failed: \(error)")
            }
        }
    }

    func answer(_ request: HTTPRequest) throws -> HTTPResponse {
        let query = URLComponents(string: request.target)?.queryItems ?? []
        let operation = query.first { $0.name == "operation" }?.value ?? ""
        let behaviour = behaviour.withLock(\.self)
        if let status = behaviour.statuses[operation] { return HTTPResponse(status: status, headers: [:], body: []) }
        let body: [UInt8]
        switch operation {
        case "GetCACaps": body = Array(behaviour.capabilities.utf8)
        case "GetCACert": body = try behaviour.certificates.map(bag) ?? authority.certificate.derRepresentation
        case "GetNextCACert":
            var behaviour = behaviour
            behaviour.signer = behaviour.nextSigner ?? behaviour.signer
            body = try sign(bag([behaviour.next ?? CertifiedKey.impostor.get().certificate]), [], behaviour)
        default:
            let inURL = query.first { $0.name == "message" }?.value.flatMap { Data(base64Encoded: $0) }
            body = behaviour.change(try reply(to: request.method == .post ? request.body : Array(inURL ?? Data())))
        }
        return HTTPResponse(status: 200, headers: [:], body: body)
    }

    func bag(_ certificates: [X509Certificate]) throws -> [UInt8] {
        try OpenSSLCommand.bag(of: certificates)
    }

    func reply(to bytes: [UInt8]) throws -> [UInt8] {
        let message = try read(bytes)
        messages.withLock { $0.append(message) }
        let behaviour = behaviour.withLock { behaviour in
            defer { behaviour.pending -= 1 }
            return behaviour
        }
        var attributes: [String: CMSAttribute.Value?] = [
            SCEPAttribute.messageType: .printableString("3"), SCEPAttribute.senderNonce: .octetString([1, 2, 3]),
            SCEPAttribute.recipientNonce: message.nonce,
            SCEPAttribute.transactionID: .printableString(message.transactionID),
        ]
        if message.type != "20" { waiting.withLock { $0[message.transactionID] = message.content } }
        var content: [UInt8]?
        if behaviour.pending > 0 {
            attributes[SCEPAttribute.pkiStatus] = .printableString("3")
        } else if let failInfo = behaviour.refusedTypes.contains(message.type) ? "2" : behaviour.failInfo {
            attributes[SCEPAttribute.pkiStatus] = .printableString("2")
            attributes[SCEPAttribute.failInfo] = .printableString(failInfo)
        } else {
            attributes[SCEPAttribute.pkiStatus] = .printableString("0")
            let csr = try CertificateSigningRequest(
                derEncoded: waiting.withLock { $0[message.transactionID] ?? [] })
            content = try library.envelopedData(
                bag([authority.issue(csr)]), recipient: behaviour.recipient ?? message.certificate,
                cipher: behaviour.cipher)
        }
        attributes.merge(behaviour.attributes) { $1 }
        return try sign(
            content, attributes.compactMap { type, value in value.map { CMSAttribute(type, $0) } }, behaviour)
    }

    private func sign(_ content: [UInt8]?, _ attributes: [CMSAttribute], _ behaviour: Behaviour) throws -> [UInt8] {
        let signer = behaviour.signer ?? authority
        return try library.signedData(
            content, attributes: attributes, signer: signer.cmsIdentity(in: library), digest: behaviour.digest)
    }

    private func read(_ message: [UInt8]) throws -> Received {
        let certificates = try CertificateBag.certificates(in: message).map(\.derRepresentation)
        let signed = try library.verifySignedData(message, signers: certificates)
        let values = Dictionary(signed.attributes.map { ($0.type, $0.value) }) { first, _ in first }
        func text(_ type: String) -> String {
            if case .printableString(let text) = values[type] { text } else { "" }
        }
        let content = try library.decryptEnvelopedData(signed.content, recipient: reader.cmsIdentity(in: library))
        let cipher = try CMSEnvelope(
            signed.content, for: reader.certificate.derRepresentation,
            accepting: [.aes128CBC, .tripleDESCBC, .desCBC], with: library
        ).cipher
        return Received(
            type: text(SCEPAttribute.messageType), transactionID: text(SCEPAttribute.transactionID),
            nonce: values[SCEPAttribute.senderNonce], digest: signed.digest, cipher: cipher, content: content,
            certificate: certificates.first ?? [])
    }
}
