import CertificateProviding
import FoundationEssentials
import X509

/// The roots among a server's certificates (RFC 7030, section 4.1.3).
enum Roots {
    /// Those that have signed themselves and are valid. The certificates that link an old root with a new one have the
    /// same names, and another signature.
    static func all(in certificates: [X509Certificate], at now: Date) -> [X509Certificate] {
        certificates.filter { one in
            one.isAuthority && one.status(at: now) == .valid && isSelfSigned(one)
        }
    }

    /// The roots that an earlier one vouches for: it has certified the new root's name and key (RFC 4210, section 4.4,
    /// NewWithOld).
    ///
    /// - Parameter certificates: From anybody.
    static func successors(
        in certificates: [X509Certificate], of old: [X509Certificate], at now: Date
    ) async -> [X509Certificate] {
        var successors: [X509Certificate] = []
        for root in all(in: certificates, at: now) where !old.contains(root) {
            // With the old root's own name, as links have: a subordinate authority could make a root of its own name and
            // key, which nobody meant to be one.
            let links = certificates.filter { link in
                link != root && link.isAuthority && link.isSelfIssued && link.subjectDER == root.subjectDER
                    && link.publicKey.isSameKey(as: root.publicKey)
            }
            for link in links {
                // Directly: whoever else the old root lets issue does not speak for it.
                let path = try? await CertificateChain.validated(from: link, among: [], trusting: old, at: now)
                if path != nil, !successors.contains(root) { successors.append(root) }
            }
        }
        return successors
    }

    private static func isSelfSigned(_ certificate: X509Certificate) -> Bool {
        guard certificate.isSelfIssued, let readable = try? certificate.certificate() else { return false }
        return readable.publicKey.isValidSignature(readable.signature, for: readable)
    }
}
