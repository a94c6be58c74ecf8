package import CertificateProviding
import SwiftASN1

/// The PEM files (RFC 7468) of an identity, for other programs.
package struct PEMFiles: Sendable {
    struct File {
        let name: String
        let content: [UInt8]
        let mode: UInt32
    }

    private(set) var files: [File]
    private let publicKey: PublicKeyInfo
    private let chain: String
    /// First that of the key alone.
    static let namesWithKey = ["key.pem", "identity.pem"]
    /// An RSA key of 16,384 bits has a fifth of that.
    static let maximumKeySize = 65_536
    var hasKey: Bool { files.contains { Self.namesWithKey.contains($0.name) } }

    /// Creates the files of an identity.
    ///
    /// - Parameter exportingKey: Whether to include the private key, unencrypted.
    /// - Throws: `unsupportedAlgorithm` if the key is requested and cannot be exported.
    package init(_ identity: Identity, exportingKey: Bool) throws(CertificateProviderError) {
        let chain = identity.certificateChain.map(\.pemRepresentation).joined()
        publicKey = identity.certificate.publicKey
        self.chain = chain
        files = [
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
            add(key: Array((PEMDocument(type: Self.keyType, derBytes: der).pemString + "\n").utf8))
        }
    }

    private static let keyType = "PRIVATE KEY"

    private mutating func add(key: [UInt8]) {
        files.append(File(name: Self.namesWithKey[0], content: key, mode: 0o600))
        files.append(File(name: Self.namesWithKey[1], content: key + Array(chain.utf8), mode: 0o600))
    }

    /// Returns the set with this content of a file `key.pem`; `nil` if it is not the key of the certificate.
    func withKey(_ pem: [UInt8]) -> PEMFiles? {
        guard let blocks = try? PEMFile(pem, named: Self.namesWithKey[0]).blocks, blocks.count == 1,
            blocks[0].label == Self.keyType, let secret = blocks[0].secret,
            let key = try? SoftwareKey(pkcs8: secret, location: .file),
            key.publicKey == publicKey
        else { return nil }
        var copy = self
        copy.add(key: pem)
        return copy
    }
}
