public import CertificateProviding

extension EnrollingProvider: IdentityListing {
    public var listing: (any IdentityListing)? { self }

    /// Returns the stored identity, and what the protocol adds. The server is not contacted.
    public func listIdentities() async -> IdentityList {
        do throws(ProviderError) {
            let list = try await environment.executor.run { [self] () throws(ProviderError) in
                try storedIdentities()
            }
            var whole = await server.annotate(list)
            if case .failure(let error)? = whole.choice { whole.choice = .failure(error.attributed(to: id)) }
            return whole
        } catch {
            return IdentityList(failures: [error.attributed(to: id)])
        }
    }

    private func storedIdentities() throws(ProviderError) -> IdentityList {
        var list = IdentityList()
        let entry = try environment.storage.entry(named: plan.storageName)
        if let entry {
            // The certificate is listed in any case.
            var identity: Identity?
            do throws(ProviderError) { identity = try getStoredCertificate() } catch {
                list.failures.append(error)
            }
            list.identities.append(listed(entry, identity?.key))
            if plan.subjectRule != .server, let leaf = entry.certificateChain.first,
                !IssuedCertificate.hasSubject(leaf, of: plan.names)
            {
                list.remarks.append(
                    "\(server.serverName) has issued for the subject '\(leaf.subject)' instead of '\(plan.names.subjectText)'."
                )
            }
            if let type = plan.keyType, let key = entry.certificateChain.first?.publicKey, !type.fits(key) {
                list.remarks.append(
                    "The key of the stored identity is \(key.displayName), and 'key-type' is \(type.rawValue). It counts at the next "
                        + "renewal; to have such a key now, run: certprov fetch --force")
            }
            if let key = entry.key, !keys.isConfigured(key) {
                list.remarks.append(
                    "The key of the stored identity is in \(key.shownURI), and not in the key store of 'key'. The next renewal "
                        + "makes a key there; to have one now, run: certprov fetch --force")
            }
        }
        let pending = try record()
        if let pending, entry?.key.map(pending.key.isSame) != true {
            list.remarks.append(
                pending.isPending
                    ? "\(server.serverName) has not decided yet on a request for \(plan.names.displayText)."
                    : "An enrolment with \(server.serverName) was interrupted; the next one resumes it.")
        }
        // It may be in use, or its token was not present.
        let inUse = [entry?.key, pending?.key].compactMap(\.self)
        list.remarks += try keys.recorded().filter { one in entry != nil && !inUse.contains(where: one.isSame) }.map {
            "The replaced key is still in its key store (\($0.shownURI)); the next enrolment destroys it."
        }
        return list
    }

    private func listed(_ entry: StoredIdentity, _ key: (any IdentityKey)?) -> ListedIdentity {
        let store = entry.key.flatMap { try? keys.store(of: $0) }
        return ListedIdentity(
            provider: id, alias: nil, isStored: true, certificateChain: entry.certificateChain,
            keyLocation: key?.location ?? store?.location ?? .store, isKeyExportable: key?.exporter != nil,
            keyURI: entry.key?.shownURI, usage: plan.usage)
    }
}
