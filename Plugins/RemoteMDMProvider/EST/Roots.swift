import CertificateProviding
import FoundationEssentials
import SwiftASN1
import X509

/// The roots among a server's certificates (RFC 7030, section 4.1.3).
enum Roots {
    /// Returns the valid self-signed CA certificates. Certificates that link an old root with a new one have the same
    /// subject and issuer, but another signature.
    static func all(in certificates: [X509Certificate], at now: Date) -> [X509Certificate] {
        certificates.filter { one in
            one.isAuthority && one.status(at: now) == .valid && isSelfSigned(one)
        }
    }

    /// Returns the new roots that a known root has certified: a link certificate of it has the new root's name and key
    /// (RFC 4210, section 4.4, NewWithOld).
    ///
    /// - Parameter certificates: From an unverified server.
    static func successors(
        in certificates: [X509Certificate], of old: [X509Certificate], at now: Date
    ) async -> [X509Certificate] {
        var successors: [X509Certificate] = []
        for root in all(in: certificates, at: now) where !old.contains(root) {
            // With the old root's own name, as links have: a subordinate CA could otherwise make a root of its own name
            // and key.
            let links = certificates.filter { link in
                link != root && link.isAuthority && link.isSelfIssued && link.subjectDER == root.subjectDER
                    && link.publicKey == root.publicKey
            }
            for link in links {
                // Otherwise a new root would permit what those forbid.
                for issuer in old where permits(root, noMoreThan: link) && permits(root, noMoreThan: issuer) {
                    // Directly: a CA that the old root has certified does not speak for it.
                    let path = try? await CertificateChain.validated(from: link, among: [], trusting: [issuer], at: now)
                    if path != nil, !successors.contains(root) { successors.append(root) }
                }
            }
        }
        return successors
    }

    /// Whether a root itself has the constraints of another certificate (RFC 5280, section 4.2.1): path length, names,
    /// policies and purposes.
    private static func permits(_ root: X509Certificate, noMoreThan other: X509Certificate) -> Bool {
        guard let root = try? root.certificate(), let other = try? other.certificate() else { return false }
        // Name constraints, policy constraints, extended key usage, any policy inhibited.
        let constraints: [ASN1ObjectIdentifier] = [[2, 5, 29, 30], [2, 5, 29, 36], [2, 5, 29, 37], [2, 5, 29, 54]]
        guard
            constraints.allSatisfy({ type in
                other.extensions[oid: type].map { $0.value == root.extensions[oid: type]?.value } ?? true
            })
        else { return false }
        guard case .isCertificateAuthority(let limit?) = try? other.extensions.basicConstraints else { return true }
        guard case .isCertificateAuthority(let own?) = try? root.extensions.basicConstraints else { return false }
        return own <= limit
    }

    private static func isSelfSigned(_ certificate: X509Certificate) -> Bool {
        guard certificate.isSelfIssued, let readable = try? certificate.certificate() else { return false }
        return readable.publicKey.isValidSignature(readable.signature, for: readable)
    }
}
