import CertificateProviding

/// The steps of operations. Each asks the providers one thing, in order, and records the results.
extension LogonManager {
    /// The codes after which the next provider is tried: the provider has no identity, and its configuration is valid.
    static let fallthroughCodes: Set<CertificateProviderError.Code> = [.notFound, .tokenNotPresent, .unavailable]

    /// Returns the first stored identity.
    func stored(_ log: inout DecisionLog) async throws(CertificateProviderError) -> Identity? {
        for (index, provider) in providers.enumerated() {
            let start = uptime()
            let result = await attempt(with: provider) { () throws(CertificateProviderError) in
                try provider.getStoredCertificate()
            }
            if let identity = try log.take(result, of: provider, before: providers[(index + 1)...], since: start) {
                return identity
            }
        }
        return nil
    }

    /// Returns the identity of the first provider that obtains one.
    func obtain(
        _ interaction: any UserInteraction, _ log: inout DecisionLog
    ) async throws(CertificateProviderError) -> Identity {
        var failures: [CertificateProviderError] = []
        for (index, provider) in providers.enumerated() {
            let rest = providers[(index + 1)...]
            guard !Task.isCancelled else {
                log.appendNotAsked(providers[index...], .get, because: "the operation was cancelled")
                throw CertificateProviderError(
                    .userCancelled, "The operation was cancelled before '\(provider.id)' was asked.")
            }
            let start = uptime()
            do throws(CertificateProviderError) {
                let identity = try await provider.getCertificate(interaction)
                log.append(provider.id, .get, .identity, since: start)
                log.appendNotAsked(rest, .get, because: "'\(provider.id)' was chosen before")
                return identity
            } catch {
                let error = error.attributed(to: provider.id)
                // A provider whose request was cancelled may call that "unavailable"; it is no reason to go on.
                guard Self.fallthroughCodes.contains(error.code), !Task.isCancelled else {
                    log.append(provider.id, .get, .stopped, error: error, since: start)
                    log.appendNotAsked(rest, .get, because: "'\(provider.id)' failed before")
                    throw error
                }
                log.append(provider.id, .get, .movedOn, error: error, since: start)
                failures.append(error)
            }
        }
        throw Self.summary(of: failures)
    }

    private static func summary(of failures: [CertificateProviderError]) -> CertificateProviderError {
        guard let first = failures.first else {
            return CertificateProviderError(.noCertificateProvider, "No certificate provider is configured.")
        }
        guard failures.count > 1 else { return first }
        let said = failures.map { "\($0.provider.map(\.rawValue) ?? "?"): \($0.message) [\($0.code)]" }
        return CertificateProviderError(
            first.code, "No provider has an identity. " + said.joined(separator: " "), underlying: first)
    }

    /// Deletes the stored identity of a provider. Returns the error if that fails.
    func delete(_ provider: any CertificateProvider, _ log: inout DecisionLog) async -> CertificateProviderError? {
        let start = uptime()
        let result = await attempt(with: provider) { () throws(CertificateProviderError) in
            try provider.deleteStoredCertificate()
        }
        switch result {
        case .success:
            log.append(provider.id, .delete, .deleted, since: start)
            return nil
        case .failure(let error):
            let error = error.attributed(to: provider.id)
            log.append(provider.id, .delete, .stopped, error: error, since: start)
            return error
        }
    }

    /// Runs a call that may block on the provider's executor.
    private func attempt<T: Sendable>(
        with provider: any CertificateProvider, _ call: @escaping @Sendable () throws(CertificateProviderError) -> T
    ) async -> Result<T, CertificateProviderError> {
        guard let executor = executors[provider.id] else { return Result(catching: call) }
        do throws(CertificateProviderError) { return .success(try await executor.run(call)) } catch {
            return .failure(error)
        }
    }
}

extension DecisionLog {
    /// Records the result about a stored identity, and returns the identity if there is one.
    mutating func take(
        _ result: Result<Identity?, CertificateProviderError>, of provider: any CertificateProvider,
        before rest: ArraySlice<any CertificateProvider>, since start: Duration
    ) throws(CertificateProviderError) -> Identity? {
        switch result {
        case .success(nil):
            append(provider.id, .stored, .none, since: start)
            return nil
        case .success(let identity?):
            append(provider.id, .stored, .identity, since: start)
            appendNotAsked(rest, .stored, because: "'\(provider.id)' was chosen before")
            return identity
        case .failure(let error):
            let error = error.attributed(to: provider.id)
            append(provider.id, .stored, .stopped, error: error, since: start)
            appendNotAsked(rest, .stored, because: "'\(provider.id)' failed before")
            throw error
        }
    }
}
