package import CertificateProviding
import FoundationEssentials

extension PKCS12FileProvider: IdentityListing {
    /// The provider itself.
    package var listing: (any IdentityListing)? { self }

    /// Returns the stored identity and those of the file or directory. An identity that is both is listed once, as
    /// stored.
    package func listIdentities() async -> IdentityList {
        do throws(ProviderError) {
            return try await environment.executor.run { [self] in list() }
        } catch {
            return IdentityList(failures: [error.attributed(to: id)])
        }
    }

    private func list() -> IdentityList {
        var list = IdentityList()
        let stored = stored(settings, &list)
        // Apart from the file: a password that is not there says nothing about it.
        let password: SecretBytes?
        do throws(ProviderError) {
            password = try settings.passwordSource.map { source throws(ProviderError) in
                try environment.secrets.read(source)
            }
        } catch {
            list.fail(error.attributed(to: id))
            return list
        }
        do throws(ProviderError) {
            let reading = try PKCS12Reading(settings.source, password: password)
            list.failures += reading.failures.map { $0.attributed(to: id) }
            list.identities += reading.found.map(available).filter {
                $0.certificateChain[0] != stored?.certificateChain[0]
            }
            list.choice = choice(settings, reading)
            if let stored { list.remarks += remarks(on: stored, reading) }
        } catch {
            list.fail(error.attributed(to: id))
            if let stored, error.code == .fileNotFound {
                list.remarks.append(
                    "The stored identity '\(stored.certificateChain[0].subject)' is still used, but its file no "
                        + "longer exists."
                )
            }
        }
        return list
    }

    /// The identity that ``getCertificate(_:)`` would choose.
    private func choice(
        _ settings: Settings, _ reading: PKCS12Reading
    ) -> Result<ListedIdentity, ProviderError> {
        do throws(ProviderError) {
            let chosen = try available(reading.choose(alias: settings.alias, for: settings.usage))
            let leaf = chosen.certificateChain[0]
            try leaf.requireUsableKeySize(provider: id)
            return .success(chosen)
        } catch {
            return .failure(error.attributed(to: id))
        }
    }

    private func stored(_ settings: Settings, _ list: inout IdentityList) -> StoredIdentity? {
        do throws(ProviderError) {
            guard let entry = try environment.storage.entry(named: settings.entryName) else { return nil }
            list.identities.append(
                ListedIdentity(
                    provider: id, alias: entry.attributes[Attribute.alias], isStored: true,
                    certificateChain: entry.certificateChain, keyLocation: .store, isKeyExportable: true,
                    usage: settings.usage))
            return entry
        } catch {
            list.failures.append(error.attributed(to: id))
            return nil
        }
    }

    private func available(_ found: PKCS12Reading.Found) -> ListedIdentity {
        ListedIdentity(
            provider: id, alias: found.identity.alias, isStored: false, certificateChain: found.identity.chain,
            keyLocation: .file, isKeyExportable: true, usage: settings.usage)
    }

    private func remarks(on stored: StoredIdentity, _ reading: PKCS12Reading) -> [String] {
        guard let file = stored.attributes[Attribute.file], let digest = stored.attributes[Attribute.fileDigest],
            let current = reading.found.first(where: { $0.file == file })?.fileDigest, current != digest
        else { return [] }
        return [
            "\(DisplayText.visible(file)) has changed since '\(stored.certificateChain[0].subject)' was read from it; "
                + "'certprov fetch' reads it again."
        ]
    }
}

extension IdentityList {
    /// Records an error that prevents both the listing and the choice.
    fileprivate mutating func fail(_ error: ProviderError) {
        failures.append(error)
        choice = .failure(error)
    }
}
