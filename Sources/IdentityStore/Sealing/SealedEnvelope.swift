import CertificateProviding
import Crypto
import FoundationEssentials

/// The format of a sealed file: a plain header, and the content encrypted with AES-256-GCM.
///
///     offset  size
///     0       8     "certprov"
///     8       1     format version, 1
///     9       8     identifier of the key
///     17      12    nonce
///     29      n     ciphertext
///     29+n    16    tag
///
/// The header and the entry's full name are authenticated, so that a file is not accepted as another entry.
enum SealedEnvelope {
    static let magic = Array("certprov".utf8)
    static let version: UInt8 = 1
    private static let headerSize = 17
    private static let overhead = headerSize + 12 + 16

    enum Failure: Error {
        case notSealed
        case newerVersion(UInt8)
        case otherKey
        case damaged
    }

    /// Returns the format version of a sealed file; `nil` for another file.
    static func version(of bytes: [UInt8]) -> UInt8? {
        bytes.count > magic.count && bytes.starts(with: magic) ? bytes[magic.count] : nil
    }

    static func seal(_ content: SecretBytes, name: String, key: SealingKey) throws -> [UInt8] {
        let header = magic + [version] + key.identifier
        let box = try content.withUnsafeBytes { bytes in
            try AES.GCM.seal(bytes, using: key.key, authenticating: header + Array(name.utf8))
        }
        return header + Array(box.nonce) + Array(box.ciphertext) + Array(box.tag)
    }

    static func open(_ bytes: [UInt8], name: String, key: SealingKey) throws -> SecretBytes {
        guard let found = version(of: bytes) else { throw Failure.notSealed }
        guard found <= version else { throw Failure.newerVersion(found) }
        guard found == version, bytes.count >= overhead else { throw Failure.damaged }
        guard Array(bytes[9..<17]) == key.identifier else { throw Failure.otherKey }
        let header = Array(bytes[..<headerSize])
        do {
            let box = try AES.GCM.SealedBox(combined: bytes[headerSize...])
            var content = try AES.GCM.open(box, using: key.key, authenticating: header + Array(name.utf8))
            defer { content.resetBytes(in: 0..<content.count) }
            return SecretBytes(copying: content)
        } catch {
            throw Failure.damaged
        }
    }
}

/// The AES key derived from the key material, and an identifier that reveals nothing about it.
struct SealingKey: Sendable {
    let key: SymmetricKey
    let identifier: [UInt8]

    init(_ material: SecretBytes) {
        let input = material.withUnsafeBytes { SymmetricKey(data: $0) }
        key = HKDF<SHA256>.deriveKey(
            inputKeyMaterial: input, info: Array("certprov identity store, sealing key".utf8), outputByteCount: 32)
        identifier = HKDF<SHA256>.deriveKey(
            inputKeyMaterial: input, info: Array("certprov identity store, key identifier".utf8), outputByteCount: 8
        ).withUnsafeBytes { Array($0) }
    }
}
