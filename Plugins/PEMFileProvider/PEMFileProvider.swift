package import CertificateProviding
import Logging

/// An identity in PEM files (RFC 7468), which another program replaces; the private key may be in a key store instead.
///
/// Nothing of the files is copied. ``getCertificate(_:)`` reads them and stores that the identity is in use; from then on
/// ``getStoredCertificate()`` reads them. ``updates`` announces that they have changed.
package final class PEMFileProvider: CertificateProvider {
    /// The provider's identifier in configurations, `pem`.
    package static let id = ProviderID("pem")
    /// The provider's identifier.
    package var id: ProviderID { Self.id }

    let environment: ProviderEnvironment
    let source: PEMSource
    private let passwordSource: SecretSource?
    private let usage: IdentityUsage
    /// The name of the record.
    private let recordName: String

    /// The files, with the pair that they have, unless the key is in a key store.
    private typealias Loaded = (contents: PEMContents, pair: PEMContents.Pair?)
    /// Reads the files without a prompt.
    private let load: @Sendable () throws(ProviderError) -> Loaded
    private let watch: SourceWatch<Loaded>

    /// Creates a provider. Reads no file yet.
    ///
    /// - Throws: `unsupportedParameter` or `configurationInvalid` for the parameters.
    package convenience init(
        environment: ProviderEnvironment, parameters: ProviderParameters
    ) throws(ProviderError) {
        try self.init(environment, try Self.descriptor.check(parameters, environment))
    }

    init(_ environment: ProviderEnvironment, _ parameters: Parameters) throws(ProviderError) {
        if case .file? = parameters[Parameter.key], parameters.isGiven(Parameter.keyPINSource) {
            throw parameters.invalid(
                Parameter.keyPINSource, "is only for a key in a key store; use 'key-password-source'")
        }
        if case .keyStore? = parameters[Parameter.key], parameters.isGiven(Parameter.keyPasswordSource) {
            throw parameters.invalid(Parameter.keyPasswordSource, "is only for a key in a file; use 'key-pin-source'")
        }
        let certificate = parameters[Parameter.certificate]
        let source = PEMSource(
            certificate: certificate, key: parameters[Parameter.key], trustBundle: parameters[Parameter.trustBundle],
            isCredential: environment.secrets.isCredential)
        let passwordSource = parameters[Parameter.keyPasswordSource]
        let usage = parameters[IdentityUsage.parameter]
        (self.environment, self.source, self.passwordSource) = (environment, source, passwordSource)
        self.usage = usage
        recordName = StoredIdentity.name(
            distinguishedBy: [certificate, parameters.text(Parameter.key) ?? ""] + usage.distinguishingProperties)
        let load = { @Sendable () throws(ProviderError) -> Loaded in
            let contents = try source.read()
            guard contents.keys != nil else { return (contents, nil) }
            var password: SecretBytes?
            if contents.needsPassword, let passwordSource { password = try environment.secrets.read(passwordSource) }
            return (contents, try contents.pair(password, for: usage, at: environment.now()))
        }
        self.load = load
        watch = SourceWatch(environment, stamps: { source.stamps() }, read: load)
    }

    /// Announces changes of the files.
    package var updates: (any UpdateAnnouncing)? { watch }

    /// Ends the announcements, and the use of the key store.
    package func shutdown() async {
        watch.end()
        if case .keyStore(_, let store)? = source.key { await store.shutdown() }
    }

    /// Reads the files, lets the key sign a probe, and stores that the identity is in use. Asks for the password of an encrypted key
    /// if `key-password-source` is `prompt`, and for the PIN of a token without a source.
    ///
    /// - Throws: `fileNotFound`, or `configurationInvalid` for a file that cannot be read, or whose key others can read;
    ///   `malformedData`, with file and line; `wrongPassword`; `keyMismatch`; `unsupportedAlgorithm`; `interactionRequired`; errors
    ///   of the key store; `storeWriteFailed`.
    package func getCertificate(_ interaction: any UserInteraction) async throws(ProviderError) -> Identity {
        do throws(ProviderError) {
            let contents = try await environment.executor.run { [source] () throws(ProviderError) in
                try source.read()
            }
            if let warning = contents.warning {
                environment.logger.warning("\(warning)")
            }
            let identity: Identity
            if case .keyStore(let uri, let store)? = source.key {
                var found: Identity?
                for chain in contents.chains(for: usage, at: environment.now()) where found == nil {
                    let reference = KeyReference(publicKey: chain[0].publicKey, uri: uri)
                    guard let key = try await store.key(for: reference, interaction) else { continue }
                    found = try self.identity(contents, key, chain)
                }
                guard let found else { throw noKey(contents) }
                identity = found
            } else {
                var password: SecretBytes?
                if contents.needsPassword, let passwordSource {
                    password = try await environment.secret(
                        from: passwordSource, prompt: "Password of the key for \(contents.path)",
                        interaction: interaction)
                }
                identity = try await environment.executor.run { [self, password] () throws(ProviderError) in
                    let pair = try contents.pair(password, for: usage, at: environment.now())
                    return try self.identity(contents, pair.key, pair.chain)
                }
            }
            try await identity.verifyPossession()
            try await environment.executor.run { [self] () throws(ProviderError) in
                let record = try InUseRecord.format.record(of: InUseRecord(certificate: source.certificate))
                try environment.storage.updateRecord(named: recordName) { _ in record }
            }
            watch.use(contents.stamps)
            return identity
        } catch {
            let record = try? await environment.executor.run { [self] () throws(ProviderError) -> Bool in
                try self.isInUse()
            }
            throw named(record == true ? onItsWay(error) : error).attributed(to: id)
        }
    }

    /// Reads the identity from its files; `nil` if it is not in use. Prompts for nothing. Blocks on the files, for the key
    /// derivation of an encrypted key, and on a token.
    ///
    /// - Throws: As ``getCertificate(_:)``; `pending` while a file is missing, damaged, or does not fit the others, and changed less
    ///   than a minute ago; `storeReadFailed`.
    package func getStoredCertificate() throws(ProviderError) -> Identity? {
        do throws(ProviderError) {
            guard let record = try environment.storage.record(named: recordName) else { return nil }
            _ = try InUseRecord.format.content(of: record)
            let loaded = if let taken = watch.take(source.stamps()) { taken } else { try load() }
            let identity = try unattended(loaded)
            watch.use(loaded.contents.stamps)
            return identity
        } catch {
            throw named(onItsWay(error)).attributed(to: id)
        }
    }

    /// Returns the identity of the files without a prompt, in use or not, and remarks about the files.
    func look() throws(ProviderError) -> (Identity, remarks: [String]) {
        do throws(ProviderError) {
            let loaded = try load()
            let identity = try unattended(loaded)
            return (identity, [loaded.contents.warning, source.remark(about: identity)].compactMap(\.self))
        } catch {
            throw named((try? isInUse()) == true ? onItsWay(error) : error)
        }
    }

    /// Forgets that the identity is in use. The files are not changed.
    ///
    /// - Throws: `deleteFailed`.
    package func deleteStoredCertificate() throws(ProviderError) {
        do throws(ProviderError) {
            try environment.storage.removeRecord(named: recordName)
        } catch {
            var error = error.attributed(to: id)
            if error.code == .storeWriteFailed { error.code = .deleteFailed }
            throw error
        }
    }

    // MARK: - Identities

    /// Whether the identity is in use.
    ///
    /// - Throws: `storeReadFailed`.
    func isInUse() throws(ProviderError) -> Bool { try environment.storage.record(named: recordName) != nil }

    private func identity(
        _ contents: PEMContents, _ key: any IdentityKey, _ chain: [X509Certificate]
    ) throws(ProviderError) -> Identity {
        try Identity(
            certificateChain: chain, key: key, trust: contents.trust, usage: usage,
            provenance: .init(provider: id, source: contents.path))
    }

    /// Returns the identity without a prompt.
    private func unattended(_ loaded: Loaded) throws(ProviderError) -> Identity {
        let contents = loaded.contents
        if let pair = loaded.pair { return try identity(contents, pair.key, pair.chain) }
        guard case .keyStore(let uri, let store)? = source.key else { throw noKey(contents) }
        for chain in contents.chains(for: usage, at: environment.now()) {
            if let key = try store.storedKey(for: KeyReference(publicKey: chain[0].publicKey, uri: uri)) {
                return try identity(contents, key, chain)
            }
        }
        throw noKey(contents)
    }

    private func noKey(_ contents: PEMContents) -> ProviderError {
        ProviderError(
            .keyMismatch,
            "The key store has no private key for '\(contents.leaves[0].subject)' of \(contents.path); put the certificate of the "
                + "key there, or name the key's place in 'key'. An EC key without its public key in the token is found by id= in the "
                + "URI.")
    }

    /// The error of files that are in use, which may have been replaced in part.
    private func onItsWay(_ error: ProviderError) -> ProviderError {
        guard source.isOnItsWay(after: error, at: environment.now()) else { return error }
        return ProviderError(
            .pending,
            "\(error.message) The files were replaced less than a minute ago, perhaps in part; try again a minute later.",
            retryAfter: .seconds(5), underlying: error)
    }

    /// The error with the parameter to set.
    private func named(_ error: ProviderError) -> ProviderError {
        guard error.code == .wrongPassword, source.isKeyInFile else { return error }
        var error = error
        error.message += passwordSource == nil ? " Set 'key-password-source'." : " Check 'key-password-source'."
        return error
    }
}

extension PEMSource {
    fileprivate var isKeyInFile: Bool {
        if case .keyStore? = key { return false }
        return true
    }
}
