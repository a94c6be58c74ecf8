import CertificateProviding

extension IdentityKey {
    /// Decrypts by every scheme that the key offers, and by no other.
    ///
    /// - Parameter permitted: The schemes that the use of the key permits.
    func decryptsOnly(_ permitted: [DecryptionScheme]) async throws {
        let decrypter = try require(decrypter, "The key does not decrypt.")
        let schemes = decrypter.decryptionSchemes
        try require(!schemes.isEmpty, "The key has a decrypter that offers no scheme.")
        for scheme in schemes {
            try require(permitted.contains(scheme), "The key decrypts by \(scheme), for which it was not made.")
            let secret = SecretBytes(utf8: "certprov conformance")
            var ciphertext = try publicKey.encrypt(secret, using: scheme)
            try require(
                try await decrypter.decrypt(ciphertext, using: scheme) == secret,
                "The key decrypts by \(scheme) to something else than was encrypted.")
            // Of a damaged ciphertext of RSAES-PKCS1-v1_5, some libraries make random bytes.
            ciphertext[ciphertext.count / 2] ^= 1
            for damaged in [Array(ciphertext.dropLast())] + (scheme == .rsaPKCS1 ? [] : [ciphertext]) {
                try await refuses(.malformedData, "A damaged ciphertext of \(scheme)") {
                    _ = try await decrypter.decrypt(damaged, using: scheme)
                }
            }
        }
        let known: [DecryptionScheme] = [.rsaOAEPSHA256, .rsaOAEPSHA1, .rsaPKCS1]
        for other in known + [DecryptionScheme(rawValue: "none")] where !schemes.contains(other) {
            let ciphertext = try publicKey.encrypt(
                SecretBytes(utf8: "certprov"), using: known.contains(other) ? other : .rsaOAEPSHA256)
            try await refuses(.unsupportedAlgorithm, "The scheme \(other), which the key does not offer,") {
                _ = try await decrypter.decrypt(ciphertext, using: other)
            }
        }
    }
}
