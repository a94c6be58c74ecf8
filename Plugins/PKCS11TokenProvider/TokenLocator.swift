import CP11Kit
import CertificateProviding
import Glibc
import Logging

/// Finds the tokens of the settings, and the identity among their objects. Everything here blocks.
final class TokenLocator: Sendable {
    let settings: TokenSettings
    /// The threads for work that concerns more than one token; the others are the modules'.
    let calls: ModuleCalls
    let environment: ProviderEnvironment
    let policy: PINPolicy
    /// The known modules and tokens, for all locators of one provider.
    let state: BlockingMutex<State>

    struct State {
        /// Found at the first use.
        var modules: [ModuleReference]?
        /// The tokens that were met, by their identity: each holds its connection and its PIN.
        var tokens: [Slot.Identity: Token] = [:]
        /// The tokens at the last look that the URI does not match.
        var unmatched = Unmatched([], silent: 0)
        /// The certificate of the identity that was handed out last.
        var current: X509Certificate?
        /// The streams of the token's news.
        var announcements: [UInt64: AsyncStream<Void>.Continuation] = [:]
        var lastAnnouncement: UInt64 = 0
        var isShutDown = false
    }

    init(_ settings: TokenSettings, _ environment: ProviderEnvironment) {
        self.settings = settings
        self.environment = environment
        self.calls = ModuleCalls(timeout: settings.timeout)
        self.state = BlockingMutex(State())
        let tried = TriedPINs(
            storage: environment.storage, timeout: settings.timeout, now: environment.now, logger: environment.logger)
        self.policy = PINPolicy(
            tried: tried, logger: environment.logger, pinSource: settings.names.pinSource)
    }

    /// Looks for something else on the same tokens, which keep their connections and PINs.
    private init(_ other: TokenLocator, _ settings: TokenSettings) {
        self.settings = settings
        (calls, environment, policy, state) = (other.calls, other.environment, other.policy, other.state)
    }

    func narrowed(to uri: PKCS11URI) throws(ProviderError) -> TokenLocator {
        TokenLocator(self, try settings.narrowed(to: uri))
    }

    /// A certificate on a token.
    struct Found {
        let candidate: TokenReader.Candidate
        let token: Token
        /// The other certificates of its key, where it was chosen.
        var passedOver: [X509Certificate] = []

        func isSame(as other: Found) -> Bool {
            token === other.token && candidate.certificate == other.candidate.certificate
        }
    }

    /// Returns the visible objects of a token.
    /// - Parameter failures: Gets the failures of the token, or of objects on it: the other objects are returned.
    func read(_ token: Token, _ slot: Slot, _ failures: inout [ProviderError]) -> [Found] {
        read(token, slot, &failures) { _, contents in
            contents.candidates.map { Found(candidate: $0, token: token) }
        } ?? []
    }

    /// Whether an identity that the URI matches is to be seen on a token, as far as that can be told now.
    func showsIdentity(_ token: Token, _ slot: Slot, _ failures: inout [ProviderError]) -> Bool {
        // The first one is enough: there may be thousands.
        read(token, slot, maximum: 1, &failures) { _, contents in !contents.candidates.isEmpty } ?? false
    }

    /// Reads a token.
    ///
    /// - Parameters:
    ///   - maximum: How many certificates are enough.
    ///   - use: Gets the reader and what it has found.
    /// - Returns: What `use` does; `nil` where the token could not be read.
    func read<T>(
        _ token: Token, _ slot: Slot, maximum: Int = .max, _ failures: inout [ProviderError],
        _ use: (TokenReader, TokenReader.Contents) throws(CryptokiError) -> T
    ) -> T? {
        let uri = settings.uri
        do throws(ProviderError) {
            let (result, problems) = try token.withConnection { connection throws(CryptokiError) in
                var problems = ObjectFailures()
                let result = try connection.withSession { session throws(CryptokiError) -> T? in
                    let reader = TokenReader(session: session, slot: slot)
                    let areKeysHidden = !connection.isLoggedIn
                    let keys = try connection.findHidden(in: session) { () throws(CryptokiError) in
                        let reading = try reader.privateKeys(id: uri.objectID)
                        problems.append(reading, on: slot)
                        return reading.found
                    }
                    guard var keys else { return nil }
                    var certificates = try reader.certificates(
                        for: uri, keys: KeyIndex(keys), areKeysHidden: areKeysHidden, maximum: maximum,
                        failures: &problems)
                    if certificates.candidates.isEmpty, let id = uri.objectID, !areKeysHidden,
                        let pairs = try reader.pairsOfDifferentIDs(for: uri, id, maximum: maximum)
                    {
                        (keys, certificates) = pairs
                    }
                    return try use(
                        reader, .init(certificates: certificates, keys: keys, mechanisms: connection.mechanisms))
                }
                guard let result else { throw TokenConnection.searchWithoutLogin }
                return (result, problems.errors(on: slot))
            }
            failures += problems
            return result
        } catch {
            failures.append(error)
            return nil
        }
    }

    /// Closes everything for good, by `deadline` where the modules answer.
    func shutDown(by deadline: ContinuousClock.Instant) {
        let (tokens, modules) = state.withLock { (Array($0.tokens.values), $0.modules ?? []) }
        policy.tried.shutDown()
        tokens.forEach { $0.refuse() }
        // The end of a module closes the sessions of its last provider.
        var open = tokens.filter { $0.module.isShared }
        // A thread for each, since any of them may hang.
        let executor = BlockingExecutor.threads(maximum: modules.count)
        let ends = modules.map { module in
            let end = Answer<Void>()
            executor.submit {
                module.leave(by: deadline)
                end.give(())
            }
            return end
        }
        ends.forEach { _ = $0.wait(until: deadline) }
        while !open.isEmpty {
            open.removeAll { $0.closeIfIdle() }
            guard !open.isEmpty, ContinuousClock.now < deadline else { return }
            usleep(1000)
        }
    }

    func logout() { state.withLock { $0.tokens.values }.forEach { $0.logout() } }
}
