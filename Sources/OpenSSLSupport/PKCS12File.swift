internal import COpenSSL
package import CertificateProviding
import Glibc

/// Writing of PKCS#12 files (RFC 7292).
extension OpenSSLLibrary {
    private static let iterations: Int32 = 100_000
    /// Few, as programs of that time expect.
    private static let legacyIterations: Int32 = 2048

    /// Returns a file with a key and its chain.
    ///
    /// - Parameters:
    ///   - key: PKCS#8.
    ///   - chain: Leaf first, DER.
    ///   - name: The name of the identity in the file.
    ///   - password: Without a NUL.
    ///   - isLegacy: For programs before OpenSSL 1.1: Triple DES and SHA-1. Otherwise AES-256 and SHA-256 (RFC 8018).
    package func pkcs12(
        _ key: SecretBytes, _ chain: [[UInt8]], name: String, password: SecretBytes, isLegacy: Bool
    ) throws(OpenSSLError) -> [UInt8] {
        let handle = try PrivateKeyHandle(pkcs8: key, in: self)
        // OpenSSL refuses what a BMPString cannot have.
        let name = String(String.UnicodeScalarView(name.unicodeScalars.map { $0.value > 0xffff ? "\u{fffd}" : $0 }))
        let certificates = try chain.map { der throws(OpenSSLError) in try CertificateHandle(der, in: self) }
        let others = try CertificateStack(Array(certificates.dropFirst()))
        guard let leaf = certificates.first else { throw OpenSSLError("PKCS12_create_ex", refusing: "no certificate") }
        return try withExtendedLifetime((handle, certificates, others)) { () throws(OpenSSLError) in
            try Self.withText(password) { text throws(OpenSSLError) in
                let cipher = isLegacy ? NID_pbe_WithSHA1And3_Key_TripleDES_CBC : NID_aes_256_cbc
                let count = isLegacy ? Self.legacyIterations : Self.iterations
                OpenSSLError.clear()
                // Without a MAC, which has a digest of its own.
                guard
                    let file = PKCS12_create_ex(
                        text, name, handle.pointer, leaf.pointer, others.pointer, cipher, cipher, count, -1, 0, context,
                        nil)
                else { throw OpenSSLError("PKCS12_create_ex") }
                defer { PKCS12_free(file) }
                guard PKCS12_set_mac(file, text, -1, nil, 0, count, isLegacy ? EVP_sha1() : EVP_sha256()) == 1 else {
                    throw OpenSSLError("PKCS12_set_mac")
                }
                return try Self.encode("i2d_PKCS12") { i2d_PKCS12(file, $0) }
            }
        }
    }

    /// Whether a file has this key and chain, in this form and with this password. A chain is compared without its order.
    package func isPKCS12(
        _ file: [UInt8], of key: SecretBytes, _ chain: [[UInt8]], password: SecretBytes, isLegacy: Bool
    ) -> Bool {
        (try? contents(of: file, password: password)).map { found in
            found.isLegacy == isLegacy && found.chain.first == chain.first && Set(found.chain) == Set(chain)
                && (try? PrivateKeyHandle(pkcs8: key, in: self)).map { EVP_PKEY_eq($0.pointer, found.key.pointer) == 1 }
                    == true
        } ?? false
    }

    private func contents(
        of file: [UInt8], password: SecretBytes
    ) throws(OpenSSLError) -> (key: PrivateKeyHandle, chain: [[UInt8]], isLegacy: Bool) {
        OpenSSLError.clear()
        let parsed = file.withUnsafeBufferPointer { bytes in
            var position = bytes.baseAddress
            return d2i_PKCS12(nil, &position, bytes.count)
        }
        guard let parsed else { throw OpenSSLError("d2i_PKCS12") }
        defer { PKCS12_free(parsed) }
        var algorithm: UnsafePointer<X509_ALGOR>?
        PKCS12_get0_mac(nil, &algorithm, nil, nil, parsed)
        var identifier: OpaquePointer?
        X509_ALGOR_get0(&identifier, nil, nil, algorithm)
        let isLegacy = OBJ_obj2nid(identifier) == NID_sha1
        var (key, leaf, others) = (OpaquePointer?.none, OpaquePointer?.none, OpaquePointer?.none)
        let isRead = try Self.withText(password) { text throws(OpenSSLError) in
            PKCS12_parse(parsed, text, &key, &leaf, &others)
        }
        guard isRead == 1, let key, let leaf else { throw OpenSSLError("PKCS12_parse") }
        let handle = PrivateKeyHandle(adopting: key, in: self)
        defer { X509_free(leaf) }
        let stack = CertificateStack(adopting: others)
        let first = try Self.encode("i2d_X509") { i2d_X509(leaf, $0) }
        return (handle, [first] + (try stack.derRepresentations()), isLegacy)
    }

    /// Calls `body` with the password as a C string, which is wiped.
    private static func withText<T>(
        _ password: SecretBytes, _ body: (UnsafePointer<CChar>) throws(OpenSSLError) -> T
    ) throws(OpenSSLError) -> T {
        let text = UnsafeMutableBufferPointer<CChar>.allocate(capacity: password.count + 1)
        text.initialize(repeating: 0)
        defer {
            text.baseAddress.map { explicit_bzero($0, text.count) }
            text.deallocate()
        }
        password.withUnsafeBytes { UnsafeMutableRawBufferPointer(text).copyMemory(from: $0) }
        guard let start = text.baseAddress, !text.dropLast().contains(0) else {
            throw OpenSSLError("PKCS12_create_ex", refusing: "a NUL in the password")
        }
        return try body(start)
    }
}
