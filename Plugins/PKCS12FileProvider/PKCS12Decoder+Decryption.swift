import CertificateProviding
import OpenSSLSupport
import SwiftASN1

extension PKCS12Decoder {
    /// Decrypts one part. On failure, records the reason and returns `nil`.
    ///
    /// - Throws: `malformedData` if the budget is exceeded.
    mutating func decrypt(
        _ ciphertext: [UInt8], _ algorithm: ASN1Node, _ what: String
    ) throws -> SecretBytes? {
        var failure: OpenSSLError?
        for candidate in candidates + latin1Candidates(for: algorithm) {
            try budget.spend(onDecryptingWith: algorithm)
            do throws(OpenSSLError) {
                let plain = try decrypt(ciphertext, algorithm, with: candidate)
                if let plain, plain.withUnsafeBytes(Self.isOneSequence) { return plain }
            } catch {
                failure = error
                if error.isUnsupportedAlgorithm { break }
            }
        }
        contents.unusable.append(describe(what, try algorithm.algorithm(), failure))
        return nil
    }

    private func decrypt(
        _ ciphertext: [UInt8], _ algorithm: ASN1Node, with password: PKCS12Password
    ) throws(OpenSSLError) -> SecretBytes? {
        if case .utf8(let password) = password, !password.isEmpty, let scheme = PBES2(algorithm) {
            return scheme.decrypt(ciphertext, password: password)
        }
        return try library.decrypt(ciphertext, algorithm: Array(algorithm.encodedBytes), password: password)
    }

    /// Whether the bytes are one SEQUENCE. The padding alone accepts one wrong key in 256.
    private static func isOneSequence(_ bytes: UnsafeRawBufferPointer) -> Bool {
        guard bytes.count >= 2, bytes[0] == 0x30 else { return false }
        if bytes[1] < 0x80 { return bytes.count == 2 + Int(bytes[1]) }
        let lengthBytes = Int(bytes[1] & 0x7f)
        guard lengthBytes > 0 else { return true }  // indefinite length
        guard lengthBytes <= 4, bytes.count >= 2 + lengthBytes else { return false }
        return bytes.count == 2 + lengthBytes + bytes[2..<(2 + lengthBytes)].reduce(0) { $0 << 8 | Int($1) }
    }

    /// The password in ISO 8859-1, if the algorithm is PBES2. PBES2 uses the password's bytes without specifying their
    /// encoding (RFC 8018, section 3), and some Java tools use ISO 8859-1.
    private func latin1Candidates(for algorithm: ASN1Node) -> [PKCS12Password] {
        guard isPasswordVerified, (try? algorithm.algorithm()) == .pbes2, let password else { return [] }
        return password.withUnsafeBytes { bytes in
            guard bytes.contains(where: { $0 >= 0x80 }), let text = String(validating: bytes, as: UTF8.self) else {
                return []
            }
            let latin1 = text.unicodeScalars.compactMap { UInt8(exactly: $0.value) }
            guard latin1.count == text.unicodeScalars.count else { return [] }
            return [.utf8(SecretBytes(copying: latin1))]
        }
    }

    private func describe(
        _ what: String, _ algorithm: ASN1ObjectIdentifier, _ failure: OpenSSLError?
    ) -> ProviderError {
        if let failure, failure.isUnsupportedAlgorithm {
            return ProviderError(
                .unsupportedAlgorithm,
                "\(what) is encrypted with \(OpenSSLLibrary.name(ofOID: "\(algorithm)")) in a form that is not supported; export the "
                    + "file again with AES.",
                underlying: failure)
        }
        if isPasswordVerified {
            // The MAC has shown that the password is right and that nothing was changed.
            return ProviderError(
                .unsupportedAlgorithm,
                "\(what) is encrypted with a different password than the file, or a different encoding of it; export "
                    + "the file again with one ASCII password.", underlying: failure)
        }
        return ProviderError(
            .malformedData,
            "\(what) cannot be decrypted: it is damaged, or the password is wrong (the file has no MAC to tell which). Check "
                + "'password-source'.",
            underlying: failure)
    }
}
