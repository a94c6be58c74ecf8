package import CertificateProviding
import SwiftASN1

/// The PEM files (RFC 7468) of an identity, for other programs.
package struct PEMFiles: Sendable {
    struct File {
        let name: String
        let content: [UInt8]
        let mode: UInt32
    }

    let files: [File]
    static let namesWithKey = ["key.pem", "identity.pem"]
    var hasKey: Bool { files.contains { Self.namesWithKey.contains($0.name) } }

    /// Creates the files of an identity.
    ///
    /// - Parameter exportingKey: Whether to include the private key, unencrypted.
    /// - Throws: `unsupportedAlgorithm` if the key is requested and cannot be exported.
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
            files.append(File(name: Self.namesWithKey[0], content: Array(pem.utf8), mode: 0o600))
            files.append(File(name: Self.namesWithKey[1], content: Array((pem + chain).utf8), mode: 0o600))
        }
        self.files = files
    }
}
