public import CertificateProviding
import Logging

/// An identity in PEM files (RFC 7468), which another program replaces; the private key may be in a key store instead.
///
/// Nothing of the files is copied. ``getCertificate(_:)`` reads them and stores that the identity is in use; from then on
/// ``getStoredCertificate()`` reads them. ``updates`` announces that they have changed.
public final class PEMFileProvider: CertificateProvider {
    /// The provider's identifier in configurations, `pem`.
    public static let id = ProviderID("pem")
    /// The provider's identifier.
    public var id: ProviderID { Self.id }

    let environment: ProviderEnvironment
    let source: PEMSource
    private let passwordSource: SecretSource?
    private let usage: IdentityUsage
    /// The name of the record.
    private let recordName: String
    private let watch: SourceWatch

    /// Creates a provider. Reads no file yet.
    ///
    /// - Throws: `unsupportedParameter` or `configurationInvalid` for the parameters.
    public convenience init(
        environment: ProviderEnvironment, parameters: ProviderParameters
    ) throws(CertificateProviderError) {
        try self.init(environment, try Self.descriptor.check(parameters, environment))
    }

    init(_ environment: ProviderEnvironment, _ parameters: Parameters) throws(CertificateProviderError) {
        if case .file? = parameters[Parameter.key], parameters.isGiven(Parameter.keyPINSource) {
            throw parameters.invalid(
                Parameter.keyPINSource, "is only for a key in a key store; use 'key-password-source'")
        }
        if case .keyStore? = parameters[Parameter.key], parameters.isGiven(Parameter.keyPasswordSource) {
            throw parameters.invalid(Parameter.keyPasswordSource, "is only for a key in a file; use 'key-pin-source'")
        }
        let certificate = parameters[Parameter.certificate]
        let source = PEMSource(
            certificate: certificate, key: parameters[Parameter.key], trustBundle: parameters[Parameter.trustBundle])
        let passwordSource = parameters[Parameter.keyPasswordSource]
        (self.environment, self.source, self.passwordSource) = (environment, source, passwordSource)
        usage = parameters[IdentityUsage.parameter]
        recordName = StoredIdentity.name(
            distinguishedBy: [certificate, parameters.text(Parameter.key) ?? ""] + usage.distinguishingProperties)
        watch = SourceWatch(environment) {
            source.stamps()
        } read: {
            do throws(CertificateProviderError) {
                let contents = try source.read()
                guard contents.keys != nil else { return .ready }
                _ = try contents.key(try Self.password(contents, passwordSource, environment.secrets))
                return .ready
            } catch {
                return .unreadable
            }
        }
    }

    /// Announces changes of the files.
    public var updates: (any UpdateAnnouncing)? { watch }

    /// Ends the announcements, and the use of the key store.
    public func shutdown() async {
        watch.end()
        if case .keyStore(_, let store)? = source.key { await store.shutdown() }
    }

    /// Reads the files, lets the key sign a probe, and stores that the identity is in use. Asks for the password of an encrypted key
    /// if `key-password-source` is `prompt`, and for the PIN of a token without a source.
    ///
    /// - Throws: `fileNotFound`, or `configurationInvalid` for a file that cannot be read, or whose key others can read;
    ///   `malformedData`, with file and line; `wrongPassword`; `keyMismatch`; `unsupportedAlgorithm`; `interactionRequired`; errors
    ///   of the key store; `storeWriteFailed`.
    public func getCertificate(_ interaction: any UserInteraction) async throws(CertificateProviderError) -> Identity {
        do throws(CertificateProviderError) {
            let contents = try await environment.executor.run { [source] () throws(CertificateProviderError) in
                try source.read()
            }
            if let warning = contents.keyAccess.warning(about: contents.keys?.file.name ?? contents.path) {
                environment.logger.warning("\(warning)")
            }
            let identity: Identity
            if case .keyStore(let uri, let store)? = source.key {
                var found: (any IdentityKey)?
                for leaf in contents.leaves where found == nil {
                    found = try await store.key(for: KeyReference(publicKey: leaf.publicKey, uri: uri), interaction)
                }
                guard let found else { throw noKey(contents) }
                identity = try self.identity(contents, found)
            } else {
                var password: SecretBytes?
                if contents.needsPassword, let passwordSource {
                    password = try await environment.secret(
                        from: passwordSource, prompt: "Password of the key for \(contents.path)",
                        interaction: interaction)
                }
                identity = try await environment.executor.run { [self, password] () throws(CertificateProviderError) in
                    try fileIdentity(contents, password)
                }
            }
            try await identity.verifyPossession()
            try await environment.executor.run { [self] () throws(CertificateProviderError) in
                let record = try InUseRecord(certificate: source.certificate).encoded()
                try environment.storage.updateRecord(named: recordName) { _ in record }
            }
            watch.use(contents.stamps)
            return identity
        } catch {
            throw named(error).attributed(to: id)
        }
    }

    /// Reads the identity from its files; `nil` if it is not in use. Prompts for nothing. Blocks on the files, for the key
    /// derivation of an encrypted key, and on a token.
    ///
    /// - Throws: As ``getCertificate(_:)``; `pending` while certificate and key do not fit, and one of them was replaced less than a
    ///   minute ago; `storeReadFailed`.
    public func getStoredCertificate() throws(CertificateProviderError) -> Identity? {
        do throws(CertificateProviderError) {
            guard let record = try environment.storage.record(named: recordName) else { return nil }
            try InUseRecord.check(record)
            let contents = try source.read()
            do throws(CertificateProviderError) {
                let identity = try unattended(contents)
                watch.use(contents.stamps)
                return identity
            } catch {
                throw onItsWay(error, contents)
            }
        } catch {
            throw named(error).attributed(to: id)
        }
    }

    /// Returns the identity of the files without a prompt, in use or not, and a warning about its key's file.
    func look() throws(CertificateProviderError) -> (Identity, warning: String?) {
        do throws(CertificateProviderError) {
            let contents = try source.read()
            let warning = contents.keyAccess.warning(about: contents.keys?.file.name ?? contents.path)
            return (try unattended(contents), warning)
        } catch {
            throw named(error)
        }
    }

    /// Forgets that the identity is in use. The files are not changed.
    ///
    /// - Throws: `deleteFailed`.
    public func deleteStoredCertificate() throws(CertificateProviderError) {
        do throws(CertificateProviderError) {
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
    func isInUse() throws(CertificateProviderError) -> Bool { try environment.storage.record(named: recordName) != nil }

    private func fileIdentity(
        _ contents: PEMContents, _ password: SecretBytes?
    ) throws(CertificateProviderError) -> Identity {
        try identity(contents, try contents.key(password))
    }

    private func identity(
        _ contents: PEMContents, _ key: any IdentityKey
    ) throws(CertificateProviderError) -> Identity {
        try Identity(
            certificateChain: CertificateChain.build(for: key.publicKey, among: contents.certificates), key: key,
            trust: contents.trust, usage: usage, provenance: .init(provider: id, source: contents.path))
    }

    /// Returns the identity without a prompt.
    private func unattended(_ contents: PEMContents) throws(CertificateProviderError) -> Identity {
        guard case .keyStore(let uri, let store)? = source.key else {
            return try fileIdentity(contents, try Self.password(contents, passwordSource, environment.secrets))
        }
        for leaf in contents.leaves {
            if let key = try store.storedKey(for: KeyReference(publicKey: leaf.publicKey, uri: uri)) {
                return try identity(contents, key)
            }
        }
        throw noKey(contents)
    }

    private func noKey(_ contents: PEMContents) -> CertificateProviderError {
        CertificateProviderError(
            .keyMismatch,
            "The key store has no private key for '\(contents.leaves[0].subject)' of \(contents.path); put the certificate of the "
                + "key there, or name the key's place in 'key'. An EC key without its public key in the token is found by id= in the "
                + "URI.")
    }

    /// The error of a pair that is in use. One that does not fit may have been replaced in part.
    private func onItsWay(_ error: CertificateProviderError, _ contents: PEMContents) -> CertificateProviderError {
        let now = environment.now()
        guard error.code == .keyMismatch,
            contents.stamps.contains(where: { $0?.isChanged(within: .seconds(60), before: now) ?? false })
        else { return error }
        return CertificateProviderError(
            .pending,
            "\(error.message) One of the two was replaced less than a minute ago: the other one may follow; try again then.",
            retryAfter: .seconds(5), underlying: error)
    }

    private static func password(
        _ contents: PEMContents, _ source: SecretSource?, _ secrets: SecretReader
    ) throws(CertificateProviderError) -> SecretBytes? {
        guard contents.needsPassword, let source else { return nil }
        return try secrets.read(source)
    }

    /// The error with the parameter to set.
    private func named(_ error: CertificateProviderError) -> CertificateProviderError {
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
