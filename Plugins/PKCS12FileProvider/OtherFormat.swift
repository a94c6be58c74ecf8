import CertificateProviding
import OpenSSLSupport
import SwiftASN1

/// The format of a file that is not PKCS#12, for a message that says how to convert it.
enum OtherFormat {
    case pem(hasKey: Bool, hasCertificate: Bool)
    case derCertificate
    case derKey
    /// Certificates in a PKCS#7 structure (`.p7b`).
    case pkcs7
    /// The name as keytool has it.
    case javaKeystore(String)

    /// Recognises a format; `nil` for any other file, such as a damaged PKCS#12 file.
    init?(_ file: [UInt8]) {
        switch file.prefix(4) {
        case [0xfe, 0xed, 0xfe, 0xed]: self = .javaKeystore("JKS")
        case [0xce, 0xce, 0xce, 0xce]: self = .javaKeystore("JCEKS")
        default:
            if let pem = Self.pem(file) {
                self = pem
            } else if let der = Self.der(file) {
                self = der
            } else {
                return nil
            }
        }
    }

    private static func pem(_ file: [UInt8]) -> Self? {
        guard let blocks = try? PEMFile(file, named: "").blocks, !blocks.isEmpty else { return nil }
        return .pem(
            hasKey: blocks.contains(where: \.isPrivateKey),
            hasCertificate: blocks.contains { $0.label.hasSuffix("CERTIFICATE") })
    }

    private static func der(_ file: [UInt8]) -> Self? {
        guard let root = try? DER.parse(file), let fields = children(root) else { return nil }
        let first = fields.first.flatMap { try? ASN1ObjectIdentifier(derEncoded: $0) }
        if first == .pkcs7SignedData { return .pkcs7 }
        if (try? X509Certificate(derRepresentation: file)) != nil { return .derCertificate }
        // ObjectStore ::= SEQUENCE { EncryptedObjectStoreData, ObjectStoreIntegrityCheck }, of Bouncy Castle. An encrypted
        // PKCS#8 key has the algorithm one level higher.
        if fields.count == 2, isEncryptedByPassword(fields[0]) { return .javaKeystore("BCFKS") }
        let isKey =
            isEncryptedByPassword(root) || (try? PublicKeyInfo(ofPrivateKey: SecretBytes(copying: file))) != nil
        return isKey ? .derKey : nil
    }

    /// Whether a node is `SEQUENCE { AlgorithmIdentifier, OCTET STRING }` with PBES2 (RFC 8018, appendix A.4).
    private static func isEncryptedByPassword(_ node: ASN1Node) -> Bool {
        guard let fields = children(node), fields.count == 2, fields[1].identifier == .octetString,
            let algorithm = children(fields[0])?.first
        else { return false }
        return (try? ASN1ObjectIdentifier(derEncoded: algorithm)) == .pbes2
    }

    private static func children(_ node: ASN1Node) -> [ASN1Node]? {
        guard node.identifier == .sequence, case .constructed(let children) = node.content else { return nil }
        return Array(children)
    }

    /// The error for a file of this format.
    func error(_ path: String) -> ProviderError {
        let (name, advice) = description(DisplayText.shellQuoted(path))
        return ProviderError(
            .malformedData, "The file is \(name), not a PKCS#12 file. \(advice), and set 'path' to the new file.")
    }

    private func description(_ path: String) -> (name: String, advice: String) {
        switch self {
        case .pem(true, true): ("PEM", "Convert it with: openssl pkcs12 -export -in \(path) -out identity.p12")
        case .pem(false, true):
            (
                "PEM, and holds certificates without a private key",
                "Put both together with: openssl pkcs12 -export -in \(path) -inkey KEY -out identity.p12"
            )
        case .pem(true, false):
            (
                "PEM, and holds a private key without a certificate",
                "Put both together with: openssl pkcs12 -export -inkey \(path) -in CERTIFICATE -out identity.p12"
            )
        case .pem(false, false): ("PEM, and holds neither a key nor a certificate", "Export the identity as PKCS#12")
        case .derCertificate:
            (
                "a DER certificate without a private key",
                "Convert it with: openssl x509 -inform DER -in \(path) -out certificate.pem; then: openssl pkcs12 -export "
                    + "-in certificate.pem -inkey KEY -out identity.p12"
            )
        case .derKey:
            (
                "a DER private key without a certificate",
                "Convert it with: openssl pkey -inform DER -in \(path) -out key.pem; then: openssl pkcs12 -export "
                    + "-inkey key.pem -in CERTIFICATE -out identity.p12"
            )
        case .pkcs7:
            (
                "PKCS#7, which holds certificates without a private key",
                "Convert it with: openssl pkcs7 -inform DER -in \(path) -print_certs -out chain.pem; then: openssl pkcs12 "
                    + "-export -in chain.pem -inkey KEY -out identity.p12"
            )
        case .javaKeystore(let type):
            (
                "a Java keystore (\(type))",
                "Convert it with: keytool -importkeystore -srckeystore \(path) -srcstoretype \(type) -destkeystore "
                    + "identity.p12 -deststoretype PKCS12"
                    + (type == "BCFKS"
                        ? " -providerpath bc-fips.jar -providerclass org.bouncycastle.jcajce.provider.BouncyCastleFipsProvider"
                        : "")
            )
        }
    }
}
