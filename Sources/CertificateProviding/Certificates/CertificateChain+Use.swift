public import FoundationEssentials
import X509

// The view of a TLS client's peer on a chain, as far as the chain itself shows it. A chain is as good as its weakest
// certificate: a peer refuses it when the first of them ends.
extension CertificateChain {
    /// Returns the earliest end in a chain: the time from which peers refuse it. An empty chain has always expired.
    package static func expiry(of chain: [X509Certificate]) -> Date {
        chain.lazy.map(\.notValidAfter).min() ?? .distantPast
    }

    /// Returns whether every certificate of a chain is valid at `date`. Expired takes precedence over not yet valid.
    package static func status(of chain: [X509Certificate], at date: Date) -> X509Certificate.ValidityStatus {
        if date > expiry(of: chain) { return .expired }
        return chain.allSatisfy { $0.status(at: date) == .valid } ? .valid : .notYetValid
    }

    /// Returns why peers refuse a chain at `date`, as a clause about its leaf for a message, such as
    /// "'CN=ICA' in its chain expired on 2026-06-01T00:00:00Z"; `nil` if nothing speaks against it.
    ///
    /// Looks at the validity and the extended key usage of each certificate: that of a CA certificate restricts what it issues.
    /// The start of a validity period may be up to ``IssuedCertificate/clockSkew`` ahead. Signatures and trust are not checked.
    ///
    /// - Parameter usage: The side of TLS that all certificates must permit.
    public static func obstacle(
        in chain: [X509Certificate], for usage: IdentityUsage, at date: Date
    ) -> String? {
        for (index, certificate) in chain.enumerated() {
            let moment = max(date, min(date + IssuedCertificate.clockSkew, certificate.notValidBefore))
            if let reason = certificate.reasonNotToBeValid(at: moment) {
                return "\(name(certificate, index)) \(reason)"
            }
        }
        for (index, certificate) in chain.enumerated() {
            guard let side = usage.refusal(by: certificate.extendedKeyUsage) else { continue }
            let reason = "\(name(certificate, index)) does not permit \(side), by its extended key usage"
            guard index == 0 else { return reason }
            let isForServers = usage == .client && IdentityUsage.server.refusal(by: certificate.extendedKeyUsage) == nil
            return reason + ", which usage=\(usage) needs"
                + (isForServers ? " (it is for servers: set usage = server)" : "")
        }
        return nil
    }

    /// Returns the chain without the root at its end. Peers have the root already, and it proves nothing to those that do
    /// not. A self-signed leaf stays.
    public static func withoutRoot(_ chain: [X509Certificate]) -> [X509Certificate] {
        guard chain.count > 1, let last = chain.last, last.isRoot else { return chain }
        return chain.dropLast()
    }

    /// Whether peers that accept `current` accept `chain` too. Of two chains that have an obstacle, the validity of the leaves
    /// decides: a peer may not need a superfluous certificate that is over.
    package static func isAsUsable(
        _ chain: [X509Certificate], for usage: IdentityUsage, as current: [X509Certificate],
        for currentUsage: IdentityUsage, at now: Date
    ) -> Bool {
        guard chain != current, obstacle(in: chain, for: usage, at: now) != nil else { return true }
        return obstacle(in: current, for: currentUsage, at: now) != nil
            && (chain.first?.status(at: now) == .valid || current.first?.status(at: now) != .valid)
    }

    /// The certificate at `index` of a chain, as a subject of a clause about the leaf.
    static func name(_ certificate: X509Certificate, _ index: Int) -> String {
        index == 0 ? "it" : "'\(certificate.subject)' in its chain"
    }
}

extension X509Certificate {
    /// Why the certificate is not valid at `date`, as a clause without subject; `nil` if it is.
    func reasonNotToBeValid(at date: Date) -> String? {
        switch status(at: date) {
        case .valid: nil
        case .expired: "expired on \(notValidAfter.formatted(.iso8601))"
        case .notYetValid: "is not valid before \(notValidBefore.formatted(.iso8601))"
        }
    }
}

extension Identity {
    /// The time from which peers refuse the identity: the earliest end in its chain.
    public var expiry: Date { CertificateChain.expiry(of: certificateChain) }

    /// Returns whether the whole chain is valid at `date`.
    public func status(at date: Date) -> X509Certificate.ValidityStatus {
        CertificateChain.status(of: certificateChain, at: date)
    }

    /// Returns why peers refuse the identity at `date`, as ``CertificateChain/obstacle(in:for:at:)`` does for its usage;
    /// `nil` if nothing speaks against it.
    public func obstacle(at date: Date) -> String? {
        CertificateChain.obstacle(in: certificateChain, for: usage, at: date)
    }

    /// Whether peers that accept `current` accept this identity too, as
    /// ``CertificateChain/isAsUsable(_:for:as:for:at:)`` has it.
    package func isAsUsable(as current: Identity, at now: Date) -> Bool {
        CertificateChain.isAsUsable(
            certificateChain, for: usage, as: current.certificateChain, for: current.usage, at: now)
    }

    /// Returns why peers that accept `current` refuse this identity, as a clause about its leaf: it comes alone, and has an issuer that
    /// `current` has in its chain. `nil` if peers refuse `current`, too, and if the source says that this issuer is a root.
    ///
    /// - Parameter current: The chain that peers get now, without a root.
    package func lostIssuer(of current: [X509Certificate], at now: Date) -> String? {
        guard certificateChain.count == 1, let issuer = issuer(in: current),
            CertificateChain.obstacle(in: current, for: usage, at: now) == nil
        else { return nil }
        return "it comes without its issuer '\(issuer.subject)', which peers get now with the one in use"
    }

    /// The CA certificate of another chain that this one ends before.
    private func issuer(in current: [X509Certificate]) -> X509Certificate? {
        guard root == nil, let last = certificateChain.last, !last.isRoot else { return nil }
        return current.dropFirst().first { $0.subjectName == last.issuerName && !$0.isRoot }
    }

    /// Returns the warning about an issuer that is not in the chain, as far as that shows; `nil` for a leaf that a root has issued. Of a
    /// leaf alone that nothing else is known of, it is given to servers: those that clients meet know its issuer most often.
    ///
    /// - Parameter current: The chain that peers got so far; empty for none.
    package func remarkOnIssuer(after current: [X509Certificate]) -> String? {
        let issuer: String
        if let lost = self.issuer(in: current) {
            issuer = lost.subject
        } else {
            guard certificateChain.count == 1, root == nil, !certificate.isRoot else { return nil }
            let bundle = trust?.certificates ?? []
            let known = bundle.filter { $0.subjectName == certificate.issuerName }
            // An anchor need not be a root.
            let isIssuedByAnchor =
                known.contains { known in known.isRoot || !bundle.contains { $0.subjectName == known.issuerName } }
                || current.count > 1 && current.last?.issuerName == certificate.issuerName
            guard !isIssuedByAnchor, !known.isEmpty || current.count > 1 || [.server, .both].contains(usage) else {
                return nil
            }
            issuer = certificate.issuer
        }
        return
            "The certificate of '\(certificate.subject)' comes without its issuer '\(issuer)': peers that do not have that refuse "
            + "it. Add the issuer's certificate behind it at the source; a root too, which peers are not sent."
    }

    /// Checks that peers do not refuse this identity where they accept the one that it is to replace. A provider calls
    /// this before it stores an identity. Does not use the keys.
    ///
    /// - Parameter current: The identity that is stored now.
    /// - Throws: `pending` if the chain is not valid now; `unsupportedAlgorithm` if it does not permit the side of TLS
    ///   that the identity is for; `malformedData` if it lacks an issuer that the one of `current` has.
    public func requireUsable(toReplace current: Identity, at now: Date) throws(ProviderError) {
        let lost = lostIssuer(of: current.certificateChain, at: now)
        guard let obstacle = lost ?? obstacle(at: now), lost != nil || !isAsUsable(as: current, at: now) else { return }
        throw ProviderError(
            lost != nil ? .malformedData : status(at: now) == .valid ? .unsupportedAlgorithm : .pending,
            """
            The certificate of '\(certificate.subject)' cannot be used: \(obstacle). The stored one stays in use. Obtain another certificate with its chain, or check this host's clock.
            """,
            provider: provenance.provider)
    }
}

extension ListedIdentity {
    /// Returns why peers refuse the identity at `date`, as ``CertificateChain/obstacle(in:for:at:)`` does for its usage;
    /// `nil` if nothing speaks against it.
    package func obstacle(at date: Date) -> String? {
        CertificateChain.obstacle(in: certificateChain, for: usage, at: date)
    }

    /// The time from which peers refuse the identity: the earliest end in its chain.
    package var expiry: Date { CertificateChain.expiry(of: certificateChain) }

    /// Returns whether the whole chain is valid at `date`.
    package func status(at date: Date) -> X509Certificate.ValidityStatus {
        CertificateChain.status(of: certificateChain, at: date)
    }
}
