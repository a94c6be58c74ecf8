import CertificateProviding

/// A key of a PKCS#12 file with its certificate chain.
struct PKCS12Identity {
    var alias: String
    var key: PKCS12Contents.Key
    /// Leaf first.
    var chain: [X509Certificate]

    /// Whether `alias` is the name of this identity, or the SHA-256 fingerprint of its leaf in hex. The fingerprint
    /// distinguishes identities of the same name.
    func isCalled(_ alias: String) -> Bool {
        alias == self.alias
            || alias.lowercased().filter { $0 != ":" } == DisplayText.hexadecimal(chain[0].sha256Fingerprint)
    }
}

extension PKCS12Contents {
    /// Pairs keys with certificates.
    ///
    /// A certificate belongs to a key if it has its public key. `localKeyID` only decides between several such
    /// certificates, since tools write the same value to many objects, or omit it.
    ///
    /// - Parameter fallbackAlias: The alias of an identity without friendly name: the file's name.
    /// - Returns: The identities, in the file's order, and an error for each key without certificate.
    func identities(fallbackAlias: String) -> (identities: [PKCS12Identity], failures: [ProviderError]) {
        var identities: [PKCS12Identity] = []
        var failures: [ProviderError] = []
        for key in keys {
            guard let leaf = leaf(for: key) else {
                failures.append(unpaired(key))
                continue
            }
            let name = [key.friendlyName, leaf.friendlyName].compactMap { $0 }.first { !$0.isEmpty }
            let alias = name ?? fallbackAlias
            // The same key twice is one identity, by each of its names.
            guard !identities.contains(where: { $0.alias == alias && $0.chain[0] == leaf.certificate }) else {
                continue
            }
            let chain = CertificateChain.build(from: leaf.certificate, among: certificates.map(\.certificate))
            identities.append(PKCS12Identity(alias: alias, key: key, chain: chain))
        }
        return (identities, failures)
    }

    private func leaf(for key: Key) -> Certificate? {
        let matching = certificates.filter { $0.certificate.publicKey == key.publicKey }
        let linked = matching.filter { $0.localKeyID != nil && $0.localKeyID == key.localKeyID }
        // If several certificates are for one key, the one that was issued last counts.
        return (linked.isEmpty ? matching : linked).max {
            $0.certificate.notValidBefore < $1.certificate.notValidBefore
        }
    }

    private func unpaired(_ key: Key) -> ProviderError {
        let name = key.friendlyName.map { " '\(DisplayText.visible($0))'" } ?? ""
        let isLinked = key.localKeyID != nil && certificates.contains { $0.localKeyID == key.localKeyID }
        if isLinked {
            return ProviderError(
                .keyMismatch,
                "The private key\(name) is not the key of the certificate that is stored with it; export both again."
            )
        }
        if let first = unreadableCertificates.first { return first }
        return ProviderError(
            .notFound,
            certificates.isEmpty
                ? "The file holds a private key\(name) but no certificate for it; export both together."
                : "The private key\(name) has no certificate: none of the \(certificates.count) certificates in the "
                    + "file matches it. Export both together."
        )
    }

    /// The error for a valid file that has no identity.
    var nothingFound: ProviderError {
        let certificates = certificates.count + unreadableCertificates.count
        let reason =
            certificates == 0
            ? "The file holds neither a private key nor a certificate."
            : "The file holds \(certificates) certificate\(certificates == 1 ? "" : "s") but no private key."
        let skipped =
            hasPublicKeyEncryptedParts ? " Parts of it are encrypted with a public key and were skipped." : ""
        return ProviderError(.notFound, reason + skipped)
    }
}
