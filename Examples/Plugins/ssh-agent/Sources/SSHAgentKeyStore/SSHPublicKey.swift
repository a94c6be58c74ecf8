import CertificateProviding
import Crypto
import FoundationEssentials

/// A type of key that an agent can sign with for TLS, by its name in SSH.
enum SSHKeyType: String, CaseIterable {
    case p256 = "ecdsa-sha2-nistp256"
    case p384 = "ecdsa-sha2-nistp384"
    case p521 = "ecdsa-sha2-nistp521"
    case ed25519 = "ssh-ed25519"

    var keyType: KeyType {
        switch self {
        case .p256: .p256
        case .p384: .p384
        case .p521: .p521
        case .ed25519: .ed25519
        }
    }

    /// The agent hashes a message as this scheme does (RFC 5656, section 6.2.1).
    var scheme: SignatureScheme {
        switch self {
        case .p256: .ecdsaP256SHA256
        case .p384: .ecdsaP384SHA384
        case .p521: .ecdsaP521SHA512
        case .ed25519: .ed25519
        }
    }

    /// `nil` for Ed25519.
    var curve: String? { self == .ed25519 ? nil : String(rawValue.suffix(8)) }

    /// Returns the `SubjectPublicKeyInfo` of a point or of an Ed25519 key.
    fileprivate func info(_ key: ArraySlice<UInt8>) throws -> PublicKeyInfo {
        let der =
            switch self {
            case .p256: try P256.Signing.PublicKey(x963Representation: key).derRepresentation
            case .p384: try P384.Signing.PublicKey(x963Representation: key).derRepresentation
            case .p521: try P521.Signing.PublicKey(x963Representation: key).derRepresentation
            // RFC 8410, section 4.
            case .ed25519:
                Data([0x30, 42, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 33, 0])
                    + (try Curve25519.Signing.PublicKey(rawRepresentation: key).rawRepresentation)
            }
        return try PublicKeyInfo(derRepresentation: der)
    }

    /// Returns a signature as TLS has it: ECDSA as DER, Ed25519 as it is.
    ///
    /// - Parameter blob: Of the agent. ECDSA: r and s (RFC 5656, section 3.1.2).
    func signature(_ blob: ArraySlice<UInt8>) throws -> [UInt8] {
        switch self {
        case .p256: [UInt8](try P256.Signing.ECDSASignature(rawRepresentation: rs(blob, 32)).derRepresentation)
        case .p384: [UInt8](try P384.Signing.ECDSASignature(rawRepresentation: rs(blob, 48)).derRepresentation)
        case .p521: [UInt8](try P521.Signing.ECDSASignature(rawRepresentation: rs(blob, 66)).derRepresentation)
        case .ed25519: [UInt8](blob)
        }
    }

    /// Returns r and s with `size` bytes each.
    private func rs(_ blob: ArraySlice<UInt8>, _ size: Int) throws -> [UInt8] {
        var reader = SSHReader(blob)
        return try (0..<2).flatMap { _ in
            let number = try reader.string().drop { $0 == 0 }
            guard number.count <= size else { throw SSHReader.malformed }
            return [UInt8](repeating: 0, count: size - number.count) + number
        }
    }
}

/// A public key, as X.509 and as SSH has it.
struct SSHPublicKey: Sendable {
    let type: SSHKeyType
    let info: PublicKeyInfo
    /// RFC 4253, section 6.6; RFC 5656, section 3.1; RFC 8709, section 4.
    let blob: [UInt8]

    /// Returns `nil` for a key that agents cannot sign with for TLS.
    init?(_ info: PublicKeyInfo) {
        guard let type = SSHKeyType.allCases.first(where: { $0.keyType.fits(info) }) else { return nil }
        (self.type, self.info) = (type, info)
        blob = [type.rawValue, type.curve].compactMap(\.self).flatMap { $0.utf8.sshString } + info.keyBits.sshString
    }

    /// Returns `nil` for a key of another type, and for a damaged one.
    init?(blob: [UInt8]) {
        var reader = SSHReader(blob[...])
        guard let name = try? reader.string(), let type = SSHKeyType(rawValue: String(decoding: name, as: UTF8.self)),
            type.curve == nil || (try? reader.string()) != nil,
            let key = try? reader.string(), let info = try? type.info(key), let same = Self(info), same.blob == blob
        else { return nil }
        self = same
    }

    /// `ssh-agent:` and the fingerprint, as `ssh-add -l` and `ssh-keygen -l` show it.
    var uri: String {
        Self.uriPrefix + Data(SHA256.hash(data: blob)).base64EncodedString().prefix { $0 != "=" }
    }

    private static let uriPrefix = "ssh-agent:SHA256:"

    static func isURI(_ uri: String) -> Bool {
        uri.hasPrefix(uriPrefix) && uri.utf8.count == uriPrefix.utf8.count + 43
            && Data(base64Encoded: uri.dropFirst(uriPrefix.count) + "=") != nil
    }
}
