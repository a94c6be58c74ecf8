package import FoundationEssentials

extension Identity {
    /// Whether the identity is over at `now`, by the earliest end in its chain.
    package func hasExpired(at now: Date) -> Bool { status(at: now) == .expired }

    /// Checks that a renewal has returned a new certificate.
    ///
    /// - Throws: `pending` if the chain is the same as that of `current`, such as when the file that it is read from has not
    ///   been replaced yet; `expired` if it is over.
    package func requireSuccession(to current: Identity, at now: Date) throws(CertificateProviderError) {
        guard certificateChain == current.certificateChain else { return }
        try requireUnexpired(at: now)
        throw CertificateProviderError(
            .pending,
            """
            No newer certificate for '\(certificate.subject)' is available yet. Replace the certificate at its source, \
            or wait until one is issued.
            """,
            provider: provenance.provider)
    }

    /// Checks that a provider that was asked for an identity has not returned one that is over.
    ///
    /// - Throws: `expired`.
    package func requireUnexpired(at now: Date) throws(CertificateProviderError) {
        guard hasExpired(at: now) else { return }
        let source = provenance.source.map { " (\($0.withVisibleControls))" } ?? ""
        throw CertificateProviderError(
            .expired,
            "\(ending), and its source\(source) has no newer one. Replace the certificate at its source, and check this host's "
                + "clock.",
            provider: provenance.provider)
    }

    /// The sentence of its end.
    fileprivate var ending: String {
        let first = certificateChain.min { $0.notValidAfter < $1.notValidAfter } ?? certificate
        let issuer = first == certificate ? "" : " with '\(first.subject)' in its chain"
        return "The certificate of '\(certificate.subject)' expired on \(expiry.formatted(.iso8601))\(issuer)"
    }
}

extension CertificateProviderError {
    /// The error of an attempt to replace `current`. For an identity that is over, the code is
    /// `expired`, even if a later attempt may succeed by itself.
    package func replacing(_ current: Identity, at now: Date) -> Self {
        guard [.pending, .timedOut, .operationNotAllowed].contains(code), current.hasExpired(at: now) else {
            return self
        }
        var copy = self
        copy.code = .expired
        copy.message = "\(current.ending), and is not replaced yet: \(message)"
        return copy
    }
}
