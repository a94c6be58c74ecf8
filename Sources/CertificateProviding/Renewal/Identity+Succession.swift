extension Identity {
    /// Checks that a renewal has brought something new.
    ///
    /// - Throws: `pending` when the certificate is that of `current`: from a file, for example, which nobody has
    ///   replaced yet.
    package func requireSuccession(to current: Identity) throws(CertificateProviderError) {
        guard certificate == current.certificate else { return }
        throw CertificateProviderError(
            .pending,
            "There is no newer certificate yet than that of '\(certificate.subject)'; put one where it comes from, or wait.",
            provider: provenance.provider)
    }
}
