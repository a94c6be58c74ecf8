public import CertificateProviding
import ServerTransport

extension RemoteMDMProvider: IdentityListing {
    /// Returns the stored identity. What the server would issue is not known before it does.
    public func listIdentities() async -> IdentityList {
        do throws(CertificateProviderError) {
            return try await environment.executor.run { [self] () throws(CertificateProviderError) in
                var list = IdentityList()
                let settings = try settings()
                if let entry = try environment.storage.entry(named: settings.entryName) {
                    list.identities.append(Self.listed(entry))
                    // Whether its key can be had says the other one; the certificate is here.
                    do throws(CertificateProviderError) { _ = try getStoredCertificate() } catch {
                        list.failures.append(error)
                    }
                }
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

    private static func listed(_ entry: StoredIdentity) -> ListedIdentity {
        ListedIdentity(
            provider: id, alias: nil, isStored: true, certificateChain: entry.certificateChain,
            keyLocation: entry.privateKey == nil ? .token : .store, isKeyExportable: entry.privateKey != nil,
            keyURI: KeptKey(entry)?.tokenURI.map { String($0.prefix { $0 != "?" }) })
    }
}
