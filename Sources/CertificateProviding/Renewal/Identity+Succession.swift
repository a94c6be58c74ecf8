package import FoundationEssentials

extension Identity {
    /// Whether the certificate itself has ended at `now`. A peer may not need another one of the chain that has ended, such as
    /// a root that an older one has certified: the identity stays usable then.
    package func hasExpired(at now: Date) -> Bool { certificate.status(at: now) == .expired }

    /// Whether the identity was to be replaced before `now`, by the first end in its chain that counts.
    fileprivate func isOverdue(at now: Date) -> Bool { now > RenewalSchedule(for: self).expiry }

    /// Checks that a renewal has returned a new certificate, or the same one with another trust bundle or a chain that ends
    /// later.
    ///
    /// - Throws: `pending` if it has not, such as when the file that the certificate is read from has not been replaced yet;
    ///   `expired` if the certificate is over.
    package func requireSuccession(to current: Identity, at now: Date) throws(ProviderError) {
        guard isSame(as: current), expiry <= current.expiry else { return }
        if isOverdue(at: now) { throw isOver }
        throw ProviderError(
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
    package func requireUnexpired(at now: Date) throws(ProviderError) {
        if hasExpired(at: now) { throw isOver }
    }

    private var isOver: ProviderError {
        let source = provenance.source.map { " (\($0.withVisibleControls))" } ?? ""
        return ProviderError(
            .expired,
            "\(ending), and its source\(source) has no newer one. Replace the certificate at its source, and check this host's "
                + "clock.",
            provider: provenance.provider)
    }

    /// The sentence of its end.
    fileprivate var ending: String {
        let end = RenewalSchedule(for: self).expiry
        let issuer = certificateChain.first { $0.notValidAfter == end && $0 != certificate }
        let place = issuer.map { " with '\($0.subject)' in its chain" } ?? ""
        return "The certificate of '\(certificate.subject)' expired on \(end.formatted(.iso8601))\(place)"
    }
}

extension ProviderError {
    /// The error of an attempt to replace `current`. For an identity that is over, the code is
    /// `expired`, even if a later attempt may succeed by itself.
    package func replacing(_ current: Identity, at now: Date) -> Self {
        guard [.pending, .timedOut, .operationNotAllowed].contains(code), current.isOverdue(at: now) else {
            return self
        }
        var copy = self
        copy.code = .expired
        copy.message = "\(current.ending), and is not replaced yet: \(message)"
        return copy
    }
}
