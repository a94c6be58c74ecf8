import SwiftASN1
import X509

extension X509Certificate {
    /// The URLs of OCSP servers that it names (RFC 5280, section 4.2.2.1); none if the extension is damaged.
    package var ocspURLs: [String] { urls(of: .ocspServer) }

    /// The URLs of its issuer's certificate that it names (`caIssuers`); none if the extension is damaged.
    package var issuerURLs: [String] { urls(of: .issuingCA) }

    /// Whether it is a leaf that its CA never revokes, such as a short-lived one (`noRevAvail`: RFC 9608).
    package var isNeverRevoked: Bool {
        !isAuthority && (try? certificate())?.extensions[oid: [2, 5, 29, 56]] != nil
    }

    private func urls(of method: AuthorityInformationAccess.AccessDescription.AccessMethod) -> [String] {
        guard let access = try? certificate().extensions.authorityInformationAccess else { return [] }
        return access.filter { $0.method == method }.compactMap { description in
            if case .uniformResourceIdentifier(let url) = description.location { url } else { nil }
        }
    }
}
