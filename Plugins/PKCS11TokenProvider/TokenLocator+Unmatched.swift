import CP11Kit
import CertificateProviding
import Synchronization

extension TokenLocator {
    /// The tokens that the URI does not match: one of them may be meant.
    struct Unmatched {
        /// Their URIs. Two modules may show the same one.
        let uris: [String]
        /// The readers of those that are not initialised.
        let uninitialised: [String]
        /// Whether a module that the URI may mean has shown what it sees.
        let hasLooked: Bool
        /// How many of those modules have not.
        let silent: Int
        /// The service for smart card readers, where a module needs it and it does not run.
        let missingService: String?

        /// - Parameter silent: How many modules could not be looked at.
        init(_ looks: [Slot.Look], silent: Int) {
            hasLooked = !looks.isEmpty
            self.silent = silent
            missingService = looks.lazy.compactMap(\.missingService).first
            var seen = Set<String>()
            uris = looks.flatMap(\.others).map { PKCS11URI.text(of: $0.token) }.filter { seen.insert($0).inserted }
            uninitialised = looks.flatMap(\.uninitialised)
        }
    }

    /// What a listing says where there is no token that the URI matches.
    var remarkOnNoToken: String {
        let unmatched = state.withLock(\.unmatched)
        let all =
            unmatched.uris.map { "'\($0)'" }
            + unmatched.uninitialised.map { "an uninitialised one in the reader '\($0)'" }
        let named = all.prefix(TokenReader.maximumRemarks)
        let rest = all.count > named.count ? ", and \(all.count - named.count) more" : ""
        return "No token matches '\(DisplayText.visible(settings.uri.text))'. "
            + (all.isEmpty ? "No other token is present." : "Present: \(named.joined(separator: ", "))\(rest).")
    }

    /// Whether a token may be missing since no service for smart card readers runs.
    var lacksReaderService: Bool { state.withLock { $0.unmatched.missingService != nil } }

    /// What it means that no token that the URI matches was found.
    ///
    /// - Parameter failures: What kept modules and readers from being looked at. Of the modules that a host has, some are
    ///   for devices that it has not: one that does not start says nothing of a token that others would show.
    func noToken(_ failures: [CertificateProviderError]) -> CertificateProviderError {
        guard let first = failures.first else { return tokenNotPresent() }
        let unmatched = state.withLock(\.unmatched)
        guard unmatched.hasLooked, failures.count == unmatched.silent,
            failures.allSatisfy({ $0.code == .unavailable })
        else { return first }
        var error = tokenNotPresent()
        let reasons = failures.prefix(TokenReader.maximumRemarks).map(\.message)
        error.message += " Not searched: \(reasons.joined(separator: " "))"
        return error
    }

    func tokenNotPresent() -> CertificateProviderError {
        let modules = state.withLock { state in state.tokens.values.map(\.module) }
        let others =
            modules.first.flatMap { module in (try? Slot.look(at: module)).map { module.tokensInUse(of: $0.slots) } }
            ?? []
        if let missing = state.withLock(\.unmatched.missingService) {
            return CertificateProviderError(
                .tokenNotPresent,
                "No token matches '\(DisplayText.visible(settings.uri.text))', and the smart card service is not "
                    + "running (\(missing)); start pcscd."
            ).naming(others)
        }
        // Some modules always have such a one.
        let readers = state.withLock(\.unmatched.uninitialised).prefix(TokenReader.maximumRemarks)
        let rest =
            readers.isEmpty
            ? "insert it."
            : "insert it, or initialise the one in the reader "
                + "\(readers.map { "'\($0)'" }.joined(separator: " or ")) with its own tool."
        return CertificateProviderError(
            .tokenNotPresent, "No token matches '\(DisplayText.visible(settings.uri.text))'; \(rest)"
        ).naming(others)
    }
}
