import CertificateProviding
import OpenSSLSupport
import SwiftASN1
import TestSupport
import Testing

@testable import PKCS12FileProvider

/// swift-crypto decrypts messages that OpenSSL encrypted; the rest is left to OpenSSL.
@Suite struct PBES2Tests {
    /// An `EncryptedPrivateKeyInfo` under the password "sécret", as `openssl pkcs8` writes it, and the key.
    private func encrypted(_ options: [String]) throws -> (algorithm: ASN1Node, ciphertext: [UInt8], key: [UInt8]) {
        let directory = try TemporaryDirectory()
        try directory.write(Array("sécret\n".utf8), to: "password")
        try Subprocess.openssl("genpkey", "-algorithm", "ED25519", "-outform", "DER", "-out", "key", in: directory.path)
        try Subprocess.run(
            ["openssl", "pkcs8", "-topk8", "-inform", "DER", "-in", "key", "-passout", "file:password"]
                + ["-outform", "DER", "-out", "encrypted"] + options,
            in: directory.path)
        let (algorithm, ciphertext) = try BER.sequence(
            try BER.parse(try directory.read("encrypted")), identifier: .sequence
        ) { nodes in (try nodes.required("algorithm"), Array(try ASN1OctetString(berEncoded: &nodes).bytes)) }
        return (algorithm, ciphertext, try directory.read("key"))
    }

    @Test(
        arguments: ["aes-128-cbc", "aes-192-cbc", "aes-256-cbc"],
        ["hmacWithSHA1", "hmacWithSHA224", "hmacWithSHA256", "hmacWithSHA384", "hmacWithSHA512"])
    func decryptsAsOpenSSLDoes(cipher: String, function: String) throws {
        let (algorithm, ciphertext, key) = try encrypted(["-v2", cipher, "-v2prf", function, "-iter", "3"])
        let scheme = try #require(PBES2(algorithm))
        let plain = try #require(scheme.decrypt(ciphertext, password: SecretBytes(utf8: "sécret")))
        #expect(plain == SecretBytes(copying: key))
        #expect(scheme.decrypt(ciphertext, password: SecretBytes(utf8: "secret")) != plain)
        #expect(scheme.decrypt(Array(ciphertext.dropLast()), password: SecretBytes(utf8: "sécret")) == nil)
        #expect(scheme.decrypt([], password: SecretBytes(utf8: "sécret")) == nil)
    }

    @Test(arguments: [
        ["-v2", "des3"], ["-v2", "aes-256-cfb"], ["-v2", "camellia-256-cbc"], ["-scrypt"], ["-v1", "PBE-SHA1-3DES"],
        ["-v2", "aes-256-cbc", "-v2prf", "hmacWithSHA512-256"],
    ])
    func leavesTheRestToOpenSSL(options: [String]) throws {
        let (algorithm, ciphertext, key) = try encrypted(options)
        #expect(PBES2(algorithm) == nil)
        let plain = try OpenSSLLibrary().decrypt(
            ciphertext, algorithm: Array(algorithm.encodedBytes), password: .utf8(SecretBytes(utf8: "sécret")))
        #expect(plain == SecretBytes(copying: key))
    }
}
