import CertificateProviding
import Foundation
import SwiftASN1
import TestSupport

/// A key that signs whatever it is given, as a filter that lets everything pass would.
struct RawSigner {
    let identity: Identity

    /// With a certificate that NSS takes: serial numbers have at most 20 bytes (RFC 5280, section 4.1.2.2).
    init(_ authority: TestAuthority) throws {
        var identity = try authority.issue("raw")
        while identity.certificate.serialNumber.count > 20 { identity = try authority.issue("raw") }
        self.identity = identity
    }

    func sign(_ message: [UInt8]) async throws -> [UInt8] {
        try await identity.key.signature(for: message, using: .ecdsaP256SHA256)
    }

    /// Writes the private key as DER.
    func writeKey(to folder: TemporaryDirectory, _ name: String) throws {
        let pkcs8 = try identity.key.exporter?.pkcs8Representation()
        try folder.write(pkcs8?.withUnsafeBytes { Array($0) } ?? [], to: name)
    }

    /// Replaces the signature of a certificate, a request, a list or a response, and its content too.
    func resign(_ structure: [UInt8], content: [UInt8]? = nil) async throws -> (structure: [UInt8], content: [UInt8]) {
        let parts = try DERText.elements(structure)
        let content = content ?? parts[0]
        let signature = DERText.value(0x03, [0] + (try await sign(content)))
        return (DERText.value(0x30, content, parts[1], signature, parts.dropFirst(3).flatMap(\.self)), content)
    }
}

enum DERText {
    static func value(_ tag: UInt8, _ parts: [UInt8]...) -> [UInt8] {
        let content = parts.flatMap(\.self)
        let count = content.count
        let length: [UInt8] =
            count < 0x80
            ? [UInt8(count)] : count < 0x100 ? [0x81, UInt8(count)] : [0x82, UInt8(count >> 8), UInt8(count & 0xff)]
        return [tag] + length + content
    }

    /// The elements in a constructed one.
    static func elements(_ bytes: [UInt8]) throws -> [[UInt8]] {
        guard case .constructed(let nodes) = try DER.parse(bytes).content else { return [] }
        return nodes.map { Array($0.encodedBytes) }
    }

    /// The content of an element.
    static func content(_ bytes: [UInt8]) throws -> [UInt8] {
        switch try DER.parse(bytes).content {
        case .primitive(let content): Array(content)
        case .constructed(let nodes): nodes.flatMap { Array($0.encodedBytes) }
        }
    }

    static let ecdsaWithSHA256: [UInt8] = [0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02]
}

/// The wire format of SSH (RFC 4251, section 5).
enum SSH {
    static func string(_ bytes: [UInt8]) -> [UInt8] { bigEndian(bytes.count, 4) + bytes }
    static func string(_ text: String) -> [UInt8] { string(Array(text.utf8)) }
    static let type = "ecdsa-sha2-nistp256"

    static func publicKey(_ key: PublicKeyInfo) -> [UInt8] { string(type) + string("nistp256") + string(key.keyBits) }

    /// An INTEGER of DER has the form of an mpint.
    static func signature(_ der: [UInt8]) throws -> [UInt8] {
        let numbers = try DERText.elements(der).map { string(try DERText.content($0)) }
        return string(type) + string(numbers.flatMap(\.self))
    }

    /// RFC 4252, section 7.
    static func authentication(_ key: PublicKeyInfo, session: [UInt8]) -> [UInt8] {
        string(session) + [50] + string("jean") + string("ssh-connection") + string("publickey") + [1] + string(type)
            + string(publicKey(key))
    }

    /// Section 9.
    static func hostAuthentication(_ key: PublicKeyInfo, session: [UInt8]) -> [UInt8] {
        string(session) + [50] + string("jean") + string("ssh-connection") + string("hostbased") + string(type)
            + string(publicKey(key)) + string("host.example") + string("jean")
    }
}

func bigEndian(_ number: Int, _ count: Int) -> [UInt8] {
    (0..<count).reversed().map { UInt8(truncatingIfNeeded: number >> ($0 * 8)) }
}

/// The bytes that TLS 1.2 signs, in forms that no handshake of ours has.
enum OldHandshake {
    static let random = [UInt8](repeating: 0xa5, count: 32)

    static func message(_ type: UInt8, _ body: [UInt8]) -> [UInt8] { [type] + bigEndian(body.count, 3) + body }

    static let hello: [UInt8] = [3, 3] + random + [0, 0, 2, 0xc0, 0x2b, 1, 0]
    static let rest = message(2, [3, 3] + random + [0, 0xc0, 0x2b, 0]) + message(11, [0, 0, 0]) + message(14, [])

    static let tls = message(1, hello) + rest

    static let datagram: [UInt8] =
        datagramMessage(1, 0, hello)
        + datagramMessage(2, 1, [0xfe, 0xfd] + random + [0, 0xc0, 0x2b, 0]) + datagramMessage(14, 2, [])

    /// RFC 6347, section 4.2.2.
    private static func datagramMessage(_ type: UInt8, _ number: Int, _ body: [UInt8]) -> [UInt8] {
        let count = bigEndian(body.count, 3)
        return [type] + count + bigEndian(number, 2) + [0, 0, 0] + count + body
    }

    /// RFC 5246, appendix E.2.
    static let version2: [UInt8] = {
        let lengths = bigEndian(3, 2) + bigEndian(0, 2) + bigEndian(32, 2)
        return [1, 3, 3] + lengths + [0, 0xc0, 0x2b] + random + rest
    }()

    static func parameters(_ bytes: [UInt8]...) -> [UInt8] { random + random + bytes.flatMap(\.self) }

    static func vector(_ count: Int, size: Int = 1) -> [UInt8] {
        bigEndian(count, size) + [UInt8](repeating: 4, count: count)
    }

    static let keyExchanges: [[UInt8]] = [
        parameters([3, 0, 23], vector(65)), parameters([3, 0, 29], vector(32)), parameters([3, 0, 24], vector(97)),
        parameters([3, 0, 23], vector(33)), parameters([3, 0xfe, 1], vector(65)),
        // A curve with its parameters: prime, a, b, base, order, cofactor; and one of characteristic 2.
        parameters([1], vector(32), vector(32), vector(32), vector(65), vector(32), vector(1), vector(65)),
        parameters([2, 1, 0x1b, 1], vector(1), vector(32), vector(32), vector(65), vector(32), vector(1), vector(65)),
        parameters(
            [2, 1, 0x1b, 2], vector(1), vector(1), vector(1), vector(32), vector(32), vector(65), vector(32), vector(1),
            vector(65)),
        parameters(vector(256, size: 2), vector(1, size: 2), vector(256, size: 2)),
    ]
}

/// Contents of signatures in other protocols, by their standards, and a word of the refusal of each.
enum OtherProtocols {
    static let contents: [([UInt8], String)] = {
        var contents: [([UInt8], String)] = [
            (ike([UInt8](repeating: 0x5a, count: 100), length: 60), "IKE"),
            (ike([1], length: 28, version: 0x10), "IKE"),
            ([0xff] + Array("TCG".utf8) + [0x80, 0x18], "TPM"), ([0x7f] + Array("ELF".utf8), "program"),
            ([0x18] + Array("MLS 1.0 FramedContentTBS".utf8), "MLS"),
        ]
        // Signature1, and Signature in the forms of array and text that CBOR has.
        let signature = Array("Signature".utf8)
        contents += [
            [0x84, 0x6a] + signature + [0x31, 0x43, 0xa1, 0x01, 0x26, 0x40, 0x40],
            [0x85, 0x69] + signature + [0x40, 0x43, 0xa1, 0x01, 0x26, 0x40, 0x40],
            [0x98, 5, 0x78, 9] + signature, [0x9f, 0x7f, 0x69] + signature,
            [0x85, 0x70] + Array("Counter".utf8) + signature + [0x40],
        ].map { ($0, "COSE") }
        contents += [4, 5, 6].map { (openPGP(version: $0), "OpenPGP") }
        contents.append(([0x99, 0, 6, 4, 0, 0, 0, 0, 19, 0x13, 0, 0, 0, 0], "OpenPGP"))
        let xml = "http://www.w3.org/2000/09/xmldsig#"
        let texts: [(String, String)] = [
            ("<SignedInfo xmlns=\"\(xml)\"></SignedInfo>", "XML"), ("<ds:SignedInfo xmlns:ds=\"\(xml)\">", "XML"),
            ("<\u{e9}\u{300}:SignedInfo\txmlns:\u{e9}\u{300}=\"\(xml)\">", "XML"),
            ("eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhZG1pbiJ9", "JSON"), (".eyJzdWIiOiJhZG1pbiJ9", "JSON"),
            ("eyJhbGciOiJFUzI1NiIsImI2NCI6ZmFsc2UsImNyaXQiOlsiYjY0Il19.I owe you.", "JSON"),
            ("e\u{1}yJh bGciOiJFUzI1NiJ9.eyJzdWIiOiJhZG1pbiJ9", "JSON"),
            ("SAMLResponse=x&SigAlg=y", "SAML"), ("SAMLRequest=x&SigAlg=y", "SAML"),
            ("\"@method\": POST\n\"@signature-params\": (\"@method\")", "HTTP"),
            ("(request-target): post /\nhost: a", "HTTP"),
            ("AWS4-X509-ECDSA-SHA256\n20261129T120000Z\n", "AWS"), ("DSSEv1 1 x 1 y", "DSSE"),
            (#"{"_type":"Root","consistent_snapshot":true}"#, "TUF"), (#"{"critical":{"identity":{}}}"#, "container"),
            ("FSVerity\u{1}\0\u{20}\0", "fs-verity"), ("Signature-Version: 1.0\r\n", "JAR"),
            ("\n\u{1}-----BEGIN CERTIFICATE-----\n", "PEM"),
        ]
        contents += texts.map { (Array($0.0.utf8), $0.1) }
        contents.append((Array("<SignedInfo>".utf16).flatMap { bigEndian(Int($0), 2) }, "XML"))
        return contents
    }()

    /// IKE_SA_INIT, and a nonce and a digest behind it.
    static func ike(_ rest: [UInt8], length: Int, version: UInt8 = 0x20) -> [UInt8] {
        [UInt8](repeating: 0x11, count: 16) + [33, version, 34, 8] + bigEndian(0, 4) + bigEndian(length, 4) + rest
    }

    /// A text and the hashed part of its signature, with a time and an issuer.
    static func openPGP(version: UInt8, length: Int? = nil) -> [UInt8] {
        let time: [UInt8] = [5, 2, 0x69, 0x2a, 0, 0]
        let hashed: [UInt8] = [version, 0, 19, 8] + bigEndian(time.count, version == 6 ? 4 : 2) + time
        let size = bigEndian(length ?? hashed.count, version == 5 ? 8 : 4)
        return Array("I owe you\n".utf8) + hashed + [version, 0xff] + size
    }
}
