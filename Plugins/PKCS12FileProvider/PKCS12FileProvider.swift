package import CertificateProviding
import CertificateTLS
import FoundationEssentials
import Glibc
import Logging

/// An identity from a PKCS#12 file (RFC 7292), or from a directory of such files.
///
/// ``getCertificate(_:)`` reads the file and stores the chosen identity, sealed, in the identity store.
/// ``getStoredCertificate()`` reads it from there and needs neither the file nor its password. The file is never
/// written.
package final class PKCS12FileProvider: CertificateProvider {
    /// The provider's identifier in configurations, `pkcs12`.
    package static let id = ProviderID("pkcs12")
    /// The provider's identifier.
    package var id: ProviderID { Self.id }

    let environment: ProviderEnvironment
    let settings: Settings
    private let watch: SourceWatch<PKCS12Reading>

    /// The parameters, checked.
    struct Settings: Sendable {
        let source: PKCS12Source
        let passwordSource: SecretSource?
        let alias: String?
        let usage: IdentityUsage
        /// The name of the entry in the identity store. Derived from path, alias and usage, so that another file, alias or usage
        /// has an entry of its own.
        let entryName: String

        init(source: PKCS12Source, passwordSource: SecretSource?, alias: String?, usage: IdentityUsage) {
            (self.source, self.passwordSource, self.alias, self.usage) = (source, passwordSource, alias, usage)
            entryName = StoredIdentity.name(
                distinguishedBy: [source.path, alias ?? ""] + usage.distinguishingProperties)
        }

        /// Whether the file has changed since the stored identity was read from it. A file that is gone has not: the stored copy
        /// does not need it. In a directory, another one may have taken its place.
        func isChanged(in environment: ProviderEnvironment) -> Bool {
            guard let entry = try? environment.storage.entry(named: entryName),
                let file = entry.attributes[Attribute.file],
                let digest = entry.attributes[Attribute.fileDigest]
            else { return false }
            guard let bytes = try? source.read(file) else {
                return file != source.path && FileStamp(of: file) == nil && (try? source.files()) != nil
            }
            return PKCS12Source.digest(of: bytes) != digest
        }
    }

    /// The names of the attributes of a stored identity.
    enum Attribute {
        static let alias = "alias"
        static let file = "file"
        static let fileDigest = "sha256"
    }

    /// Creates a provider. Reads no file yet.
    ///
    /// - Throws: `unsupportedParameter` or `configurationInvalid` for the parameters.
    package convenience init(
        environment: ProviderEnvironment, parameters: ProviderParameters
    ) throws(ProviderError) {
        self.init(environment, try Self.descriptor.check(parameters, environment))
    }

    init(_ environment: ProviderEnvironment, _ parameters: Parameters) {
        self.environment = environment
        let settings = Settings(
            source: PKCS12Source(path: RegularFile.absolute(parameters[Parameter.path])),
            passwordSource: parameters[Parameter.passwordSource], alias: parameters[Parameter.alias],
            usage: parameters[IdentityUsage.parameter])
        self.settings = settings
        watch = SourceWatch(environment) {
            settings.source.stamps()
        } read: { () throws(ProviderError) in
            guard settings.isChanged(in: environment) else { return nil }
            if settings.passwordSource == .prompt {
                environment.logger.warning(
                    "the PKCS#12 file has changed, and its password can only be asked for; run 'certprov fetch'",
                    metadata: ["path": "\(DisplayText.visible(settings.source.path))"])
                return nil
            }
            let password = try settings.passwordSource.map { source throws(ProviderError) in
                try environment.secrets.read(source)
            }
            let reading = try PKCS12Reading(settings.source, password: password)
            _ = try reading.choose(alias: settings.alias, for: settings.usage)
            return reading
        } isChanged: {
            settings.isChanged(in: environment)
        }
    }

    /// Announces changes of the file, whose identity then replaces the stored one.
    package var updates: (any UpdateAnnouncing)? { watch }

    /// Ends the announcements.
    package func shutdown() async { watch.end() }

    /// Reads the file and stores the chosen identity. Asks for the password if `password-source` is `prompt`.
    ///
    /// Reads and decrypts on the environment's executor.
    ///
    /// - Throws: `fileNotFound`, or `configurationInvalid` for a file that cannot be read; `malformedData`;
    ///   `wrongPassword`; `unsupportedAlgorithm`; `keyMismatch`; `notFound` for a file without the identity;
    ///   `interactionRequired`; `storeWriteFailed`. The stored identity stays if it can be used and the file's cannot:
    ///   `pending` if the file's chain is expired or not yet valid, `unsupportedAlgorithm` or `malformedData` if it is not
    ///   for TLS.
    package func getCertificate(_ interaction: any UserInteraction) async throws(ProviderError) -> Identity {
        do throws(ProviderError) {
            let stamps = try await environment.executor.run { [settings] () throws(ProviderError) in
                settings.source.stamps()
            }
            let loaded = watch.take(stamps)
            var password: SecretBytes?
            if loaded == nil, let source = settings.passwordSource {
                let prompt = "Password for \(DisplayText.visible(settings.source.path))"
                password = try await environment.secret(from: source, prompt: prompt, interaction: interaction)
            }
            let chosen = try await environment.executor.run { [self, settings, password] () throws(ProviderError) in
                let reading = if let loaded { loaded } else { try PKCS12Reading(settings.source, password: password) }
                let chosen = try reading.choose(alias: settings.alias, for: settings.usage)
                if settings.alias == nil {
                    // It may have been meant, so that the choice of another one must not go unnoticed.
                    for failure in reading.failures {
                        environment.logger.warning(
                            "skipped an unusable file or object", metadata: ["reason": "\(failure.message)"])
                    }
                }
                return chosen
            }
            let entry = StoredIdentity(
                certificateChain: chosen.identity.chain, privateKey: chosen.identity.key.pkcs8,
                attributes: [
                    Attribute.alias: chosen.identity.alias, Attribute.file: chosen.file,
                    Attribute.fileDigest: chosen.fileDigest,
                ])
            let identity = try identity(of: entry)
            // The stored one stays until the new one has shown that it works.
            try await identity.verifyPossession()
            let (storage, now) = (environment.storage, environment.now())
            try await environment.executor.run { [self, settings] () throws(ProviderError) in
                // A stored entry that cannot be read, or has no key, may be replaced by any other.
                if let stored = try? storage.entry(named: settings.entryName).map(self.identity(of:)) {
                    do throws(ProviderError) {
                        try identity.requireUsableInTLS(toReplace: stored, at: now)
                    } catch {
                        throw PKCS12Reading.in(chosen.file, error)
                    }
                }
                try storage.setEntry(entry, named: settings.entryName)
            }
            watch.use(stamps)
            environment.logger.debug("identity stored", metadata: ["subject": "\(identity.certificate.subject)"])
            return identity
        } catch {
            throw error.attributed(to: id)
        }
    }

    /// Returns the stored identity, without the file and its password; `nil` if none is stored. Blocks on the store's
    /// files only.
    ///
    /// - Throws: `storeReadFailed`, and errors of the source of the sealing key.
    package func getStoredCertificate() throws(ProviderError) -> Identity? {
        do throws(ProviderError) {
            guard let entry = try environment.storage.entry(named: settings.entryName) else { return nil }
            return try identity(of: entry)
        } catch {
            throw error.attributed(to: id)
        }
    }

    /// Deletes the stored identity. The file is not changed. Blocks on the store's files only.
    ///
    /// - Throws: `deleteFailed`.
    package func deleteStoredCertificate() throws(ProviderError) {
        do throws(ProviderError) {
            try environment.storage.removeEntry(named: settings.entryName)
        } catch {
            throw error.attributed(to: id)
        }
    }
}

extension PKCS12FileProvider {
    private func identity(of entry: StoredIdentity) throws(ProviderError) -> Identity {
        guard let leaf = entry.certificateChain.first, let privateKey = entry.privateKey else {
            throw ProviderError(
                .storeReadFailed, "The stored identity has no key; delete it and fetch it again.", provider: id)
        }
        // Before the key is looked at, so that a weak one is called weak and not damaged.
        try leaf.requireUsableKeySize(provider: id)
        return try Identity(
            certificateChain: entry.certificateChain, key: try SoftwareKey(pkcs8: privateKey, location: .store),
            usage: settings.usage,
            provenance: .init(
                provider: id, alias: entry.attributes[Attribute.alias], source: entry.attributes[Attribute.file]))
    }
}
