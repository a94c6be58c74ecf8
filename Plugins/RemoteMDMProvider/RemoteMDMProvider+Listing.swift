public import CertificateProviding
import ProviderTransport

extension RemoteMDMProvider: IdentityListing {
    public var listing: (any IdentityListing)? { self }

    /// Returns the stored identity. The server is not contacted. The choice is an error if the server has rejected a configured
    /// password before.
    public func listIdentities() async -> IdentityList {
        do throws(CertificateProviderError) {
            var list = try await storedIdentities()
            if list.choice == nil, let error = await settings.rejectedBefore(environment) {
                list.choice = .failure(error.attributed(to: id))
            }
            return list
        } catch {
            return IdentityList(failures: [error.attributed(to: id)])
        }
    }

    private func storedIdentities() async throws(CertificateProviderError) -> IdentityList {
        try await environment.executor.run { [self] () throws(CertificateProviderError) in
            var list = IdentityList()
            let entry = try environment.storage.entry(named: settings.entryName)
            if let entry {
                // The certificate is listed in any case.
                var identity: Identity?
                do throws(CertificateProviderError) { identity = try getStoredCertificate() } catch {
                    list.failures.append(error)
                }
                list.identities.append(listed(entry, identity?.key))
                if let remark = remarkOnKeyStore(of: entry) { list.remarks.append(remark) }
            }
            let record = try environment.storage.record(named: settings.recordName)
            let pending = try record.map { record throws(CertificateProviderError) in
                try PendingEnrolment(record)
            }
            list.remarks += pending.flatMap { Self.remark(on: $0, entry, settings) }.map { [$0] } ?? []
            if entry == nil, let remark = try remarkOnUser(settings) {
                list.remarks.append(remark)
                list.choice = .failure(CertificateProviderError(.interactionRequired, remark, provider: id))
            }
            return list
        }
    }

    /// Returns a remark if the key of the stored identity is not where new keys are made.
    private func remarkOnKeyStore(of entry: StoredIdentity) -> String? {
        let place: String
        switch OwnedKey(entry) {
        case .stored(let key)? where !keys.isConfigured(key): place = Self.shown(key.uri)
        // One of before there were key stores.
        case .sealed? where keys.store.location != .store: place = "this host's store"
        default: return nil
        }
        return
            "The key of the stored identity is in \(place), and not in the key store of 'key'. The next renewal makes a key "
            + "there; to have one now, run: certprov fetch --force"
    }

    private static func remark(
        on pending: PendingEnrolment, _ entry: StoredIdentity?, _ settings: EnrolmentSettings
    ) -> String? {
        if let current = entry.flatMap({ OwnedKey($0) }), current.isSame(as: pending.key) {
            // The identity is complete; the replaced key may be in use, or its token was not present.
            return pending.replaced?.reference.map {
                "The replaced key is still in its key store (\(shown($0.uri))); the next enrolment destroys it."
            }
        }
        let server = settings.server.authority
        return pending.isUndecided
            ? "\(server) has not decided yet on a request for \(settings.names.subjectText)."
            : "An enrolment with \(server) was interrupted; the next one resumes it."
    }

    /// Returns a remark if the first enrolment asks a person.
    private func remarkOnUser(_ settings: EnrolmentSettings) throws(CertificateProviderError) -> String? {
        if try isServerUnknown(settings) {
            return "No trust anchor is configured for \(settings.server.authority): the first enrolment needs a "
                + "user at a terminal to confirm its CA. Set 'ca-fingerprint' or 'trust-anchors'."
        }
        return settings.promptedSource.map {
            "The first enrolment with \(settings.server.authority) needs a user at a terminal to enter the secret of '\($0)'. "
                + "Set it to a file or a credential to enrol without one."
        }
    }

    private func isServerUnknown(_ settings: EnrolmentSettings) throws(CertificateProviderError) -> Bool {
        guard !settings.configuredTrust.hasAnchors else { return false }
        let access = try ServerAccess(settings, environment, transport)
        return try AuthorityTrust(settings, environment, NoUserInteraction(), access).isToBeConfirmed
    }

    /// Returns the URI without its query, which names the module and the source of the PIN.
    private static func shown(_ keyURI: String) -> String { DisplayText.visible(String(keyURI.prefix { $0 != "?" })) }

    private func listed(_ entry: StoredIdentity, _ key: (any IdentityKey)?) -> ListedIdentity {
        let owned = OwnedKey(entry)
        let store = owned?.reference.flatMap { try? keys.store(of: $0) }
        return ListedIdentity(
            provider: id, alias: nil, isStored: true, certificateChain: entry.certificateChain,
            keyLocation: key?.location ?? store?.location ?? .store,
            isKeyExportable: key?.exporter != nil || entry.privateKey != nil,
            keyURI: owned?.reference.map { Self.shown($0.uri) })
    }
}
