import CP11Kit
import CertificateProviding
import Logging
import Synchronization

/// The tokens that the settings lead to, and the identity among what is on them. Everything here blocks.
final class Tokens: Sendable {
    let settings: Settings
    let calls: ModuleCalls
    let environment: ProviderEnvironment
    private let policy: PINPolicy
    private let state = Mutex(State())

    private struct State {
        var modules: [Module]?
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

    /// Returns the tokens that are there now and that the URI matches.
    /// - Parameter failures: Gets what kept modules from being looked at.
    func present(_ failures: inout [CertificateProviderError]) throws(CertificateProviderError) -> [(Token, Slot)] {
        var slots: [Slot] = []
        for module in try modules(&failures) {
            do throws(CryptokiError) { slots += try self.slots(of: module) } catch {
                // A module that starts without its tokens may not start at all.
                let isAway = error.function == "C_Initialize" && state.withLock { !$0.tokens.isEmpty }
                failures.append(
                    CertificateProviderError(
                        isAway ? .tokenNotPresent : .unavailable,
                        "The PKCS#11 module '\(module.name)' fails (\(error)).",
                        nativeCode: Int(clamping: error.code), underlying: error))
            }
        }
        return distinct(slots).map { slot in
            let token = token(in: slot)
            return (token, token.asUsed(slot))
        }
    }

    /// Leaves out what another module shows as well: p11-kit is often configured with two modules for one reader. The
    /// module that the token is used through already is kept, or the first.
    private func distinct(_ slots: [Slot]) -> [Slot] {
        let known = state.withLock { $0.tokens }
        var modules: [Slot.Identity: Module] = [:]
        for slot in slots {
            let identity = slot.identity
            if modules[identity] == nil || known[identity]?.module === slot.module { modules[identity] = slot.module }
        }
        // Without a serial number it may be another token.
        return slots.filter { $0.identity.serial.isEmpty || modules[$0.identity] === $0.module }
    }

    /// The slots with tokens that the URI matches. Where one is missing that was there before, the module may have to be
    /// started again to see it.
    private func slots(of module: Module) throws(CryptokiError) -> [Slot] {
        let slots = try Slot.all(of: module, matching: settings.uri)
        let missing = state.withLock(\.tokens).filter { identity, token in
            token.module === module && !slots.contains { $0.identity == identity }
        }
        missing.values.forEach { $0.lose() }
        guard !missing.isEmpty, try module.startAgainToFind() else { return slots }
        return try Slot.all(of: module, matching: settings.uri)
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
                    let keys = try reader.privateKeys(id: uri.objectID, failures: &problems)
                    if keys.isEmpty, !areKeysHidden {
                        guard try connection.seesEverything(session) else { return nil }
                    }
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

    private func modules(_ failures: inout [CertificateProviderError]) throws(CertificateProviderError) -> [Module] {
        if let modules = state.withLock({ $0.modules }) { return modules }
        let loaded = try ModuleLoader.modules(for: settings.uri, path: settings.modulePath)
        failures += loaded.failures
        // One that did not start may do so next time.
        if loaded.failures.isEmpty { state.withLock { $0.modules = $0.modules ?? loaded.modules } }
        return loaded.modules
    }

    private func token(in slot: Slot) -> Token {
        state.withLock { state in
            let known = state.tokens[slot.identity]
            if let known, known.module === slot.module { return known }
            // The other module that showed it does not any more.
            let supply =
                known?.pins
                ?? PINSupply(
                    source: settings.pinSource, value: settings.pinValue, secrets: environment.secrets, policy: policy,
                    isPermitted: settings.login != .never)
            let token = Token(slot, calls: calls, pins: supply, logsInAlways: settings.login == .always)
            state.tokens[slot.identity] = token
            return token
        }
    }

    func tokenNotPresent() -> CertificateProviderError {
        CertificateProviderError(
            .tokenNotPresent, "There is no token that matches '\(settings.uri.text.withVisibleControls)'; insert it.")
    }
}
