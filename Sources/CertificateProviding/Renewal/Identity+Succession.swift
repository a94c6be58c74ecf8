extension Identity {
    /// Checks that a renewal has returned a new certificate.
    ///
    /// - Throws: `pending` if the certificate is the same as that of `current`, such as when the file that it is read
    ///   from has not been replaced yet.
    package func requireSuccession(to current: Identity) throws(CertificateProviderError) {
        guard certificate == current.certificate else { return }
        throw CertificateProviderError(
            .pending,
            """
            No newer certificate for '\(certificate.subject)' is available yet. Replace the certificate at its source, \
            or wait until one is issued.
            """,
            provider: provenance.provider)
    }
}
