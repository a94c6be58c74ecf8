import CP11Kit
import CertificateProviding
import Logging
import Synchronization

/// The tokens that the settings lead to, and the identity among what is on them. Everything here blocks.
final class Tokens: Sendable {
    let settings: Settings
    let calls: ModuleCalls
    private let environment: ProviderEnvironment
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
        self.policy = PINPolicy(rejected: RejectedPINs(storage: environment.storage), logger: environment.logger)
        if settings.pinValue != nil { environment.logger.warning("\(Settings.pinValueIsUnsafe)") }
    }

    /// Returns the tokens that are there now and that the URI matches.
    /// - Parameter failures: Gets what kept modules from being looked at.
    func present(_ failures: inout [CertificateProviderError]) throws(CertificateProviderError) -> [(Token, Slot)] {
        var found: [(Token, Slot)] = []
        for module in try modules(&failures) {
            do throws(CryptokiError) {
                for slot in try Slot.all(of: module, matching: settings.uri) { found.append((token(in: slot), slot)) }
            } catch {
                failures.append(
                    CertificateProviderError(
                        .unavailable, "The PKCS#11 module '\(module.name)' fails (\(error)).",
                        nativeCode: Int(clamping: error.code), underlying: error))
            }
        }
        return found
    }

    /// Returns the one identity that the URI means, logging in where that takes it.
    ///
    /// - Parameter pin: One that a person has just given.
    /// - Throws: `tokenNotPresent`, `notFound`, `configurationInvalid` with the URIs to choose from, and what the login
    ///   meets.
    func identity(pin: SecretBytes?) throws(CertificateProviderError) -> Identity {
        var failures: [CertificateProviderError] = []
        let present = try present(&failures)
        guard !present.isEmpty else { throw failures.first ?? tokenNotPresent() }
        if let (token, _) = try tokenToOpen(of: present) { try token.open(pin: pin) }
        var candidates: [Found] = []
        for (token, slot) in present { candidates += try read(token, slot, &failures) }
        return try identity(of: try choose(candidates, failures))
    }

    /// A certificate on a token, with its chain.
    struct Found {
        let candidate: TokenReader.Candidate
        let chain: [X509Certificate]
        let token: Token
    }

    /// Chooses as ``identity(pin:)`` does.
    func choose(
        _ candidates: [Found], _ failures: [CertificateProviderError]
    ) throws(CertificateProviderError) -> Found {
        var candidates = candidates
        let usable = candidates.filter { $0.candidate.certificate.permitsClientAuthentication }
        if candidates.count > 1, usable.count == 1 { candidates = usable }
        guard let found = candidates.first else {
            throw failures.first
                ?? CertificateProviderError(
                    .notFound,
                    "No identity on the token matches '\(settings.uri.text.withVisibleControls)'; 'certprov list' "
                        + "shows what there is.")
        }
        guard candidates.count == 1 else {
            throw CertificateProviderError(
                .configurationInvalid,
                "There are \(candidates.count) identities; set 'uri' to one of: "
                    + candidates.map { "'\($0.candidate.uri)'" }.joined(separator: ", ") + ".")
        }
        return found
    }

    /// The token to log in to; `nil` when none has to be. Never more than one: a PIN that is sent to another token than
    /// its own counts there as a wrong one.
    ///
    /// - Throws: `configurationInvalid` where several tokens may hold the identity.
    func tokenToOpen(of present: [(Token, Slot)]) throws(CertificateProviderError) -> (Token, Slot)? {
        guard settings.login != .never else { return nil }
        let guarded = present.filter { $0.1.has(UInt(CKF_LOGIN_REQUIRED)) }
        guard guarded.count > 1 else { return guarded.first { !$0.0.isOpen } }
        // Certificates can be seen without a login, mostly. Tokens that are open already count as well: the identity may
        // be on one of them, and then none of the others is to get its PIN.
        var holders: [(Token, Slot)] = []
        var failures: [CertificateProviderError] = []
        for (token, slot) in guarded where try !read(token, slot, &failures).isEmpty { holders.append((token, slot)) }
        if holders.isEmpty { holders = guarded }
        if holders.count == 1 || holders.allSatisfy({ $0.0.isOpen }) { return holders.first { !$0.0.isOpen } }
        let uris = holders.compactMap { _, slot in
            TokenURI.text(of: slot.token, class: nil, id: [], label: []).map { "'\($0)'" }
        }
        throw CertificateProviderError(
            .configurationInvalid,
            "There are \(uris.count) tokens that the PIN could be for, and it is sent to one only; set 'uri' to one of: "
                + uris.joined(separator: ", ") + ".")
    }

    /// Returns what is on a token, as far as it can be seen now.
    func read(
        _ token: Token, _ slot: Slot, _ failures: inout [CertificateProviderError]
    ) throws(CertificateProviderError) -> [Found] {
        let uri = settings.uri
        let (found, problems) = try token.withConnection { connection throws(CryptokiError) in
            var problems: [CertificateProviderError] = []
            let found = try connection.sessions.withSession { session throws(CryptokiError) in
                let reader = TokenReader(session: session, slot: slot)
                let candidates = try reader.candidates(
                    for: uri, keys: try reader.privateKeys(id: uri.objectID), areKeysHidden: !connection.isOpen,
                    failures: &problems)
                return try candidates.map { candidate throws(CryptokiError) in
                    Found(candidate: candidate, chain: try reader.chain(of: candidate.certificate), token: token)
                }
            }
            return (found, problems)
        }
        failures += problems
        return found
    }

    private func identity(of found: Found) throws(CertificateProviderError) -> Identity {
        let (candidate, token) = (found.candidate, found.token)
        let publicKey = candidate.certificate.publicKey
        let ways = try token.withConnection { connection throws(CryptokiError) in
            SigningMechanism.all(
                for: publicKey, mechanisms: connection.mechanisms, allowed: candidate.key?.allowedMechanisms)
        }
        guard !ways.isEmpty else {
            throw CertificateProviderError(
                .unsupportedAlgorithm,
                "The token '\(token.displayName)' has no mechanism that signs with the \(publicKey.displayName) key.")
        }
        let key = TokenKey(publicKey: publicKey, uri: candidate.uri, ways: ways, id: candidate.id, token: token)
        return try Identity(
            certificateChain: found.chain, key: key,
            provenance: .init(
                provider: PKCS11TokenProvider.id, alias: String(validating: candidate.label, as: UTF8.self),
                source: candidate.uri))
    }

    func logout() { state.withLock { $0.tokens.values }.forEach { $0.logout() } }

    /// Whether the identity can only be had by asking a person for the PIN, here or at the reader's own pad.
    func needsPerson() throws(CertificateProviderError) -> Bool {
        var failures: [CertificateProviderError] = []
        guard let (token, slot) = try tokenToOpen(of: try present(&failures)) else { return false }
        return slot.has(UInt(CKF_PROTECTED_AUTHENTICATION_PATH)) || !token.isPINAtHand
    }

    /// What to ask a person for; `nil` when nobody has to be asked.
    func questionForPIN() throws(CertificateProviderError) -> String? {
        var failures: [CertificateProviderError] = []
        guard let (token, slot) = try tokenToOpen(of: try present(&failures)), !token.isPINAtHand,
            !slot.has(UInt(CKF_PROTECTED_AUTHENTICATION_PATH))
        else { return nil }
        return "PIN for the token '\(token.displayName)'"
    }

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
            if let known = state.tokens[slot.identity] { return known }
            let supply = PINSupply(
                source: settings.pinSource, value: settings.pinValue, secrets: environment.secrets, policy: policy,
                isPermitted: settings.login != .never)
            let token = Token(slot, calls: calls, pins: supply)
            state.tokens[slot.identity] = token
            return token
        }
    }

    func tokenNotPresent() -> CertificateProviderError {
        CertificateProviderError(
            .tokenNotPresent, "There is no token that matches '\(settings.uri.text.withVisibleControls)'; insert it.")
    }
}
