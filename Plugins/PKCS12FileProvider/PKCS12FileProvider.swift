public import CertificateProviding
import Crypto
import FoundationEssentials
import Glibc
import Logging
import OpenSSLSupport
import Synchronization

/// An identity out of a PKCS#12 file (RFC 7292), or out of a directory of them.
///
/// ``getCertificate(_:)`` opens the file and seals what it chose into the identity store, from where
/// ``getStoredCertificate()`` answers without the file and its password. The file itself is never written to.
public final class PKCS12FileProvider: CertificateProvider {
    public static let id = ProviderID("pkcs12")
    public var id: ProviderID { Self.id }

    let environment: ProviderEnvironment
    private let library = Mutex<OpenSSLLibrary?>(nil)
    private let state = Mutex(State())

    private struct State {
        var settings: Settings?
        /// The stored identity as it was last read, and the entry and its state that it was read from. The entry's name
        /// as well: the parameters may change while another thread is between reading and remembering.
        var cached: (name: String, version: EntryVersion, identity: Identity)?
    }

    /// The parameters, checked.
    struct Settings: Sendable {
        let source: PKCS12Source
        let passwordSource: SecretSource?
        let alias: String?
        /// The entry in the store. Another file or alias is another identity, and must never be answered from this one.
        let entryName: String

        init(source: PKCS12Source, passwordSource: SecretSource?, alias: String?) {
            self.source = source
            self.passwordSource = passwordSource
            self.alias = alias
            let name = Array("\(source.path)\0\(alias ?? "")".utf8)
            self.entryName = String(Array(SHA256.hash(data: name)).hexEncoded.prefix(32))
        }
    }

    /// What is noted beside a stored identity.
    enum Attribute {
        static let alias = "alias"
        static let file = "file"
        static let fileDigest = "sha256"
    }

    public init(environment: ProviderEnvironment) { self.environment = environment }

    public func setParameters(_ parameters: ProviderParameters) throws(CertificateProviderError) {
        try parameters.refuseUnknown(knowing: Self.parameters, provider: id)
        let path = try parameters.requiredString(Parameter.path, provider: id)
        guard !path.utf8.contains(0) else { throw parameters.invalid(Parameter.path, "contains a NUL character, which a path cannot have", provider: id) }
        let settings = Settings(
            source: PKCS12Source(path: Self.absolute(path)),
            passwordSource: try parameters.secretSource(Parameter.passwordSource, provider: id),
            alias: parameters.string(Parameter.alias))
        state.withLock { $0 = State(settings: settings) }
    }

    /// Opens the file, asking for its password where `password-source` is `prompt`, and stores the chosen identity.
    ///
    /// - Throws: Also `pending` where its certificate is not valid by the wall clock and the stored one is, which stays.
    public func getCertificate(_ interaction: any UserInteraction) async throws(CertificateProviderError) -> Identity {
        do throws(CertificateProviderError) {
            let settings = try settings()
            let password: SecretBytes?
            if let source = settings.passwordSource {
                let prompt = "Password for \(settings.source.path.withVisibleControls)"
                password = try await environment.secret(from: source, prompt: prompt, interaction: interaction)
            } else {
                password = nil
            }
            let chosen = try await environment.executor.run { [self] () throws(CertificateProviderError) in
                let reading = try PKCS12Reading(settings.source, password: password, library: openSSL())
                let chosen = try reading.choose(alias: settings.alias)
                if settings.alias == nil {
                    // It may have been meant, so that the choice of another one must not go unnoticed.
                    for failure in reading.failures {
                        environment.logger.warning("skipped an unusable file or object", metadata: ["reason": "\(failure.message)"])
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
            let identity = try Self.identity(of: entry)
            // The stored one stays until the new one has shown that it works.
            try await identity.verifyPossession()
            let (storage, now) = (environment.storage, environment.now())
            try await environment.executor.run { () throws(CertificateProviderError) in
                // What cannot be read stands in nobody's way.
                if let stored = try? storage.entry(named: settings.entryName)?.certificateChain.first {
                    try Self.require(identity.certificate, of: chosen.file, toReplace: stored, at: now)
                }
                try storage.setEntry(entry, named: settings.entryName)
            }
            environment.logger.debug("identity stored", metadata: ["subject": "\(identity.certificate.subject)"])
            return identity
        } catch {
            throw error.attributed(to: id)
        }
    }

    public func getStoredCertificate() throws(CertificateProviderError) -> Identity? {
        do throws(CertificateProviderError) {
            let (known, cached) = state.withLock { ($0.settings?.entryName, $0.cached) }
            // Asked for once more only to say what is missing.
            let name = if let known { known } else { try settings().entryName }
            guard let version = try environment.storage.version(ofEntryNamed: name) else { return nil }
            if let cached, cached.name == name, cached.version == version { return cached.identity }
            guard let entry = try environment.storage.entry(named: name) else { return nil }
            let identity = try Self.identity(of: entry)
            // The entry may have been replaced since its version was read: then the next call reads it again.
            state.withLock { $0.cached = (name, version, identity) }
            return identity
        } catch {
            throw error.attributed(to: id)
        }
    }

    public func deleteStoredCertificate() throws(CertificateProviderError) {
        do throws(CertificateProviderError) {
            let name = try settings().entryName
            state.withLock { $0.cached = nil }
            try environment.storage.removeEntry(named: name)
        } catch {
            throw error.attributed(to: id)
        }
    }
}

extension PKCS12FileProvider {
    func settings() throws(CertificateProviderError) -> Settings {
        guard let settings = state.withLock({ $0.settings }) else {
            throw CertificateProviderError(
                .configurationInvalid, "The parameter 'path' is missing: set CertificateProvider.\(id).path.",
                provider: id)
        }
        return settings
    }

    /// OpenSSL is started when it is first needed: answering from the store does without it.
    func openSSL() -> OpenSSLLibrary {
        library.withLock { library in
            let opened = library ?? OpenSSLLibrary()
            library = opened
            return opened
        }
    }

    private static func identity(of entry: StoredIdentity) throws(CertificateProviderError) -> Identity {
        guard let leaf = entry.certificateChain.first, let privateKey = entry.privateKey else {
            throw CertificateProviderError(
                .storeReadFailed, "The stored identity has no key; delete it and fetch it again.", provider: id)
        }
        // Before the key is looked at, so that a weak one is called weak and not damaged.
        try Identity.checkStrength(of: leaf.publicKey, subject: leaf.subject, provider: id)
        return try Identity(
            certificateChain: entry.certificateChain, key: try SoftwareKey(pkcs8: privateKey, location: .store),
            provenance: .init(
                provider: id, alias: entry.attributes[Attribute.alias], source: entry.attributes[Attribute.file]))
    }

    /// Refuses a certificate that is of no use in place of one that is: a file that nobody has looked after must not
    /// end a service that runs.
    private static func require(
        _ new: X509Certificate, of file: String, toReplace stored: X509Certificate, at now: Date
    ) throws(CertificateProviderError) {
        // The authority's clock may be some minutes ahead.
        let isUsable = now <= new.notValidAfter && now.addingTimeInterval(300) >= new.notValidBefore
        guard !isUsable, stored.status(at: now) == .valid, new != stored else { return }
        let status = now > new.notValidAfter ? "has expired" : "is not valid yet"
        throw CertificateProviderError(
            .pending,
            "The certificate of '\(new.subject)' in \(file.withVisibleControls) \(status); the stored one is valid "
                + "and stays in use. Replace the file, or check this host's clock.")
    }

    /// A relative path means the same file for as long as the process runs, wherever it goes.
    private static func absolute(_ path: String) -> String {
        if path.hasPrefix("/") { return path }
        var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
        guard getcwd(&buffer, buffer.count) != nil else { return path }
        let directory = buffer.withUnsafeBytes { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
        return (directory == "/" ? "" : directory) + "/" + (path.hasPrefix("./") ? String(path.dropFirst(2)) : path)
    }
}
