public import CertificateProviding

extension PKCS11TokenProvider: DeletionAnnouncing {
    /// Returns what `delete-objects` will destroy. Logs in where nobody has to be asked.
    public func announcedDeletions() async throws(CertificateProviderError) -> [String] {
        do throws(CertificateProviderError) {
            let tokens = try self.tokens()
            guard tokens.settings.deletesObjects else { return [] }
            let chosen = try environment.storage.entry(named: tokens.settings.entryName)?.certificateChain.first
            return try await tokens.calls.run("looking for the identity") { () throws(CertificateProviderError) in
                var sentences: [String] = []
                for key in try tokens.keysToDestroy(chosen: chosen) {
                    let name = "(\(key.publicKey.displayName), id \(key.id.hexEncoded))"
                    sentences.append("the private and the public key \(name) on the token '\(key.token.displayName)'")
                    sentences += try key.token.certificates(for: key).map { "its certificate '\($0.subject)'" }
                }
                return sentences
            }
        } catch {
            throw error.attributed(to: id)
        }
    }
}

extension Tokens {
    /// The key of the identity that was chosen; where none was, of the one that the URI means. Empty when it is gone.
    ///
    /// - Parameter chosen: The leaf that is remembered.
    /// - Throws: Also `configurationInvalid` where none was chosen and the URI means several.
    func keysToDestroy(chosen: X509Certificate?) throws(CertificateProviderError) -> [TokenKey] {
        guard let chosen else {
            do throws(CertificateProviderError) {
                return try [identity(pin: nil).key as? TokenKey].compactMap { $0 }
            } catch {
                if error.code == .notFound { return [] }
                throw error
            }
        }
        var failures: [CertificateProviderError] = []
        let present = try present(&failures)
        guard !present.isEmpty else { throw failures.first ?? tokenNotPresent() }
        var keys: [TokenKey] = []
        for (token, _) in present {
            if let key = try token.key(for: chosen.publicKey, id: settings.uri.objectID) { keys.append(key) }
        }
        return keys
    }
}
