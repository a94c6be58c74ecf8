import CertificateProviding

extension ProviderStorage {
    static let records = "records"

    func record(named name: String) throws(ProviderError) -> SecretBytes? {
        try content(named: name, in: Self.records)
    }

    func updateRecord(
        named name: String, _ change: (SecretBytes?) throws(ProviderError) -> SecretBytes?
    ) throws(ProviderError) {
        try changing(name) { root throws(ProviderError) in
            // A file of a killed writer may be of a record that is to be gone.
            (try? openDirectory(Self.records))??.removeAbandonedFiles(store.files)
            guard let new = try change(try record(named: name)) else { return }
            if new.isEmpty { try unlinkRecord(named: name) } else { try write(new, name, in: Self.records, root) }
        }
    }

    func removeRecord(named name: String) throws(ProviderError) {
        try changing(name) { _ throws(ProviderError) in
            let subject = subject(name, in: Self.records)
            let file = try reading(subject) { () throws(SafeDirectory.Refusal) in
                let directory = try openDirectory(Self.records)
                // A file of a killed writer may be of this record.
                directory?.removeAbandonedFiles(store.files)
                return try directory?.read(name, atMost: IdentityStore.maximumEntrySize)
            }
            guard let file else { return }
            if let version = SealedEnvelope.version(of: file), version > SealedEnvelope.version {
                throw describe(SealedEnvelope.Failure.newerVersion(version), name, in: Self.records)
            }
            try unlinkRecord(named: name)
        }
    }

    /// Leaves no copy, unlike a write, which restores the old content if it cannot be flushed. Call it with the lock held.
    private func unlinkRecord(named name: String) throws(ProviderError) {
        var isGone = false
        do throws(SafeDirectory.Refusal) {
            guard let directory = try openDirectory(Self.records) else { return }
            try directory.remove(name, store.files)
            isGone = true
            try directory.flush(store.files)
        } catch {
            guard isGone else { throw writeFailure(error) }
            throw ProviderError(
                .storeWriteFailed,
                "The record \(store.path)/\(Self.records)/\(provider)/\(name) is removed, but a power failure may restore it: "
                    + "\(error.reason).", provider: owner)
        }
    }

    func leaseRecord(named name: String) throws(ProviderError) -> RecordLease? {
        guard Self.isPermitted(name) else { throw writeFailure(Self.nameRule) }
        do throws(SafeDirectory.Refusal) {
            return try LeaseFile(name, in: try directoryOfRecords(), store.files).map { file in
                RecordLease(isUnsettled: file.isUnsettled) {
                    file.isAwaited
                } note: {
                    file.note(isUnsettled: $0)
                }
            }
        } catch {
            throw writeFailure(error)
        }
    }

    /// Returns the directory of the records. Creates it under the store's lock if it does not exist.
    private func directoryOfRecords() throws(SafeDirectory.Refusal) -> SafeDirectory {
        if let directory = try openDirectory(Self.records) { return directory }
        let root = try SafeDirectory.create(store.path, store.files)
        let lock = try StoreLock(in: root, timeout: store.lockTimeout, store.files)
        defer { withExtendedLifetime(lock) {} }
        return try root.create(Self.records, store.files).create(provider.rawValue, store.files)
    }
}
