import CertificateProviding
import Crypto
import CryptoExtras
import Foundation
import SwiftASN1

/// Assembles PKCS#12 files piece by piece, good ones and such as no tool would write. The content is not encrypted, so that a
/// changed byte reaches the innermost structure.
struct PFXBuilder {
    /// Whether everything constructed has an indefinite length, and octet strings come in chunks (X.690, section 8).
    var isIndefinite = false

    // MARK: DER

    static func element(_ tag: UInt8, _ content: [UInt8]) -> [UInt8] {
        if content.count < 0x80 { return [tag, UInt8(content.count)] + content }
        var length = content.count
        var digits: [UInt8] = []
        while length > 0 {
            digits.insert(UInt8(length & 0xff), at: 0)
            length >>= 8
        }
        return [tag, 0x80 | UInt8(digits.count)] + digits + content
    }

    static func oid(_ identifier: ASN1ObjectIdentifier) -> [UInt8] {
        var serializer = DER.Serializer()
        try? serializer.serialize(identifier)
        return serializer.serializedBytes
    }

    static func integer(_ value: Int) -> [UInt8] {
        var serializer = DER.Serializer()
        try? serializer.serialize(value)
        return serializer.serializedBytes
    }

    func constructed(_ tag: UInt8, _ parts: [[UInt8]]) -> [UInt8] {
        let content = parts.reduce(into: []) { $0 += $1 }
        return isIndefinite ? [tag, 0x80] + content + [0, 0] : Self.element(tag, content)
    }

    func sequence(_ parts: [UInt8]...) -> [UInt8] { constructed(0x30, parts) }
    func explicit(_ content: [UInt8]) -> [UInt8] { constructed(0xa0, [content]) }

    func octets(_ bytes: [UInt8]) -> [UInt8] {
        guard isIndefinite else { return Self.element(0x04, bytes) }
        let chunks = stride(from: 0, to: bytes.count, by: 100).map { start in
            Self.element(0x04, Array(bytes[start..<min(bytes.count, start + 100)]))
        }
        return constructed(0x24, chunks)
    }

    // MARK: Bags

    func bag(
        _ type: ASN1ObjectIdentifier, _ value: [UInt8], name: String? = nil, id: [UInt8]? = nil
    ) -> [UInt8] {
        var attributes: [[UInt8]] = []
        if let name {
            let units = name.utf16.flatMap { [UInt8($0 >> 8), UInt8($0 & 0xff)] }
            attributes.append(
                sequence(
                    Self.oid([1, 2, 840, 113549, 1, 9, 20]), constructed(0x31, [Self.element(0x1e, Array(units))])))
        }
        if let id {
            attributes.append(sequence(Self.oid([1, 2, 840, 113549, 1, 9, 21]), constructed(0x31, [octets(id)])))
        }
        let parts = [Self.oid(type), explicit(value)] + (attributes.isEmpty ? [] : [constructed(0x31, attributes)])
        return constructed(0x30, parts)
    }

    func key(_ pkcs8: [UInt8], name: String? = nil, id: [UInt8]? = nil) -> [UInt8] {
        bag([1, 2, 840, 113549, 1, 12, 10, 1, 1], pkcs8, name: name, id: id)
    }

    func certificate(_ certificate: X509Certificate, name: String? = nil, id: [UInt8]? = nil) -> [UInt8] {
        certificateBag(certificate.derRepresentation, name: name, id: id)
    }

    func certificateBag(_ der: [UInt8], name: String? = nil, id: [UInt8]? = nil) -> [UInt8] {
        let value = sequence(Self.oid([1, 2, 840, 113549, 1, 9, 22, 1]), explicit(octets(der)))
        return bag([1, 2, 840, 113549, 1, 12, 10, 1, 3], value, name: name, id: id)
    }

    /// Safe contents inside safe contents.
    func nested(_ bags: [[UInt8]], depth: Int = 1) -> [UInt8] {
        var bags = bags
        for _ in 0..<depth { bags = [bag([1, 2, 840, 113549, 1, 12, 10, 1, 6], constructed(0x30, bags))] }
        return Array(bags.joined())
    }

    /// The bags of an identity: its key and its chain, not encrypted.
    func bags(of identity: Identity, name: String? = nil, id: [UInt8]? = nil) throws -> [[UInt8]] {
        let certificates = identity.certificateChain.enumerated().map { index, certificate in
            self.certificate(certificate, name: index == 0 ? name : nil, id: index == 0 ? id : nil)
        }
        return [key(try identity.pkcs8, name: name, id: id)] + certificates
    }

    // MARK: The file

    func data(_ bags: [[UInt8]]) -> [UInt8] {
        sequence(Self.oid([1, 2, 840, 113549, 1, 7, 1]), explicit(octets(constructed(0x30, bags))))
    }

    /// A part that is encrypted as `algorithm`, an `AlgorithmIdentifier`, says.
    func encrypted(algorithm: [UInt8], ciphertext: [UInt8] = [UInt8](repeating: 7, count: 32)) -> [UInt8] {
        let info = sequence(Self.oid([1, 2, 840, 113549, 1, 7, 1]), algorithm, Self.element(0x80, ciphertext))
        return sequence(Self.oid([1, 2, 840, 113549, 1, 7, 6]), explicit(sequence(Self.integer(0), info)))
    }

    /// - Parameter mac: Makes `MacData` for the content.
    func file(parts: [[UInt8]], mac: (([UInt8]) throws -> [UInt8])? = nil) rethrows -> [UInt8] {
        let content = constructed(0x30, parts)
        let authSafe = sequence(Self.oid([1, 2, 840, 113549, 1, 7, 1]), explicit(octets(content)))
        return constructed(0x30, [Self.integer(3), authSafe] + (try mac.map { [try $0(content)] } ?? []))
    }

    func file(_ bags: [[UInt8]]) -> [UInt8] { file(parts: [data(bags)]) }

    /// `MacData` with the PKCS#12 derivation, whose value is wrong.
    func macData(iterations: [UInt8]) -> [UInt8] {
        let sha256 = sequence(Self.oid([2, 16, 840, 1, 101, 3, 4, 2, 1]), [5, 0])
        return sequence(
            sequence(sha256, octets([UInt8](repeating: 0, count: 32))), octets(Array("saltsalt".utf8)), iterations)
    }
}

/// The parameters of PBMAC1 (RFC 9879), right ones unless a test says otherwise.
struct PBMAC1 {
    static let hmacSHA256: ASN1ObjectIdentifier = [1, 2, 840, 113549, 2, 9]
    var salt = PFXBuilder.element(0x04, Array("salt".utf8))
    var iterations = PFXBuilder.integer(1000)
    var keySize: [UInt8]? = PFXBuilder.integer(32)
    var derivation: ASN1ObjectIdentifier = [1, 2, 840, 113549, 1, 5, 12]
    var prf: ASN1ObjectIdentifier? = Self.hmacSHA256
    var authentication: ASN1ObjectIdentifier = Self.hmacSHA256
    var isDamaged = false

    func macData(_ content: [UInt8], password: String) throws -> [UInt8] {
        let builder = PFXBuilder()
        let key = try KDF.Insecure.PBKDF2.deriveKey(
            from: Array(password.utf8), salt: Array("salt".utf8), using: .sha256, outputByteCount: 32,
            unsafeUncheckedRounds: 1000)
        var value = Array(HMAC<SHA256>.authenticationCode(for: content, using: key))
        if isDamaged { value[0] ^= 1 }
        let parts = [salt, iterations] + (keySize.map { [$0] } ?? [])
        let prf = prf.map { [builder.sequence(PFXBuilder.oid($0), [5, 0])] } ?? []
        let parameters = builder.sequence(
            builder.sequence(PFXBuilder.oid(derivation), builder.constructed(0x30, parts + prf)),
            builder.sequence(PFXBuilder.oid(authentication), [5, 0]))
        let algorithm = builder.sequence(PFXBuilder.oid([1, 2, 840, 113549, 1, 5, 14]), parameters)
        return builder.sequence(
            builder.sequence(algorithm, builder.octets(value)), builder.octets(Array("unused".utf8)),
            PFXBuilder.integer(1))
    }
}
