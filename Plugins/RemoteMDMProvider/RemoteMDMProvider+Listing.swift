public import CertificateProviding
import ServerTransport

extension RemoteMDMProvider: IdentityListing {
    public var listing: (any IdentityListing)? { self }

    /// Returns the stored identity. What the server would issue is not known before it does.
    public func listIdentities() async -> IdentityList {
        do throws(CertificateProviderError) {
            return try await environment.executor.run { [self] () throws(CertificateProviderError) in
                var list = IdentityList()
                let settings = try settings()
                let entry = try environment.storage.entry(named: settings.entryName)
                if let entry {
                    list.identities.append(Self.listed(entry))
                    // Whether its key can be had says the other one; the certificate is here.
                    do throws(CertificateProviderError) { _ = try getStoredCertificate() } catch {
                        list.failures.append(error)
                    }
                }
                let record = try environment.storage.record(named: settings.recordName)
                let pending = try record.flatMap { record throws(CertificateProviderError) in
                    try PendingEnrolment(record)
                }
                list.remarks += pending.flatMap { Self.remark(on: $0, entry, settings) }.map { [$0] } ?? []
                if entry == nil, try isServerUnknown(settings) {
                    let remark =
                        "No trust anchor is configured for \(settings.server.authority): the first enrolment needs a person "
                        + "at a terminal who confirms its authority. Set 'ca-fingerprint' or 'trust-anchors'."
                    list.remarks.append(remark)
                    list.choice = .failure(CertificateProviderError(.interactionRequired, remark, provider: id))
                }
                return list
            }
        } catch {
            return IdentityList(failures: [error.attributed(to: id)])
        }
    }

    private static func remark(
        on pending: PendingEnrolment, _ entry: StoredIdentity?, _ settings: EnrolmentSettings
    ) -> String? {
        if let current = entry.flatMap({ KeptKey($0) }), current.isSame(as: pending.key) {
            // The identity is complete; what it has replaced is in use somewhere, or was not to be had.
            return pending.replaced?.tokenURI.map {
                "The key that was replaced is still in its token (\(shown($0))); the next enrolment destroys it."
            }
        }
        let server = settings.server.authority
        return pending.isUndecided
            ? "\(server) has not decided yet on a request for \(settings.names.subjectText)."
            : "An enrolment with \(server) did not come to its end; the next one goes on."
    }

    private func isServerUnknown(_ settings: EnrolmentSettings) throws(CertificateProviderError) -> Bool {
        guard !settings.configuredTrust.hasAnchors else { return false }
        let access = try ServerAccess(settings, environment, retryPolicy)
        return try AuthorityTrust(settings, environment, NoUserInteraction(), access).isToBeConfirmed
    }

    /// Without how its token is reached.
    private static func shown(_ keyURI: String) -> String { String(keyURI.prefix { $0 != "?" }).withVisibleControls }

    private static func listed(_ entry: StoredIdentity) -> ListedIdentity {
        ListedIdentity(
            provider: id, alias: nil, isStored: true, certificateChain: entry.certificateChain,
            keyLocation: entry.privateKey == nil ? .token : .store, isKeyExportable: entry.privateKey != nil,
            keyURI: KeptKey(entry)?.tokenURI.map(shown))
    }
}
