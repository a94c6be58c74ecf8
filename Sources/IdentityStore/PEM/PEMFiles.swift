package import CertificateProviding
import SwiftASN1

/// An identity as the PEM files (RFC 7468) that other programs read.
package struct PEMFiles: Sendable {
    struct File {
        let name: String
        let content: [UInt8]
        let mode: UInt32
    }

    let files: [File]

    /// - Parameter exportingKey: Whether the private key is among them, unencrypted.
    /// - Throws: `unsupportedAlgorithm` when the key is wanted and cannot leave its home.
    package init(_ identity: Identity, exportingKey: Bool) throws(CertificateProviderError) {
        let chain = identity.certificateChain.map(\.pemRepresentation).joined()
        var files = [
            File(name: "certificate.pem", content: Array(identity.certificate.pemRepresentation.utf8), mode: 0o644),
            File(name: "chain.pem", content: Array(chain.utf8), mode: 0o644),
        ]
        if exportingKey {
            guard let key = identity.key.exporter else {
                throw CertificateProviderError(
                    .unsupportedAlgorithm,
                    "The private key of '\(identity.certificate.subject)' cannot leave its "
                        + "\(identity.key.location.rawValue); fetch without --export-key.",
                    provider: identity.provenance.provider)
            }
            let der = try key.pkcs8Representation().withUnsafeBytes { Array($0) }
            let pem = PEMDocument(type: "PRIVATE KEY", derBytes: der).pemString + "\n"
            files.append(File(name: "key.pem", content: Array(pem.utf8), mode: 0o600))
            files.append(File(name: "identity.pem", content: Array((pem + chain).utf8), mode: 0o600))
        }
        self.files = files
    }
}
