import CertificateProviding
import Crypto
import Foundation
import NIOHTTP1
import SwiftASN1
import Synchronization
import X509

@testable import ProviderTransport

/// A request as a responder has seen it.
struct ESTRequest: Sendable {
    enum Binding { case absent, matched, mismatched }

    let connection: Int
    let path: String
    /// The scheme of the credentials.
    var authorization: String?
    var operation: ESTOperation?
    var user: String?
    /// The subject of the client's certificate.
    var clientCertificate: String?
    var csrSubject: String?
    var csrSHA256: String?
    var csrKeySHA256: String?
    /// With TLS 1.3 only.
    var binding: Binding?
    /// `nil` where a fault sends none.
    var status: Int?
    /// The serial number of the issued certificate.
    var serial: String?
}

/// A responder's answer to a request.
struct ESTReply {
    enum Outcome {
        case answer(ESTAnswer)
        case interruption(ESTFault.Name)
    }
    var outcome: Outcome
    var faults: ESTFaults
}

extension ESTFaults {
    static var none: ESTFaults { ESTFaults([], of: .cacerts) { _ in false } }
}

/// The other end of a connection.
struct ESTClientEnd {
    let connection: Int
    let certificate: X509Certificate?
    let binding: ChannelBinding
}

extension ESTResponder {
    /// Answers a request. It is in the log before any of the answer is sent.
    func respond(to request: HTTPRequest, _ client: ESTClientEnd) -> ESTReply {
        var record = ESTRequest(connection: client.connection, path: request.target)
        let authorization = request.headers.first(name: "Authorization") ?? ""
        record.authorization = authorization.isEmpty ? nil : String(authorization.prefix { $0 != " " })
        record.clientCertificate = client.certificate?.subject
        var faults = ESTFaults.none
        var reply: ESTReply
        do {
            let (operation, label) = try Self.route(request)
            record.operation = operation
            if let status = options.ownClientStatus, operation.enrols || status == 400,
                let shown = client.certificate, state.withLock({ $0.issued.contains(shown) })
            {
                throw ESTRefusal(status, "This certificate is not accepted.")
            }
            faults = try self.faults(
                label.isEmpty && !options.fault.isEmpty ? "fault-\(options.fault)" : label, operation)
            var answer = try answer(request, operation, client, faults, &record)
            answer.distort(by: faults)
            reply = ESTReply(outcome: .answer(answer), faults: faults)
        } catch let refusal as ESTRefusal {
            if refusal.isUnauthenticated { faults.keepOnly(.closeAfterAnswer) }
            reply = ESTReply(outcome: .answer(refusal.answer), faults: faults)
        } catch let interruption as ESTInterruption {
            reply = ESTReply(outcome: .interruption(interruption.fault), faults: faults)
        } catch {
            reply = ESTReply(outcome: .answer(.text(500, "The responder has a defect: \(error)")), faults: faults)
        }
        if case .answer(var answer) = reply.outcome {
            record.status = answer.status
            if !answer.isLast {
                let isWished = request.headers[canonicalForm: "Connection"].allSatisfy { $0.lowercased() != "close" }
                if !isWished {
                    answer.headers.append(("Connection", "close"))
                } else if !faults.has(.closeAfterAnswer) {
                    // As nginx, Apache and Node say it, though HTTP/1.1 means it anyway.
                    answer.headers.append(("Connection", "keep-alive"))
                }
            }
            reply.outcome = .answer(answer)
        }
        state.withLock { $0.requests.append(record) }
        return reply
    }

    private static func route(_ request: HTTPRequest) throws -> (ESTOperation, label: String) {
        let path = request.target.split(separator: "/", omittingEmptySubsequences: false).map(String.init)
        guard path.starts(with: ["", ".well-known", "est"]), (4...5).contains(path.count),
            let operation = path.last.flatMap(ESTOperation.init(rawValue:))
        else { throw ESTRefusal(404, "There is nothing here.") }
        guard request.method == (operation.enrols ? .post : .get) else {
            throw ESTRefusal(405, "That takes the other method.")
        }
        return (operation, path.count == 5 ? path[3] : "")
    }

    private func faults(_ label: String, _ operation: ESTOperation) throws -> ESTFaults {
        guard let faults = ESTFault.all(in: label) else {
            throw ESTRefusal(404, "The label \(label) names no known fault.")
        }
        return ESTFaults(faults, of: operation) { [self] fault in
            state.withLock { state in
                state.plays["\(label) \(fault.name)", default: 0] += 1
                return state.plays["\(label) \(fault.name)", default: 0] <= fault.times ?? 0
            }
        }
    }

    private func answer(
        _ request: HTTPRequest, _ operation: ESTOperation, _ client: ESTClientEnd, _ faults: ESTFaults,
        _ record: inout ESTRequest
    ) throws -> ESTAnswer {
        if operation.enrols || operation == .csrattrs && options.authenticatesWishes {
            record.user = try state.withLock { state throws(ESTRefusal) in
                try state.credentials.check(request, for: operation, isCertified: client.certificate != nil)
            }
        }
        guard operation.enrols else {
            try Self.interrupt(request, operation, faults)
            return try operation == .cacerts ? authorities(faults) : wishes(faults)
        }
        let (csr, der) = try Self.csr(in: request, &record)
        try check(csr, operation, client, &record)
        try Self.interrupt(request, operation, faults)
        return try pending(csr, der, faults, record) ?? enrol(csr, operation, client, faults, &record)
    }

    /// Ends a request where a fault says so. Nothing has been issued then.
    private static func interrupt(_ request: HTTPRequest, _ operation: ESTOperation, _ faults: ESTFaults) throws {
        for name in [ESTFault.Name.hang, .halfClose, .closeAfterRequest] where faults.has(name) {
            throw ESTInterruption(fault: name)
        }
        if let status = faults[.status] {
            let later = ESTFault.retryAfter(in: status).flatMap { ESTPending.retryAfter($0) }
            throw ESTRefusal(
                Int(status.prefix(3)) ?? 500, "The certification authority is out of order.",
                later.map { [("Retry-After", $0)] } ?? [])
        }
        if faults.has(.tooMany) { throw ESTRefusal(429, "Too many requests.", [("Retry-After", "1")]) }
        if let redirect = faults[.redirect] {
            let parts = redirect.split(separator: "-")
            let host = request.headers.first(name: "Host") ?? ""
            let path = "/.well-known/est/\(operation.rawValue)"
            let target =
                switch parts.last {
                case "same": "https://\(host)\(path)"
                case "http": "http://\(host)\(path)"
                case "other": "https://\(host.replacing("localhost", with: "127.0.0.1"))\(path)"
                default: request.target
                }
            throw ESTRefusal(Int(parts[0]) ?? 500, "It is elsewhere.", [("Location", target)])
        }
    }

    private func authorities(_ faults: ESTFaults) throws -> ESTAnswer {
        var certificates = authority.certificates
        if state.withLock(\.isRolledOver) || faults.has(.rollover) {
            let successor = try successor()
            let links = options.linksRoots ? try authority.links(to: successor) : []
            certificates = successor.certificates + links + certificates
        }
        let bag = faults.has(.emptyBag) ? [] : Array(certificates.reversed())
        return ESTAnswer(
            status: 200, headers: [("Content-Type", ESTAnswer.certsOnly)],
            body: ESTEncoding.body(try ESTEncoding.certsOnly(bag), faults))
    }

    private func wishes(_ faults: ESTFaults) throws -> ESTAnswer {
        guard let wishes = try wishes.encoded() else { return ESTAnswer(status: 204) }
        return ESTAnswer(
            status: 200, headers: [("Content-Type", "application/csrattrs")], body: ESTEncoding.body(wishes, faults))
    }

    private static func csr(
        in request: HTTPRequest, _ record: inout ESTRequest
    ) throws -> (CertificateSigningRequest, der: [UInt8]) {
        guard request.headers.first(name: "Content-Type")?.prefix(while: { $0 != ";" }) == "application/pkcs10" else {
            throw ESTRefusal(415, "The body is to be application/pkcs10.")
        }
        let text = request.body.filter { !Array("\r\n\t ".utf8).contains($0) }
        guard let der = Data(base64Encoded: Data(text)).map(Array.init),
            let csr = try? CertificateSigningRequest(derEncoded: der)
        else { throw ESTRefusal(400, "The body is not a CSR in base64.") }
        record.csrSHA256 = Array(SHA256.hash(data: der)).hexEncoded
        record.csrKeySHA256 = Array(SHA256.hash(data: csr.publicKey.subjectPublicKeyInfoBytes)).hexEncoded
        record.csrSubject = "\(csr.subject)"
        guard csr.publicKey.isValidSignature(csr.signature, for: csr) else {
            throw ESTRefusal(400, "The CSR's signature is not its key's.")
        }
        let isNamed = try !csr.subject.isEmpty || csr.alternativeNames != nil
        guard isNamed else { throw ESTRefusal(400, "The CSR has neither a subject nor an alternative name.") }
        return (csr, der)
    }

    private func check(
        _ csr: CertificateSigningRequest, _ operation: ESTOperation, _ client: ESTClientEnd, _ record: inout ESTRequest
    ) throws {
        if let binding = client.binding.value {
            record.binding = try csr.binding(to: binding)
            if record.binding == .mismatched { throw ESTRefusal(400, "The CSR is bound to another connection.") }
        }
        if operation == .simplereenroll {
            // A certificate of another authority may ask for a first one of ours, but there is nothing to renew.
            guard let current = client.certificate, state.withLock({ $0.issued.contains(current) }) else {
                throw ESTRefusal(403, "The client certificate was not issued here.")
            }
            // Byte for byte: equal names may be of other string types.
            var serializer = DER.Serializer()
            try serializer.serialize(csr.subject)
            let names = try current.certificate().extensions.subjectAlternativeNames
            guard serializer.serializedBytes == current.subjectDER, try csr.alternativeNames == names else {
                throw ESTRefusal(400, "Subject and alternative names are to be those of the client certificate.")
            }
        }
        if options.enforcesWishes, let unmet = try wishes.unmet(by: csr) { throw ESTRefusal(400, unmet) }
    }

    private func pending(
        _ csr: CertificateSigningRequest, _ der: [UInt8], _ faults: ESTFaults, _ record: ESTRequest
    ) throws -> ESTAnswer? {
        let fault = faults[.pending]
        let count = fault.flatMap { Int($0.prefix { $0 != "-" }) } ?? options.pending
        let key = record.csrKeySHA256 ?? ""
        guard count > 0, state.withLock({ $0.pending.waits(csr, der, key: key, count: count) }) else { return nil }
        let later = ESTPending.retryAfter(fault.flatMap { ESTFault.retryAfter(in: $0) } ?? options.retryAfter)
        return ESTAnswer(status: 202, headers: later.map { [("Retry-After", $0)] } ?? [])
    }
}

extension CertificateSigningRequest {
    var alternativeNames: SubjectAlternativeNames? {
        get throws { try attributes.extensionRequest?.extensions.subjectAlternativeNames }
    }

    /// Compares the challenge password with a connection's binding (RFC 7030, section 3.5).
    fileprivate func binding(to binding: [UInt8]) throws -> ESTRequest.Binding {
        guard let value = attributes[oid: ESTWishes.challengePassword]?.values.first else { return .absent }
        let password = try ASN1PrintableString(asn1Any: value)
        return String(password) == Data(binding).base64EncodedString() ? .matched : .mismatched
    }
}
