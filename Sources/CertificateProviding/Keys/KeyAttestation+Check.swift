import SwiftASN1
import X509

extension KeyAttestation {
    /// At most so many certificates, and bytes of a signature or field, are sent to a server.
    private static let (maximumChain, maximumField) = (8, 4096)

    /// Checks the statement as a verifier does, so that a mistake is named before it is sent. Whether the chain leads to a CA that the
    /// verifier trusts, only the verifier knows. Of a format other than `tpm`, checks the bounds alone.
    ///
    /// - Parameters:
    ///   - key: The key that the statement is about.
    ///   - data: The bytes that it covers.
    /// - Throws: `protocolError`, with the rule that is broken; `keyMismatch` for a statement about another key.
    public func check(for key: PublicKeyInfo, of data: [UInt8]) throws(ProviderError) {
        guard !format.rawValue.isEmpty, format.rawValue.utf8.allSatisfy({ (0x21...0x7e).contains($0) }) else {
            throw Self.fault("its format has no name")
        }
        guard let leaf = chain.first, chain.count <= Self.maximumChain else {
            throw Self.fault("its chain has \(chain.count) certificates, and not 1 to \(Self.maximumChain)")
        }
        guard ([signature] + fields.values).allSatisfy({ (1...Self.maximumField).contains($0.count) }) else {
            throw Self.fault("its signature or one of its fields is empty, or longer than \(Self.maximumField) bytes")
        }
        guard format == .tpm else { return }
        if let reason = leaf.attestationKeyFault {
            throw Self.fault("the certificate of its attestation key \(reason)")
        }
        let schemes: [Int: SignatureScheme] = [-7: .ecdsaP256SHA256, -257: .rsaPKCS1SHA256]
        guard let scheme = schemes[algorithm] else { throw Self.fault("its algorithm \(algorithm) is not -7 or -257") }
        guard leaf.publicKey.isValidSignature(signature, for: certInfo, using: scheme) else {
            throw Self.fault("its signature does not verify with the certificate of its attestation key")
        }
        let info = try TPMCertifyInfo(certInfo)
        guard info.extraData == data else { throw Self.fault("it covers other data than was asked for") }
        let area = try TPMPublicArea(pubArea)
        guard info.name == area.name else { throw Self.fault("'certInfo' names another key than 'pubArea'") }
        guard area.isFixed else {
            throw Self.fault("the key could leave the TPM: it lacks fixedTPM, fixedParent or sensitiveDataOrigin")
        }
        guard area.isKey(key) else {
            throw ProviderError(
                .keyMismatch, "The attestation is about another key than the one to be certified; make a new key.")
        }
    }

    fileprivate static func fault(_ reason: String) -> ProviderError {
        ProviderError(
            .protocolError,
            "The attestation of the key cannot be used: \(reason). Look for a newer version of the key store.")
    }
}

extension X509Certificate {
    /// The rule for certificates of attestation keys that this one breaks (WebAuthn, section 8.3.1); `nil` for none.
    public var attestationKeyFault: String? {
        if !subject.isEmpty { return "has the subject '\(subject)', and must have none" }
        guard let names = alternativeNamesExtension, names.critical else {
            return "has no critical subject alternative name"
        }
        let types = subjectAlternativeNames.flatMap { name -> [ASN1ObjectIdentifier] in
            if case .directory(let directory) = name { return directory.flatMap { $0.map(\.type) } }
            return []
        }
        // tpmManufacturer, tpmModel and tpmVersion.
        let required: [ASN1ObjectIdentifier] = [[2, 23, 133, 2, 1], [2, 23, 133, 2, 2], [2, 23, 133, 2, 3]]
        guard required.allSatisfy(types.contains) else {
            return "does not name the TPM's manufacturer, model and version (2.23.133.2.1 to 3) in its alternative name"
        }
        guard extendedKeyUsage?.contains(.init(oid: [2, 23, 133, 8, 3])) == true else {
            return "does not have the extended key usage 2.23.133.8.3"
        }
        return isAuthority ? "is one of a CA" : nil
    }
}

/// Reads structures of a TPM: big-endian numbers, and values after their size.
private struct TPMReader {
    private var rest: ArraySlice<UInt8>
    private let name: String

    init(_ bytes: [UInt8], _ name: String) { (rest, self.name) = (bytes[...], name) }

    private var fault: ProviderError { KeyAttestation.fault("'\(name)' is damaged") }

    mutating func bytes(_ count: Int) throws(ProviderError) -> [UInt8] {
        guard rest.count >= count else { throw fault }
        defer { rest = rest.dropFirst(count) }
        return Array(rest.prefix(count))
    }

    mutating func number(_ size: Int = 2) throws(ProviderError) -> Int {
        try bytes(size).reduce(0) { $0 << 8 | Int($1) }
    }

    mutating func sized() throws(ProviderError) -> [UInt8] { try bytes(try number()) }

    func end() throws(ProviderError) { if !rest.isEmpty { throw fault } }
}

/// `TPMS_ATTEST` of TPM2_Certify (TPM 2.0 Library, part 2, section 10.12).
private struct TPMCertifyInfo {
    let extraData: [UInt8]
    let name: [UInt8]

    init(_ encoded: [UInt8]) throws(ProviderError) {
        var reader = TPMReader(encoded, "certInfo")
        // TPM_GENERATED_VALUE, TPM_ST_ATTEST_CERTIFY.
        guard try reader.number(4) == 0xff54_4347, try reader.number() == 0x8017 else {
            throw KeyAttestation.fault("'certInfo' is not the certification of a key by a TPM")
        }
        _ = try reader.sized()  // qualifiedSigner
        extraData = try reader.sized()
        _ = try reader.bytes(17 + 8)  // clockInfo, firmwareVersion
        name = try reader.sized()
        _ = try reader.sized()  // qualifiedName
        try reader.end()
    }
}

/// `TPMT_PUBLIC` of an RSA or ECC key (TPM 2.0 Library, part 2, section 12.2.4).
private struct TPMPublicArea {
    private static let null = 0x10
    let name: [UInt8]
    private let attributes: Int
    private let point: [UInt8]?
    private let modulus: [UInt8]?

    /// fixedTPM, fixedParent and sensitiveDataOrigin.
    var isFixed: Bool { attributes & 0x32 == 0x32 }

    init(_ encoded: [UInt8]) throws(ProviderError) {
        var reader = TPMReader(encoded, "pubArea")
        let (type, hash) = (try reader.number(), try reader.number())
        attributes = try reader.number(4)
        _ = try reader.sized()  // authPolicy
        if try reader.number() != Self.null { _ = try reader.number(4) }  // symmetric: bits, mode
        if try reader.number() != Self.null { _ = try reader.number() }  // scheme: hash
        switch type {
        case 0x01:
            _ = try reader.bytes(2 + 4)  // keyBits, exponent
            (modulus, point) = (try reader.sized(), nil)
        case 0x23:
            let curves = [3: 32, 4: 48, 5: 66]
            guard let size = curves[try reader.number()] else { throw KeyAttestation.fault("the curve is unknown") }
            if try reader.number() != Self.null { _ = try reader.number() }  // kdf: hash
            let (x, y) = (try reader.sized(), try reader.sized())
            func padded(_ number: [UInt8]) -> [UInt8] {
                [UInt8](repeating: 0, count: max(0, size - number.count)) + number
            }
            (modulus, point) = (nil, [4] + padded(x) + padded(y))
        default: throw KeyAttestation.fault("the key is not RSA or ECC")
        }
        try reader.end()
        let algorithms: [Int: DigestAlgorithm] = [0x0b: .sha256, 0x0c: .sha384, 0x0d: .sha512]
        guard let algorithm = algorithms[hash] else {
            throw KeyAttestation.fault("the hash of the key's name is unknown")
        }
        name = [UInt8(hash >> 8), UInt8(hash & 0xff)] + algorithm.digest(of: encoded)
    }

    func isKey(_ key: PublicKeyInfo) -> Bool {
        if let modulus { return key.rsaModulus == modulus }
        return key.algorithm == .ec && key.keyBits == point
    }
}
