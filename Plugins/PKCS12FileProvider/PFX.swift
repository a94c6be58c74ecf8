import CertificateProviding
import OpenSSLSupport
import SwiftASN1

/// The outer structure of a PKCS#12 file (RFC 7292, section 4): the protected content and the MAC over it.
///
///     PFX ::= SEQUENCE { version INTEGER {v3(3)}, authSafe ContentInfo, macData MacData OPTIONAL }
struct PFX {
    /// The content of `authSafe`: a BER `AuthenticatedSafe`. The MAC covers these bytes.
    let content: [UInt8]
    let mac: MacData?

    /// - Throws: `malformedData`; `unsupportedAlgorithm` for a file with a signature instead of a MAC.
    init(_ file: [UInt8]) throws {
        // Bytes after the structure are ignored, as OpenSSL does: some tools pad files.
        let root = try BER.parse(Self.withoutTrailingBytes(file))
        (content, mac) = try BER.sequence(root, identifier: .sequence) { nodes in
            let version = try Int(berEncoded: &nodes)
            guard version == 3 else {
                throw ASN1Error.invalidASN1Object(reason: "the PFX version is \(version), expected 3")
            }
            let content = try BER.sequence(try nodes.required("authSafe"), identifier: .sequence) { nodes in
                let type = try ASN1ObjectIdentifier(berEncoded: &nodes)
                guard type == .pkcs7Data else {
                    throw ProviderError(
                        .unsupportedAlgorithm,
                        type == .pkcs7SignedData
                            ? "The file is protected by a signature (public-key integrity mode), which is not supported; export it "
                                + "again with a password."
                            : "The file's content has the unknown type \(type); export it again.")
                }
                return try nodes.explicitOctetString("authSafe content")
            }
            let mac = try nodes.next().map(MacData.init(berEncoded:))
            return (content, mac)
        }
    }

    /// Removes bytes after the end of the outer structure. A file of indefinite length is returned unchanged.
    private static func withoutTrailingBytes(_ file: [UInt8]) -> ArraySlice<UInt8> {
        guard file.count >= 2, file[0] == 0x30 else { return file[...] }
        if file[1] < 0x80 { return file.prefix(2 + Int(file[1])) }
        let lengthBytes = Int(file[1] & 0x7f)
        guard (1...4).contains(lengthBytes), file.count > 2 + lengthBytes else { return file[...] }
        let length = file[2..<(2 + lengthBytes)].reduce(0) { $0 << 8 | Int($1) }
        return file.prefix(2 + lengthBytes + length)
    }
}

/// The MAC of a PKCS#12 file (RFC 7292, section 4), which verifies the content and the password.
///
///     MacData ::= SEQUENCE { mac DigestInfo, macSalt OCTET STRING, iterations INTEGER DEFAULT 1 }
struct MacData {
    /// The hash of the HMAC, or PBMAC1 (RFC 9879).
    let algorithm: ASN1ObjectIdentifier
    /// The whole `AlgorithmIdentifier`.
    let algorithmIdentifier: ASN1Node
    let value: [UInt8]
    let salt: [UInt8]
    let iterations: Int

    init(berEncoded node: ASN1Node) throws {
        self = try BER.sequence(node, identifier: .sequence) { nodes in
            let (identifier, value) = try BER.sequence(try nodes.required("mac"), identifier: .sequence) { nodes in
                (try nodes.required("digestAlgorithm"), try ASN1OctetString(berEncoded: &nodes))
            }
            let salt = try ASN1OctetString(berEncoded: &nodes)
            let iterations = try nodes.next().map { try Int(berEncoded: $0) } ?? 1
            return MacData(
                algorithm: try identifier.algorithm(), algorithmIdentifier: identifier, value: Array(value.bytes),
                salt: Array(salt.bytes), iterations: iterations)
        }
    }

    private init(
        algorithm: ASN1ObjectIdentifier, algorithmIdentifier: ASN1Node, value: [UInt8], salt: [UInt8], iterations: Int
    ) {
        self.algorithm = algorithm
        self.algorithmIdentifier = algorithmIdentifier
        self.value = value
        self.salt = salt
        self.iterations = iterations
    }
}
