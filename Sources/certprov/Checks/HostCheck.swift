import CertificateProviding
import FoundationEssentials
import Glibc
import IdentityFiles
import IdentityStore
import Logon
import PluginHost

/// The result of one check.
struct Finding: Sendable {
    enum Severity: String, Sendable {
        case ok
        /// A problem that does not prevent operation.
        case warning
        /// A problem that needs manual action.
        case error
    }

    var severity: Severity
    var what: String
    var detail: String
    /// The code of the error, if the check failed with one.
    var code: ProviderError.Code?
    var reason: ProviderError.Reason?

    static func ok(_ what: String, _ detail: String) -> Finding { Finding(severity: .ok, what: what, detail: detail) }

    static func warning(_ what: String, _ detail: String) -> Finding {
        Finding(severity: .warning, what: what, detail: detail)
    }

    static func error(_ what: String, _ error: ProviderError) -> Finding {
        Finding(severity: .error, what: what, detail: error.message, code: error.code, reason: error.reason)
    }

    /// The finding with an error lowered to a warning.
    var asWarning: Finding {
        var copy = self
        if severity == .error { copy.severity = .warning }
        return copy
    }
}

/// Checks the host, from the property file to the server's port. Does not prompt and does not change anything, but logs
/// in to a token whose PIN is configured, and tries a write to the store.
struct HostCheck {
    /// The time before expiry at which to warn of a certificate without planned renewal, in seconds.
    private static let notice: TimeInterval = 14 * 86400
    private let context: CommandContext
    private let timer: RenewalTimer
    /// The time before expiry at which a certificate is an error.
    private let limit: SpanOfTime?

    init(_ context: CommandContext, _ timer: RenewalTimer, expiresWithin limit: SpanOfTime?) {
        (self.context, self.timer, self.limit) = (context, timer, limit)
    }

    func run() async -> [Finding] {
        let configuration: LogonConfiguration
        let manager: LogonManager
        let vault: DataVault?
        do throws(ProviderError) {
            configuration = try context.configurationWithoutRemarks()
            (manager, vault) = try context.managerAsItIs(configuration)
        } catch {
            return [.error("configuration", error)]
        }
        var unlocking: ProviderError?
        if let vault {
            do throws(ProviderError) { try await context.unlock(vault, of: manager) } catch {
                unlocking = error
            }
        }
        // Each further look at the vault would wait for the lock again.
        if let unlocking, unlocking.reason == .busy {
            return [origin(of: configuration), .error("registration", unlocking)]
        }
        var findings = [origin(of: configuration)]
        findings += configuration.warnings.map { .warning("configuration", $0) }
        findings += configuration.hostValues.map { .ok($0.key, $0.text.withVisibleControls) }
        do throws(ProviderError) {
            try context.identityStore().checkWritable()
        } catch {
            findings.append(.error("store", error))
        }
        // An application may register by a password.
        if vault == nil || configuration.userCreationPolicy == .certificate {
            do throws(ProviderError) { try manager.requireProviders() } catch {
                findings.append(.error("configuration", error))
            }
        }
        findings += await unusablePlugins(configuration)
        let anchors = AnchorCheck(now: Date(), limit: limit)
        findings += await ParameterCheck(sectionsOf: configuration, context, manager.keyStores, anchors).run()
        if vault != nil { findings += await registration(configuration, manager, unlocking) }
        for configured in configuration.providers {
            let challenges = ChallengeCheck(configured, manager)?.run() ?? []
            findings +=
                await ParameterCheck(context, configured, configuration, manager.keyStores, anchors).run()
                .filter { parameter in !challenges.contains { $0.what == parameter.what } } + challenges
        }
        // A needed person is an error if 'fetch' would come to that.
        var isSettled = false
        var stored: Identity?
        var failure: ProviderError?
        if !manager.providers.isEmpty {
            do throws(ProviderError) {
                stored = try await manager.storedIdentity()
                isSettled = stored?.hasExpired(at: Date()) == false
                findings += files(configuration, stored)
                findings += issuer(configuration, stored)
            } catch {
                failure = error
            }
        }
        let trust = TrustCheck(configuration, at: Date(), expiresWithin: limit)
        findings += trust.run(stored, failure: failure)
        if let stored { findings += await trust.path(of: stored) }
        findings += await RequestsCheck(context, configuration.settings).run(manager, stored, path: configuration.path)
        findings += ServeCheck(configuration: configuration, stored: stored).run()
        for provider in manager.providers {
            let parameters = configuration.providers.first { $0.id == provider.id }?.parameters
            let plan = parameters?.plannedRenewal(provider: provider.id)
            findings += await check(provider, plan, isSettled: &isSettled)
        }
        if let failure, !findings.contains(where: { $0.severity == .error && $0.code == failure.code }) {
            findings.append(.error(failure.provider.map { "\($0)" } ?? "stored", failure))
        }
        if let host = configuration.host, let port = configuration.port {
            findings.append(PortCheck(host: host, port: port).run())
        }
        guard stored?.status(at: Date()) == .valid else { return findings }
        // An administrator's shell is not the unit that has the credentials.
        return findings.map { $0.reason == .outsideUnit ? $0.asWarning : $0 }
    }

    /// Checks whether other programs have the stored identity, and else whether they could get it.
    private func files(_ configuration: LogonConfiguration, _ stored: Identity?) -> [Finding] {
        let what = "Files.directory"
        var findings: [Finding] = []
        do throws(ProviderError) {
            guard let export = try context.filesExport(configuration) else { return [] }
            try export.checkOwners()
            let isCurrent = try stored.map { identity throws(ProviderError) in
                try export.isCurrent(identity)
            }
            if let program = export.missingProgram {
                let finding = Finding.error(
                    "Files.reload",
                    ProviderError(
                        .unavailable,
                        "\(program.withVisibleControls) is missing, or cannot be executed: no program would be told of new files; "
                            + "install it, or correct the line"))
                findings.append(isCurrent == true && export.isNotified ? finding.asWarning : finding)
            }
            try export.checkWritable(isCurrent: isCurrent == true)
            switch isCurrent {
            case nil: findings.append(.warning(what, "No identity is stored to be written; run: certprov fetch"))
            case false?:
                findings.append(.warning(what, "The files are not those of the stored identity; run: certprov renew"))
            case true? where export.isNotified: findings.append(.ok(what, "has the stored identity"))
            case true?:
                findings.append(
                    .warning(what, "Programs have not been told of the files (Files.reload); run: certprov renew"))
            }
            if let unit = configuration.path.flatMap(RenewalUnit.renewing) {
                let missing =
                    unit.missingToWrite(below: export.path) + (export.areOfRoot ? [] : unit.missingToGiveFiles)
                if !missing.isEmpty {
                    findings.append(
                        unit.finding(
                            "\(what) timer", "may not write the files of \(export.path.withVisibleControls)", missing,
                            page: "OtherPrograms"))
                }
            }
        } catch { findings.append(.error(what, error)) }
        return findings
    }

    /// A warning if peers do not get the issuer of the stored identity.
    private func issuer(_ configuration: LogonConfiguration, _ stored: Identity?) -> [Finding] {
        let current = (try? context.filesExport(configuration))?.chain ?? []
        guard let stored, let remark = stored.remarkOnIssuer(after: current) else { return [] }
        return [.warning("\(stored.provenance.provider) chain", remark)]
    }

    /// Plugins that are installed and cannot be used. One that is configured has failed before.
    private func unusablePlugins(_ configuration: LogonConfiguration) async -> [Finding] {
        let host = configuration.pluginDirectory.map(context.plugins.searching) ?? context.plugins
        let lookup = ConfigurationLookup(options: context.options, registry: context.registry)
        let plugins = await ListedPlugin.all(of: host, lookup.pluginParameters())
        return host.misnamed.map { .warning("plugin", "\($0.path.withVisibleControls) is not used: \($0.reason)") }
            + plugins.compactMap { plugin in plugin.error.map { .warning("plugin \(plugin.id)", $0.message) } }
    }

    /// Checks what a registration needs, and whether it has happened.
    ///
    /// - Parameter unlocking: Why the vault could not be unlocked.
    private func registration(
        _ configuration: LogonConfiguration, _ manager: LogonManager, _ unlocking: ProviderError?
    ) async -> [Finding] {
        let what = "registration"
        var findings: [Finding] = []
        do throws(ProviderError) {
            try configuration.checkRegistration()
            if let unlocking { throw unlocking }
            switch try await manager.registrationState() {
            case .notRegistered: findings.append(.warning(what, "Not registered yet; run: certprov register"))
            case .registeredLocked:
                findings.append(
                    .warning(what, "The vault is locked; run 'certprov unlock --for 15m', or set Passcode.source."))
            case .registeredUnlocked:
                findings.append(.ok(what, "connection \(try await manager.registeredConnection())"))
            }
        } catch { findings.append(.error(what, error)) }
        let settings = configuration.registration
        let sources = [
            ("passcode", settings.passcodeSource), ("password", settings.passwordSource),
            ("activation code", settings.activationCodeSource), ("vault key's PIN", settings.vaultKeyPINSource),
        ]
        for case (let name, let source?) in sources {
            if let finding = ParameterCheck.secret(source, "\(what) \(name)", context.secrets) {
                findings.append(finding)
            }
        }
        if !settings.pins.isEmpty { findings.append(ParameterCheck.pins(settings.pins, "\(what) pin")) }
        do throws(ProviderError) {
            if try await manager.checkVaultKey() { findings.append(.ok("\(what) vault key", "the key store answers")) }
        } catch { findings.append(.error("\(what) vault key", error)) }
        return findings
    }

    /// Checks that only its owner can change the property file, which names libraries to load and servers to trust.
    private func origin(of configuration: LogonConfiguration) -> Finding {
        guard let path = configuration.path else { return .ok("configuration", "from the command line") }
        let shown = path.withVisibleControls
        var status = stat()
        guard stat(path, &status) == 0, status.st_mode & 0o022 != 0 else { return .ok("configuration", shown) }
        return .error(
            "configuration",
            ProviderError(
                .configurationInvalid, "\(shown) can be changed by others; run: chmod go-w \(path.shellQuoted)"))
    }

    /// - Parameter isSettled: Whether 'fetch' uses a stored identity, or one of an earlier provider.
    private func check(
        _ provider: any CertificateProvider, _ plan: RenewalPolicy?, isSettled: inout Bool
    ) async -> [Finding] {
        guard let listing = provider.listing else {
            do throws(ProviderError) {
                guard let identity = try provider.getStoredCertificate() else {
                    return [.warning("\(provider.id)", "No identity is stored.")]
                }
                let listed = ListedIdentity(identity, isStored: true)
                return [expiry(listed, plan, "\(provider.id)")] + slowTimer(listed, plan)
            } catch {
                return [.error("\(provider.id)", error)]
            }
        }
        let list = await listing.listIdentities()
        defer { if case .success? = list.choice { isSettled = true } }
        return findings(list, plan, of: provider.id, isSettled: isSettled)
    }

    private func findings(
        _ list: IdentityList, _ plan: RenewalPolicy?, of id: ProviderID, isSettled: Bool
    ) -> [Finding] {
        let chosen = try? list.choice?.get()
        var findings = list.identities.map { identity in
            let finding = expiry(identity, plan, "\(id) \(identity.isStored ? "stored" : "available")")
            // If another one would be chosen, this one may be as it is.
            let isInUse =
                identity.isStored || chosen == nil || identity.certificateChain == chosen?.certificateChain
            return isInUse ? finding : finding.asWarning
        }
        findings += list.identities.flatMap { slowTimer($0, plan) }
        findings += list.failures.map { failure($0, id, isSettled) }
        // A remedy for a person is not reported after an earlier failure.
        if case .failure(let error)? = list.choice,
            error.code != .interactionRequired || list.failures.isEmpty,
            !list.failures.contains(where: { $0.code == error.code && $0.message == error.message }),
            !findings.contains(where: { $0.severity == .error && $0.detail == error.message })
        {
            // A stored identity is used until another one is asked for.
            let finding = failure(error, id, isSettled)
            findings.append(isSettled ? finding.asWarning : finding)
        }
        if findings.isEmpty, list.remarks.isEmpty {
            findings.append(.warning("\(id)", "No identity is available yet."))
        }
        let remarks = list.remarks.filter { remark in !findings.contains { $0.detail == remark } }
        return findings + remarks.map { .warning("\(id)", $0) }
    }

    private func failure(_ error: ProviderError, _ id: ProviderID, _ isSettled: Bool) -> Finding {
        let finding = Finding.error("\(id)", error)
        return error.code == .interactionRequired && isSettled ? finding.asWarning : finding
    }

    /// A warning where the stored identity lives too short for the timer.
    private func slowTimer(_ identity: ListedIdentity, _ plan: RenewalPolicy?) -> [Finding] {
        guard identity.isStored, let leaf = identity.certificateChain.first, identity.status(at: Date()) == .valid,
            let remark = timer.remark(
                on: RenewalSchedule(for: leaf, expiring: identity.expiry, policy: plan ?? RenewalPolicy()))
        else { return [] }
        return [.warning("\(identity.provider) timer", "\(leaf.subject): \(remark)")]
    }

    private func expiry(_ identity: ListedIdentity, _ plan: RenewalPolicy?, _ what: String) -> Finding {
        guard let leaf = identity.certificateChain.first else {
            return .warning(what, "The identity has no certificate.")
        }
        let now = Date()
        let (expiry, status) = (identity.expiry, identity.status(at: now))
        let usage = identity.usage == .client ? "" : " for usage=\(identity.usage)"
        let text = "\(leaf.displayName): \(status.rawValue)\(usage), until \(expiry.rfc3339)" + identity.endOfIssuer
        if let error = identity.refusal(at: now) { return .error(what, error) }
        switch status {
        case .expired:
            return .error(
                what,
                ProviderError(
                    .expired, text + ". Replace the certificate at its source, then: certprov fetch"))
        case .notYetValid:
            return .error(what, ProviderError(.notFound, text + ". Check this host's clock."))
        case .valid:
            if let limit, expiry < now.addingTimeInterval(limit.duration / .seconds(1)) {
                return .error(
                    what,
                    ProviderError(
                        .expired,
                        text + ", which is within \(limit). Renew it: certprov fetch --force"))
            }
            if let plan {
                let due = RenewalSchedule(for: leaf, expiring: expiry, policy: plan).due
                return due <= now
                    ? .warning(what, text + ". Its renewal has been due since \(due.rfc3339).") : .ok(what, text)
            }
            // A certificate that lives for a day has the last third.
            let notice = min(Self.notice, expiry.timeIntervalSince(leaf.notValidBefore) / 3)
            let isClose = expiry < now.addingTimeInterval(notice)
            return isClose ? .warning(what, text + ". It expires soon.") : .ok(what, text)
        }
    }
}

extension ListedIdentity {
    /// Names the issuer that ends before the leaf, in brackets; empty if there is none.
    fileprivate var endOfIssuer: String {
        guard let first = certificateChain.min(by: { $0.notValidAfter < $1.notValidAfter }),
            first != certificateChain.first
        else { return "" }
        return " (the end of '\(first.subject)' in its chain)"
    }
}

extension ProviderParameters {
    /// The renewal policy of the parameter `renew-at`; `nil` if it is not set. Its value has been checked before.
    fileprivate func plannedRenewal(provider: ProviderID) -> RenewalPolicy? {
        guard string(Parameter<RenewalPoint>.renewAt.name) != nil else { return nil }
        return (try? renewalPoint(provider: provider)).map { RenewalPolicy(point: $0) }
    }
}
