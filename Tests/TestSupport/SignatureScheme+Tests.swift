public import CertificateProviding
import Foundation

extension SignatureScheme {
    /// Verifies the signature of a digest with OpenSSL's command, which has nothing to do with this package.
    /// - Throws: If `openssl` does not find it valid.
    public func opensslVerify(_ signature: [UInt8], ofDigest digest: [UInt8], by key: PublicKeyInfo) throws {
        let directory = try TemporaryDirectory()
        try directory.write(key.derRepresentation, to: "key")
        try directory.write(digest, to: "digest")
        try directory.write(signature, to: "signature")
        let hash = "sha\(digest.count * 8)"
        let pss = "-pkeyopt rsa_padding_mode:pss -pkeyopt rsa_pss_saltlen:digest -pkeyopt rsa_mgf1_md:\(hash)"
        let command =
            "openssl pkeyutl -verify -pubin -keyform DER -inkey key -in digest -sigfile signature -pkeyopt digest:\(hash) "
            + (description.contains("pss") ? pss : "")
        try Subprocess.run(command.split(separator: " ").map(String.init), in: directory.path)
    }
}
