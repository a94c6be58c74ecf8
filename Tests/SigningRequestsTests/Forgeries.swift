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
