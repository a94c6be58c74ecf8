public import CertificateProviding

/// The conformance suite for providers. It knows a provider by its descriptor only, so that one in process and one in a plugin
/// pass the same checks.
///
///     let report = await ProviderConformance(MyProvider.descriptor, parameters) { environment }.run()
///
/// The source must have an identity that the provider gets without a person.
public struct ProviderConformance: Sendable {
    private let descriptor: ProviderDescriptor
    private let parameters: ProviderParameters
    private let interaction: any UserInteraction
    private let secrets: [String]
    private let timeout: Duration
    private let environment: @Sendable () throws -> ProviderEnvironment
    private var ignoredCancellation: @Sendable () -> String? = { nil }
    private var unsupported: @Sendable () -> String? = { nil }
    private var files: WrittenFiles?

    /// Creates the suite.
    ///
    /// - Parameters:
    ///   - descriptor: The provider.
    ///   - parameters: Its configuration.
    ///   - interaction: The user for `getCertificate`. The other calls ask no questions.
    ///   - secrets: Texts that must not occur in any description or error, such as the password.
    ///   - timeout: How long a synchronous call may take.
    ///   - environment: Returns an environment of the same storage each time, as after a restart.
    public init(
        _ descriptor: ProviderDescriptor, _ parameters: ProviderParameters,
        interaction: any UserInteraction = NoUserInteraction(), secrets: [String] = [],
        timeout: Duration = .seconds(25),
        environment: @escaping @Sendable () throws -> ProviderEnvironment
    ) {
        (self.descriptor, self.parameters, self.interaction) = (descriptor, parameters, interaction)
        (self.secrets, self.timeout, self.environment) = (secrets, timeout, environment)
    }

    /// Returns a suite for a provider in a process of its own, whose host goes on after some of its mistakes.
    ///
    /// - Parameters:
    ///   - request: Returns the request that it was ended for, since it ignored a cancellation; `nil` if it was not.
    ///   - message: Returns the last request that it does not support; `nil` if there is none.
    ///   - files: Those that it writes.
    package func noting(
        ignoredCancellation request: @escaping @Sendable () -> String?,
        unsupported message: @escaping @Sendable () -> String?, files: WrittenFiles
    ) -> ProviderConformance {
        var suite = self
        (suite.ignoredCancellation, suite.unsupported, suite.files) = (request, message, files)
        return suite
    }

    /// Runs all checks. Gets identities, has one revoked if the provider can, and forgets them: use a source and a store that are made for it.
    ///
    /// - Parameter progress: Gets each result as soon as it is known.
    public func run(
        _ progress: @escaping @Sendable (ConformanceReport.Result) -> Void = { _ in }
    ) async -> ConformanceReport {
        var report = ConformanceReport(progress)
        await report.check(
            "unknownParameterIsRefused", "A parameter that the provider does not document is refused."
        ) {
            var wrong = parameters
            wrong["no-such-parameter"] = .init("value of it")
            try await refuses([.unsupportedParameter], "an unknown parameter") { _ = try make(wrong) }
        }
        await report.check(
            "requiredParameterIsDemanded", "A required parameter that is missing is an error that names it."
        ) {
            guard let name = descriptor.parameters.first(where: \.isRequired)?.name else {
                throw Skip(reason: "The provider requires no parameter.")
            }
            var wrong = parameters
            wrong[name] = nil
            try await refuses([.configurationInvalid], "a configuration without '\(name)'", naming: name) {
                _ = try make(wrong)
            }
        }
        await report.check(
            "descriptionsShowNoSecret", "No description, mirror or error shows a secret."
        ) {
            let provider = try make()
            var dumped = ""
            dump(provider, to: &dumped)
            try hasNoSecret("\(provider) \(String(reflecting: provider)) \(dumped)", "A description of the provider")
            await provider.shutdown()
        }
        let isObtained = await obtained(&report)
        if isObtained { await further(&report) }
        return report
    }

    // MARK: - Checks

    private func obtained(_ report: inout ConformanceReport) async -> Bool {
        await report.check(
            "synchronousCallsAreBounded",
            "getStoredCertificate and deleteStoredCertificate prompt for nothing and return in bounded time."
        ) {
            let provider = try make()
            try inTime("getStoredCertificate") { _ = try? provider.getStoredCertificate() }
            try inTime("deleteStoredCertificate") { try provider.deleteStoredCertificate() }
            await provider.shutdown()
        }
        var leaf: X509Certificate?
        await report.check(
            "anIdentityIsObtained", "getCertificate returns an identity whose key signs for its leaf, and stores it."
        ) {
            let provider = try make()
            let identity = try await provider.getCertificate(interaction)
            try require(identity.provenance.provider == descriptor.id, "The provenance names another provider.")
            try inOrder(identity.certificateChain)
            try await identity.verifyPossession()
            leaf = identity.certificate
            await provider.shutdown()
        }
        await report.check(
            "storedEqualsObtained",
            "getStoredCertificate returns the obtained identity from then on, also after a restart."
        ) {
            guard let leaf else { throw Skip(reason: "No identity was obtained.") }
            let provider = try make()
            let stored = try require(try provider.getStoredCertificate(), "No identity is stored.")
            try require(stored.certificate == leaf, "Another certificate is stored: '\(stored.certificate.subject)'.")
            try await stored.verifyPossession()
            await provider.shutdown()
        }
        if let files {
            await report.check("files", WrittenFiles.demand) {
                if let fault = files.fault() { throw Failure(reason: fault) }
            }
        }
        return leaf != nil
    }

    private func further(_ report: inout ConformanceReport) async {
        await report.check(
            "keySignsInEveryScheme",
            "The key signs with every scheme that it offers, and with no other. Its uses are those that work."
        ) {
            let provider = try make()
            let identity = try require(try provider.getStoredCertificate(), "No identity is stored.")
            try await identity.key.signsValidlyInEveryScheme()
            await provider.shutdown()
        }
        await report.check("concurrentUse", "A provider is shared between tasks: concurrent calls give one identity.") {
            let provider = try make()
            let leaves = try await withThrowingTaskGroup(of: X509Certificate.self) { tasks in
                for number in 0..<16 {
                    tasks.addTask {
                        if number % 2 == 0 { return try await provider.getCertificate(interaction).certificate }
                        let stored = try provider.getStoredCertificate()
                        return try require(stored, "No identity is stored while one is obtained.").certificate
                    }
                }
                return try await tasks.reduce(into: [X509Certificate]()) { $0.append($1) }
            }
            let last = try require(try provider.getStoredCertificate(), "No identity is stored.").certificate
            try require(leaves.contains(last), "The stored identity is none of those that were returned.")
            await provider.shutdown()
        }
        await report.check(
            "cancellation", "getCertificate ends soon when its task is cancelled, and the provider goes on."
        ) {
            let provider = try make()
            let task = Task { try await provider.getCertificate(interaction) }
            task.cancel()
            switch await task.result {
            case .success: break
            case .failure(let error):
                let code = try require(
                    error as? ProviderError, "A cancelled call throws \(type(of: error))."
                ).code
                try require(
                    code == .userCancelled || code == .timedOut,
                    "A cancelled call throws \(code), and not userCancelled.")
            }
            try await provider.getCertificate(interaction).verifyPossession()
            await provider.shutdown()
            if let request = ignoredCancellation() {
                throw Failure(
                    reason: "The request '\(request)' was not answered within two seconds after its cancellation.")
            }
        }
        await report.check("listing", "A listing shows the stored identity, without a prompt.") {
            let provider = try make()
            guard let listing = provider.listing else { throw Skip(reason: "The provider does not list.") }
            let stored = try require(try provider.getStoredCertificate(), "No identity is stored.")
            let list = await listing.listIdentities()
            try require(
                list.identities.contains { $0.certificateChain.first == stored.certificate },
                "The listing does not show '\(stored.certificate.subject)'; failures: \(list.failures).")
            try hasNoSecret("\(list)", "The listing")
            await provider.shutdown()
        }
        await checkConfigurations(&report)
        await checkAbilities(&report)
        await report.check("shutdownIsFinal", "shutdown takes a few seconds at most, and may be called again.") {
            let provider = try make()
            _ = try provider.getStoredCertificate()
            let start = ContinuousClock.now
            await provider.shutdown()
            await provider.shutdown()
            try require(ContinuousClock.now - start < .seconds(20), "Two calls of shutdown take more than 20 seconds.")
        }
        await report.check(
            "forgettingTwice",
            "deleteStoredCertificate removes the stored identity, and succeeds if nothing is stored. One stays only if it is the source "
                + "itself, with its key in a file or a token."
        ) {
            let provider = try make()
            try provider.deleteStoredCertificate()
            try provider.deleteStoredCertificate()
            let stored = try provider.getStoredCertificate()
            if let stored {
                let isSource = [.file, .token].contains(stored.key.location)
                try require(
                    try isSource && environment().storage.entryNames().isEmpty,
                    "'\(stored.certificate.subject)' is still stored, with its key in the location '\(stored.key.location.rawValue)'. "
                        + "Remove it; or say that the key is in a 'file' or 'token', if that is the source itself.")
            }
            try await provider.getCertificate(interaction).verifyPossession()
            if stored == nil {
                try require(
                    try provider.getStoredCertificate() != nil, "An identity that was obtained anew is not stored.")
            }
            try provider.deleteStoredCertificate()
            await provider.shutdown()
        }
        await checkRevocation(&report)
    }

    /// Left out where no parameter with another value can be tried.
    private func checkConfigurations(_ report: inout ConformanceReport) async {
        let others = descriptor.parameters.filter(\.distinguishes).compactMap { parameter in
            other(than: parameters, in: parameter).map { (parameter.name, $0) }
        }
        guard !others.isEmpty else { return }
        await report.check(
            "configurationsAreApart",
            "Another value of a parameter that distinguishes identities does not lead to the stored one."
        ) {
            let provider = try make()
            let stored = try require(try provider.getStoredCertificate(), "No identity is stored.")
            for (name, parameters) in others {
                let other = try make(parameters)
                let found = try? other.getStoredCertificate()
                await other.shutdown()
                try require(
                    found?.certificate != stored.certificate,
                    "With another '\(name)', '\(stored.certificate.subject)' is the stored identity too. Store it under a name that "
                        + "depends on '\(name)', or declare that the parameter does not distinguish identities.")
            }
            await provider.shutdown()
        }
    }

    /// Returns the configuration with another value of a parameter; `nil` if it is not given, or no other value is accepted.
    private func other(than parameters: ProviderParameters, in parameter: ParameterDescriptor) -> ProviderParameters? {
        guard let text = parameters[parameter.name]?.text, !text.isEmpty else { return nil }
        let values: [String] =
            switch parameter.kind {
            case .boolean: [text.lowercased() == "true" ? "false" : "true"]
            case .path, .secretPath, .certificateFile, .library: [text + ".other"]
            case .serverURL: [text + "/other"]
            case .distinguishedName, .names: [text + "-other"]
            case .string: Int(text).map { [String($0 + 1), String($0 - 1)] } ?? [text + "-other"]
            default: []
            }
        return values.lazy.map { value in
            var other = parameters
            other[parameter.name] = .init(value)
            return other
        }.first { (try? make($0)) != nil }
    }

    /// Left out for a provider with none of these abilities.
    private func checkAbilities(_ report: inout ConformanceReport) async {
        guard let provider = try? make(),
            provider.deletions != nil || provider.replacement != nil || provider.advice != nil
        else { return }
        await report.check(
            "abilities",
            "A provider that announces deletions, discards what a new identity replaces, or advises on renewal, does so when it is asked."
        ) {
            let stored = try require(try provider.getStoredCertificate(), "No identity is stored.")
            let sentences = try await provider.deletions?.announcedDeletions() ?? []
            try hasNoSecret("\(sentences)", "The announcement of a deletion")
            try await provider.replacement?.discardReplaced(by: stored, interaction)
            if let advice = provider.advice {
                _ = await advice.refreshAdvice(on: stored)
                let known = advice.advice(on: stored)
                // A service asks often; the answer must not be another one each time.
                _ = await advice.refreshAdvice(on: stored)
                try require(advice.advice(on: stored) == known, "An advice that was just given is another one now.")
            }
            if let message = unsupported() { throw Failure(reason: message) }
        }
        await provider.shutdown()
    }

    /// Left out for a provider that does not revoke. Does not close its account: a server may permit no second one.
    private func checkRevocation(_ report: inout ConformanceReport) async {
        guard let provider = try? make(), provider.revocation != nil else { return }
        await report.check(
            "revocation", "A provider that revokes does so once a certificate is stored, and else says 'notFound'."
        ) {
            let revocation = try require(provider.revocation, "The provider cannot revoke now.")
            try provider.deleteStoredCertificate()
            // A stored entry stays if it is the source itself.
            if try provider.getStoredCertificate() == nil {
                try await refuses([.notFound], "a revocation without a stored certificate") {
                    try await revocation.revokeStoredCertificate(.superseded, interaction)
                }
            }
            let identity = try await provider.getCertificate(interaction)
            try await revocation.revokeStoredCertificate(.superseded, interaction)
            try require(
                try provider.getStoredCertificate()?.certificate == identity.certificate,
                "The identity whose certificate was revoked is not in the store any more.")
            try provider.deleteStoredCertificate()
        }
        await provider.shutdown()
    }

    // MARK: - Helpers

    private func make(_ parameters: ProviderParameters? = nil) throws -> any CertificateProvider {
        let provider = try descriptor.makeProvider(try environment(), parameters ?? self.parameters)
        try require(provider.id == descriptor.id, "The provider calls itself '\(provider.id)'.")
        return provider
    }

    private func refuses(
        _ codes: [ProviderError.Code], _ what: String, naming name: String = "",
        _ body: () async throws -> Void
    ) async throws {
        do { try await body() } catch let error as ProviderError {
            try require(codes.contains(error.code), "\(what) is refused with \(error.code), and not with \(codes[0]).")
            try require(error.message.contains(name), "The error for \(what) does not name it: \(error.message)")
            return try hasNoSecret(error.description, "The error for \(what)")
        }
        throw Failure(reason: "The provider accepts \(what).")
    }

    private func hasNoSecret(_ text: String, _ what: String) throws {
        try require(!secrets.contains { text.contains($0) }, "\(what) shows a secret.")
    }

    private func inTime(_ what: String, _ body: () throws -> Void) throws {
        let start = ContinuousClock.now
        try body()
        try require(ContinuousClock.now - start <= timeout, "\(what) takes longer than \(timeout).")
    }

    private func inOrder(_ chain: [X509Certificate]) throws {
        for (certificate, issuer) in zip(chain, chain.dropFirst()) {
            try require(
                certificate.issuerName == issuer.subjectName,
                "The chain is not in order: '\(issuer.subject)' follows '\(certificate.subject)'.")
        }
    }
}
