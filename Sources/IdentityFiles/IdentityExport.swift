package import CertificateProviding
package import FoundationEssentials
import Glibc
import IdentityStore
package import Logging
import SystemPackage

/// Writes the files of an identity for other programs, and notifies these programs.
package struct IdentityExport: Sendable {
    /// How the files are.
    package struct Form: Sendable {
        package var formats: [FileSet.Format] = [.pem]
        package var hasKey = false
        package var keyForm = FileSet.KeyForm.pkcs8
        package var permissions = FilePermissions()
        package var pkcs12: FileSet.PKCS12?

        package init() {}
    }

    /// The directory.
    package let path: String
    private let form: Form
    private let reload: ProgramReload?
    /// Whether timers and services write there, and not only a user who has named the directory on the command line.
    private var isUnattended = false
    private var directory: FileSetDirectory { FileSetDirectory(path: path, permissions: form.permissions) }

    package init(_ directory: String, _ form: Form, reload: ProgramReload? = nil) {
        (path, self.form, self.reload) = (directory, form, reload)
    }

    /// The key of an identity that is to be obtained.
    package enum NewKey {
        case exportable, notExportable
    }

    /// Creates the directory unless it exists, and refuses one that cannot take files: before an identity is obtained for it.
    ///
    /// - Parameter newKey: The key that will be made for the identity; `nil` if that is not known.
    /// - Throws: `storeWriteFailed`; `unsupportedAlgorithm` for a key that cannot be exported.
    package func prepare(for newKey: NewKey? = nil) throws(ProviderError) {
        if form.hasKey, form.keyForm == .pkcs8, newKey == .notExportable {
            throw ProviderError(
                .unsupportedAlgorithm,
                "The private key will stay in its key store; write the files without the key (fetch without --export-key, or "
                    + "Files.key = false). No certificate was requested.")
        }
        try checkOwners()
        try directory.prepare(forAnotherKey: !form.hasKey && newKey != nil)
    }

    /// Refuses a directory below one of another user, who could put another directory in its place.
    ///
    /// - Throws: `storeWriteFailed`.
    package func checkOwners() throws(ProviderError) {
        guard isUnattended else { return }
        do throws(SafeDirectory.Refusal) {
            let parent = try ReachedDirectory.open(FilePath(path).removingLastComponent().string)
            guard let foreign = parent?.foreign else { return }
            throw SafeDirectory.Refusal(
                reason:
                    "\(path) is below \(foreign.path), which belongs to another user (uid \(foreign.owner)), who could have the files "
                    + "written elsewhere; set Files.directory to one whose parents belong to root\(geteuid() == 0 ? "" : " or this user")"
            )
        } catch {
            throw error.error(
                .storeWriteFailed, "The files of the identity are not written: \(error.reason.withVisibleControls).")
        }
    }

    /// Writes the files, unless they are there as they should be. Blocks on the file system. ``notify()`` is the next step.
    ///
    /// - Parameters:
    ///   - logger: Gets an event for new files.
    ///   - warn: Gets what the files have otherwise than the identity, as a sentence.
    /// - Returns: The paths of the files.
    /// - Throws: `unsupportedAlgorithm` for a key that cannot be exported; `pending`, `unsupportedAlgorithm` or `malformedData` for an
    ///   identity that peers refuse, in place of one that they accept; `storeWriteFailed`.
    package func write(
        _ identity: Identity, logger: Logger? = nil, at now: Date = Date(), warn: (String) -> Void = { _ in }
    ) throws(ProviderError) -> [String] {
        let files = try files(identity)
        try checkOwners()
        let current = directory.chain()
        try requireUsable(identity, insteadOf: current, at: now)
        if let remark = identity.remarkOnIssuer(after: current.certificates) { warn(remark) }
        let isNew = (try? directory.holds(files)) != true
        let paths = try directory.write(files, notifies: reload != nil)
        if isNew, let logger { IdentityEvent.filesWritten.write(to: logger, identity, ["path": path]) }
        if identity.trust == nil, let kept = paths.first(where: { $0.hasSuffix("/\(FileSet.trustName)") }) {
            warn(
                "\(kept.withVisibleControls) keeps the CA certificates of before, since '\(identity.certificate.subject)' comes with "
                    + "none. Check the identity's trust bundle; if no program needs the file, remove it.")
        }
        return paths
    }

    /// Notifies programs of a set that they do not know. Blocks for as long as they take, at most two minutes.
    ///
    /// - Returns: What was told: the units, or the path of the program; `nil` if nothing was to be told.
    /// - Throws: `unavailable` or `timedOut` if a program could not be notified: the files are there, and the next call tries again;
    ///   `storeWriteFailed`.
    package func notify() throws(ProviderError) -> String? {
        guard let reload, directory.notNotified != nil else { return nil }
        try directory.notify { () throws(ProviderError) in try reload.run(path) }
        return reload.told
    }

    /// Whether the files are there, of this identity and as they should be.
    ///
    /// - Throws: `unsupportedAlgorithm` for a key that cannot be exported; `storeReadFailed`.
    package func isCurrent(_ identity: Identity) throws(ProviderError) -> Bool {
        try directory.holds(try files(identity))
    }

    /// The certificates that the files have now: the chain, or the leaf alone; none without files.
    package var chain: [X509Certificate] { directory.chain().certificates }

    /// The path of the link that points to the files.
    package var current: String { "\(path)/\(FileSetDirectory.link)" }

    /// As ``FileSetDirectory/checkWritable(isCurrent:)``.
    package func checkWritable(isCurrent: Bool) throws(ProviderError) {
        try directory.checkWritable(isCurrent: isCurrent)
    }

    /// Whether another export writes into the same directory.
    package func hasDirectory(of other: IdentityExport) -> Bool {
        guard let own = try? FilePath(path).stat(), let others = try? FilePath(other.path).stat() else {
            return path == other.path
        }
        return own.deviceID == others.deviceID && own.inode == others.inode
    }

    /// Whether the files are to belong to root and its group, or to the process's where nothing is set.
    package var areOfRoot: Bool { form.permissions.owner ?? 0 == 0 && form.permissions.group ?? 0 == 0 }

    /// Whether the programs have been notified of the files.
    package var isNotified: Bool { reload == nil || directory.notNotified == nil }

    /// The path of the program that notifies others, if it is missing or cannot be executed.
    package var missingProgram: String? { reload?.missingProgram }

    /// Refuses an identity that peers refuse, in place of one that they accept for the same usage.
    private func requireUsable(
        _ identity: Identity, insteadOf current: (certificates: [X509Certificate], isLeafAlone: Bool), at now: Date
    ) throws(ProviderError) {
        // A set in DER has the leaf alone.
        let chain = current.isLeafAlone ? [identity.certificate] : identity.certificateChain
        let lost = identity.lostIssuer(of: current.certificates, at: now)
        guard !current.certificates.isEmpty,
            let obstacle = lost ?? CertificateChain.obstacle(in: chain, for: identity.usage, at: now),
            lost != nil
                || !CertificateChain.isAsUsable(
                    chain, for: identity.usage, as: current.certificates, for: identity.usage, at: now)
        else { return }
        let shown = "\(path)/\(FileSetDirectory.link)".withVisibleControls
        throw ProviderError(
            lost != nil
                ? .malformedData
                : CertificateChain.status(of: chain, at: now) == .valid ? .unsupportedAlgorithm : .pending,
            "The files of \(shown) are unchanged: the certificate of '\(identity.certificate.subject)' cannot be used: \(obstacle). "
                + "Obtain another certificate with its chain, or check this host's clock. To write this one all the same, remove "
                + "\(shown).",
            provider: identity.provenance.provider)
    }

    private func files(_ identity: Identity) throws(ProviderError) -> FileSet {
        try FileSet(
            identity, exportingKey: form.hasKey, keyForm: form.keyForm, formats: form.formats, pkcs12: form.pkcs12)
    }
}

// MARK: - The section of the property file

extension IdentityExport {
    private static let directory = Parameter<String?>(
        "Files.directory", .path, defaultValue: "none",
        summary:
            "Absolute path of a directory in which certprov fetch, certprov renew and services write the identity for other "
            + "programs: DIR/current is switched to the new files in one step."
    ) { text, _ throws(ParameterProblem) in
        guard text.hasPrefix("/") else { throw .expected("must be an absolute path") }
        return text
    }
    private static let key = Parameter.flag(
        "Files.key", needs: needed, summary: "Whether the private key is written, unencrypted but in PKCS#12.")
    private static let keyForm = Parameter<FileSet.KeyForm>.choice(
        "Files.key-form", default: .pkcs8, needs: needed + [.value("Files.key", "true")],
        summary:
            "pkcs8, or tss2 for a key in a TPM (key = tpm:), which stays there: key.pem and identity.pem are for programs with "
            + "OpenSSL's provider tpm2."
    )
    private static let owner = Parameter<String?>(
        "Files.owner", .string, defaultValue: "as the file before, else the user of certprov", needs: needed,
        summary: "Name or number of the user who owns the files. Takes CAP_CHOWN, as root has it."
    ) { text, _ throws(ParameterProblem) in try word(text) }
    private static let group = Parameter<String?>(
        "Files.group", .string, defaultValue: "as the file before, else the group of certprov", needs: needed,
        summary: "Name or number of the group of the files. Takes CAP_CHOWN, or membership of the group."
    ) { text, _ throws(ParameterProblem) in try word(text) }
    private static let mode = Parameter<UInt32?>(
        "Files.mode", .string, defaultValue: "as the file before, else 0600", needs: needed,
        summary: "Mode of the files with the private key: 0600, 0640 for a service's group, 0400, 0440 or 0660."
    ) { text, _ throws(ParameterProblem) in
        guard let mode = FilePermissions.keyMode(text) else { throw .expected(FilePermissions.expectation) }
        return mode
    }
    private static let formats = Parameter<[FileSet.Format]>(
        "Files.formats", .list, absent: [.pem], defaultValue: "pem", needs: needed,
        summary:
            "pem: certificate.pem, chain.pem, ca.pem for the trust bundle, key.pem and identity.pem with the key. der: "
            + "certificate.der, key.der. pkcs12: identity.p12, which needs Files.key = true."
    ) { text, _ throws(ParameterProblem) in
        guard let formats = FileSet.Format.list(text) else { throw .expected(FileSet.Format.expectation) }
        return formats
    }
    private static let passwordSource = Parameter<SecretSource?>(
        "Files.p12-password-source", .secretSource, defaultValue: "none", needs: needed,
        summary: "Password of identity.p12. Never prompt, since a timer and services write the file."
    ) { text, _ throws(ParameterProblem) in
        guard let source = SecretSource(text), source != .prompt else {
            throw .expected("must be file:PATH, env:NAME, fd:N or systemd:NAME")
        }
        return source
    }
    private static let isLegacy = Parameter.flag(
        "Files.p12-legacy", needs: needed,
        summary: "Whether identity.p12 has Triple DES and SHA-1, for programs before OpenSSL 1.1 and Java 8u301.")
    private static let reload = Parameter<ProgramReload?>(
        "Files.reload", .string, defaultValue: "none", needs: needed,
        summary:
            "systemd units that are reloaded when the files have changed, separated by blanks; or the absolute path of a "
            + "program, which gets the directory as its argument."
    ) { text, _ throws(ParameterProblem) in
        guard let reload = ProgramReload(text) else {
            throw .expected(
                "must be names of systemd units, such as nginx.service, separated by blanks, or the absolute path of a "
                    + "program without arguments")
        }
        return reload
    }
    private static let needed = [ParameterCondition.given("Files.directory")]

    private static func word(_ text: String) throws(ParameterProblem) -> String {
        guard !text.isEmpty else { throw .expected("must not be blank") }
        return text
    }

    /// The section `Files.`
    package static let section = SettingsSection(
        title: "Files for other programs", namespaces: ["Files."],
        [
            directory.descriptor, key.descriptor, keyForm.descriptor, owner.descriptor, group.descriptor,
            mode.descriptor, formats.descriptor, passwordSource.descriptor, isLegacy.descriptor, reload.descriptor,
        ])

    /// Creates what the section says; `nil` without `Files.directory`. Reads the password, and looks up user and group.
    ///
    /// - Throws: `configurationInvalid`, and errors of the source of the password.
    package init?(_ settings: Parameters, secrets: SecretReader) throws(ProviderError) {
        guard let path = settings[Self.directory] else { return nil }
        var form = Form()
        form.formats = settings[Self.formats]
        (form.hasKey, form.keyForm) = (settings[Self.key], settings[Self.keyForm])
        guard form.keyForm == .pkcs8 || form.formats == [.pem] else {
            throw settings.invalid(Self.keyForm, "needs Files.formats = pem")
        }
        form.permissions.keyMode = settings[Self.mode]
        if let owner = settings[Self.owner] {
            guard let number = FilePermissions.user(owner) else {
                throw settings.invalid(Self.owner, "names a user that this host does not have")
            }
            form.permissions.owner = number
        }
        if let group = settings[Self.group] {
            guard let number = FilePermissions.group(group) else {
                throw settings.invalid(Self.group, "names a group that this host does not have")
            }
            form.permissions.group = number
        }
        if form.formats.contains(.pkcs12) {
            guard form.hasKey else {
                throw settings.invalid(Self.formats, "has pkcs12, which needs Files.key = true")
            }
            guard let source = settings[Self.passwordSource] else {
                throw settings.invalid(Self.formats, "has pkcs12, which needs Files.p12-password-source")
            }
            let password = try settings.reading(Self.passwordSource) { () throws(ProviderError) in
                try secrets.read(source)
            }
            guard !password.isEmpty else { throw settings.invalid(Self.passwordSource, "names an empty password") }
            form.pkcs12 = FileSet.PKCS12(password: password, isLegacy: settings[Self.isLegacy])
        }
        self.init(path, form, reload: settings[Self.reload])
        isUnattended = true
    }
}
