import CertificateProviding
import Foundation
import SwiftASN1
import Synchronization
import TestSupport

/// The `openssl` command, as one who has nothing to do with our wrappers.
enum OpenSSLCommand {
    private static let bags = Mutex<[[X509Certificate]: [UInt8]]>([:])

    /// Returns a certs-only message.
    static func bag(of certificates: [X509Certificate]) throws -> [UInt8] {
        if let bag = bags.withLock({ $0[certificates] }) { return bag }
        let folder = try TemporaryDirectory()
        try folder.write(certificates.map(\.pemRepresentation).joined().utf8, to: "certificates.pem")
        try Subprocess.openssl(
            "crl2pkcs7", "-nocrl", "-certfile", "certificates.pem", "-outform", "DER", "-out", "bag",
            in: folder.path)
        let bag = try folder.read("bag")
        bags.withLock { $0[certificates] = bag }
        return bag
    }

    /// Writes a certificate and its key as `NAME.pem` and `NAME.key`.
    static func write(_ pair: CertifiedKey, _ name: String, to folder: TemporaryDirectory) throws {
        try folder.write(pair.certificate.pemRepresentation.utf8, to: "\(name).pem")
        let pkcs8 = try pair.key.pkcs8Representation().withUnsafeBytes { Array($0) }
        try folder.write(PEMDocument(type: "PRIVATE KEY", derBytes: pkcs8).pemString.utf8, to: "\(name).key")
    }
}
