import CP11Kit
import CertificateProviding
import Logging
import Synchronization

/// The tokens that the settings lead to, and the identity among what is on them. Everything here blocks.
final class Tokens: Sendable {
    let settings: Settings
    let calls: ModuleCalls
    let environment: ProviderEnvironment
    let policy: PINPolicy
    let state = Mutex(State())

    struct State {
        var modules: [WantedModule]?
        /// Those that were met, by what they are: each keeps its connection and its PIN.
        var tokens: [Slot.Identity: Token] = [:]
    }

    init(_ settings: Settings, _ environment: ProviderEnvironment) {
        self.settings = settings
        self.environment = environment
        self.calls = ModuleCalls(timeout: settings.timeout)
        // Of what a caller waits for, half is left for the login itself.
        let tried = TriedPINs(
            storage: environment.storage, patience: settings.timeout / 2, logger: environment.logger)
        self.policy = PINPolicy(tried: tried, logger: environment.logger)
        if settings.pinValue != nil { environment.logger.warning("\(Settings.pinValueIsUnsafe)") }
    }

    /// A certificate on a token, with its chain.
    struct Found {
        let candidate: TokenReader.Candidate
        let chain: [X509Certificate]
        let token: Token

        func isSame(as other: Found) -> Bool {
            token === other.token && candidate.certificate == other.candidate.certificate
        }
    }

    /// Returns what is on a token, as far as it can be seen now.
    /// - Parameters:
    ///   - failures: Gets what kept the token, or objects on it, from being read: others are as they are.
    ///   - describe: Gets the reader and what it has found.
    func read(
        _ token: Token, _ slot: Slot, _ failures: inout [CertificateProviderError],
        describe: (TokenReader, TokenReader.Contents) -> Void = { _, _ in }
    ) -> [Found] {
        let uri = settings.uri
        do throws(CertificateProviderError) {
            let (found, problems) = try token.withConnection { connection throws(CryptokiError) in
                var problems: [CertificateProviderError] = []
                let found = try connection.sessions.withSession { session throws(CryptokiError) -> [Found]? in
                    let reader = TokenReader(session: session, slot: slot)
                    let areKeysHidden = !connection.isOpen
                    let keys = try connection.findHidden(in: session) { () throws(CryptokiError) in
                        try reader.privateKeys(id: uri.objectID, failures: &problems)
                    }
                    guard let keys else { return nil }
                    var keyless: [CK_OBJECT_HANDLE] = []
                    let candidates = try reader.candidates(
                        for: uri, keys: keys, areKeysHidden: areKeysHidden, keyless: { keyless.append($0) },
                        failures: &problems)
                    describe(
                        reader,
                        .init(
                            candidates: candidates, keys: keys, keyless: keyless, mechanisms: connection.mechanisms))
                    return try candidates.map { candidate throws(CryptokiError) in
                        Found(candidate: candidate, chain: try reader.chain(of: candidate.certificate), token: token)
                    }
                }
                guard let found else { throw TokenConnection.searchWithoutLogin }
                return (found, problems)
            }
            failures += problems
            return found
        } catch {
            failures.append(error)
            return []
        }
    }

    /// Whether an identity that the URI matches is to be seen on a token, as far as that can be told now.
    func showsIdentity(_ token: Token, _ slot: Slot, _ failures: inout [CertificateProviderError]) -> Bool {
        if token.isOpen { return !read(token, slot, &failures).isEmpty }
        let uri = settings.uri
        do throws(CertificateProviderError) {
            let (isShown, problems) = try token.withConnection { connection throws(CryptokiError) in
                var problems: [CertificateProviderError] = []
                // The first one is enough: there may be thousands.
                let candidates = try connection.sessions.withSession { session throws(CryptokiError) in
                    try TokenReader(session: session, slot: slot).candidates(
                        for: uri, keys: [], areKeysHidden: true, maximum: 1, failures: &problems)
                }
                return (!candidates.isEmpty, problems)
            }
            failures += problems
            return isShown
        } catch {
            failures.append(error)
            return false
        }
    }

    func logout() { state.withLock { $0.tokens.values }.forEach { $0.logout() } }

    func tokenNotPresent() -> CertificateProviderError {
        CertificateProviderError(
            .tokenNotPresent, "There is no token that matches '\(settings.uri.text.withVisibleControls)'; insert it.")
    }
}
