public import CertificateProviding
import ServerTransport

extension RemoteMDMProvider: IdentityListing {
    /// Returns the stored identity. What the server would issue is not known before it does.
    public func listIdentities() async -> IdentityList {
        do throws(CertificateProviderError) {
            return try await environment.executor.run { [self] () throws(CertificateProviderError) in
                var list = IdentityList()
                if let stored = try getStoredCertificate() {
                    list.identities.append(ListedIdentity(stored, isStored: true))
                }
                let settings = try settings()
                let record = try environment.storage.record(named: settings.recordName)
                if let pending = try record.flatMap({ record throws(CertificateProviderError) in
                    try PendingEnrolment(record)
                }) {
                    list.remarks.append(
                        pending.isUndecided
                            ? "\(settings.server.authority) has not decided yet on a request for \(settings.names.subjectText)."
                            : "An enrolment with \(settings.server.authority) did not come to its end; the next one goes on."
                    )
                }
                return list
            }
        } catch {
            return IdentityList(failures: [error.attributed(to: id)])
        }
    }
}
