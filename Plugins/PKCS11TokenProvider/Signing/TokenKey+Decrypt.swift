import CertificateProviding

extension TokenKey: KeyDecrypting {
    /// The token works for at most the provider's `timeout`.
    func decrypt(
        _ ciphertext: [UInt8], using scheme: DecryptionScheme
    ) async throws(ProviderError) -> SecretBytes {
        guard decryptionSchemes.contains(scheme), let mechanism = DecryptionMechanism(scheme) else {
            throw ProviderError(
                .unsupportedAlgorithm,
                "The token '\(token.displayName)' cannot decrypt with this key by \(DisplayText.visible(scheme.rawValue)); "
                    + "use one of: \(decryptionSchemes.map(\.description).joined(separator: ", ")).")
        }
        return try await token.calls.run("decrypting") { () throws(ProviderError) in
            try token.decrypt(ciphertext, with: self, by: mechanism)
        }
    }
}
