import CertificateProviding
import Foundation
import NIOCore
import NIOHTTP1
import SwiftASN1

enum ESTOperation: String, CaseIterable, Sendable {
    case cacerts, csrattrs, simpleenroll, simplereenroll, serverkeygen

    var enrols: Bool { self != .cacerts && self != .csrattrs }
}

/// A response before it is written. By hand: a library would not let the faults through.
struct ESTAnswer {
    var status: Int
    var headers: [(name: String, value: String)] = []
    var body: [UInt8] = []

    static func text(_ status: Int, _ text: String, _ headers: [(String, String)] = []) -> ESTAnswer {
        ESTAnswer(status: status, headers: [("Content-Type", "text/plain")] + headers, body: Array("\(text)\n".utf8))
    }

    static let certsOnly = "application/pkcs7-mime; smime-type=certs-only"

    /// A key and its certificates (RFC 7030, section 4.4.2).
    static func multipart(key: [UInt8], certificates: [UInt8]) -> ESTAnswer {
        let boundary = "part-\(UUID().uuidString)"
        var body: [UInt8] = []
        for (type, content) in [("application/pkcs8", key), (certsOnly, certificates)] {
            let head = "--\(boundary)\r\nContent-Type: \(type)\r\nContent-Transfer-Encoding: base64\r\n\r\n"
            body += Array(head.utf8) + content + Array("\r\n".utf8)
        }
        body += Array("--\(boundary)--\r\n".utf8)
        return ESTAnswer(
            status: 200, headers: [("Content-Type", "multipart/mixed; boundary=\(boundary)")], body: body)
    }

    var isLast: Bool { headers.contains { $0.name == "Connection" && $0.value == "close" } }

    /// The announced length of the body.
    enum Framing { case length(Int), chunked, none }

    func head(_ framing: Framing) -> [UInt8] {
        let reason = HTTPResponseStatus(statusCode: status).reasonPhrase
        var lines = ["HTTP/1.1 \(status) \(reason)"] + headers.map { "\($0.name): \($0.value)" }
        switch framing {
        case .length(let length): if status != 204 { lines.append("Content-Length: \(length)") }
        case .chunked: lines.append("Transfer-Encoding: chunked")
        case .none: break
        }
        return Array((lines.joined(separator: "\r\n") + "\r\n\r\n").utf8)
    }

    static func chunk(_ bytes: some Collection<UInt8>) -> [UInt8] {
        Array("\(String(bytes.count, radix: 16))\r\n".utf8) + bytes + Array("\r\n".utf8)
    }

    /// - Parameter isWhole: Whether the last chunk, which is empty, is there.
    static func chunked(_ body: [UInt8], isWhole: Bool = true) -> [UInt8] {
        let chunks = stride(from: 0, to: body.count, by: 100).flatMap { chunk(body[$0..<min($0 + 100, body.count)]) }
        return chunks + (isWhole ? chunk([]) : [])
    }

    /// Applies the faults that are in the headers.
    mutating func distort(by faults: ESTFaults) {
        if faults.has(.created) { status = 201 }
        for index in headers.indices where headers[index].name == "Content-Type" {
            if faults.has(.noSMIMEType) { headers[index].value = String(headers[index].value.prefix { $0 != ";" }) }
            if faults.has(.wrongType) { headers[index].value = "text/html" }
        }
        if let encoding = faults[.encoding] {
            headers.append(("Content-Transfer-Encoding", encoding.isEmpty ? "quoted-printable" : encoding))
        }
        if faults.has(.duplicateStatusHeader) {
            headers += [("Status", "\(status) OK"), ("Status", "\(status) OK")]
        }
        if faults.has(.noKeepAlive) { headers.append(("Connection", "close")) }
    }
}

/// A request that gets no certificate.
struct ESTRefusal: Error {
    var answer: ESTAnswer
    /// Whether it is refused for its credentials.
    var isUnauthenticated = false

    init(_ status: Int, _ text: String, _ headers: [(String, String)] = []) {
        answer = .text(status, text, headers)
    }
}

/// A fault in place of an answer.
struct ESTInterruption: Error { var fault: ESTFault.Name }

/// How bodies are written.
enum ESTEncoding {
    /// Base64 in lines, or what the faults make of it.
    static func body(_ der: [UInt8], _ faults: ESTFaults) -> [UInt8] {
        if faults.has(.emptyBody) { return [] }
        if faults.has(.garbage) { return lines((0..<900).map { _ in UInt8.random(in: 0...255) }, "\n") }
        if faults.has(.notBase64) { return Array("<p>Your request has been received; thank you!</p>\n".utf8) }
        if faults.has(.rawDER) { return der }
        if faults.has(.pem) {
            return Array("-----BEGIN PKCS7-----\n".utf8) + lines(der, "\n") + Array("-----END PKCS7-----\n".utf8)
        }
        if faults.has(.unwrapped) { return Array(Data(der).base64EncodedData()) }
        return lines(der, faults.has(.crlf) ? "\r\n" : "\n") + (faults.has(.trailingNUL) ? [0] : [])
    }

    private static func lines(_ der: [UInt8], _ end: String) -> [UInt8] {
        let text = Array(Data(der).base64EncodedData())
        return stride(from: 0, to: text.count, by: 64).flatMap { text[$0..<min($0 + 64, text.count)] + Array(end.utf8) }
    }

    /// A CMS message with certificates and nothing else (RFC 5272, section 4.1), in this order.
    static func certsOnly(_ certificates: [X509Certificate]) throws -> [UInt8] {
        let explicit = ASN1Identifier(tagWithNumber: 0, tagClass: .contextSpecific)
        var serializer = DER.Serializer()
        try serializer.appendConstructedNode(identifier: .sequence) { coder in
            try coder.serialize([1, 2, 840, 113549, 1, 7, 2] as ASN1ObjectIdentifier)
            try coder.appendConstructedNode(identifier: explicit) { coder in
                try coder.appendConstructedNode(identifier: .sequence) { coder in
                    try coder.serialize(1)
                    coder.appendConstructedNode(identifier: .set) { _ in }
                    try coder.appendConstructedNode(identifier: .sequence) { coder in
                        try coder.serialize([1, 2, 840, 113549, 1, 7, 1] as ASN1ObjectIdentifier)
                    }
                    // Implicitly tagged.
                    coder.appendConstructedNode(identifier: explicit) { coder in
                        for certificate in certificates { coder.serializeRawBytes(certificate.derRepresentation) }
                    }
                    coder.appendConstructedNode(identifier: .set) { _ in }
                }
            }
        }
        return serializer.serializedBytes
    }
}
