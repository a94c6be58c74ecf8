package import CertificateProviding
import CP11Kit
import Logging

/// An identity whose private key is in a PKCS#11 token: a smart card, a TPM, a hardware security module.
///
/// The key signs in the token and never leaves it. This host stores which identity was chosen, and, sealed, the results
/// of earlier logins, so that a rejected PIN is not sent again.
///
/// Calls into the vendor's module run on separate threads. A caller waits for them at most for the parameter `timeout`, and a
/// caller that suspends also for other processes' logins.
package final class PKCS11TokenProvider: CertificateProvider {
    /// The provider's identifier in configurations, `pkcs11`.
    package static let id = ProviderID("pkcs11")
    /// The provider's identifier.
    package var id: ProviderID { Self.id }

    /// The token that `uri` names, for new keys.
    package var keyStore: (any KeyStore)? { TokenKeyStore(self) }

    let environment: ProviderEnvironment
    let settings: TokenSettings
    private let locator: TokenLocator
    private var state: BlockingMutex<TokenLocator.State> { locator.state }

    /// Creates a provider. Loads no module yet.
    ///
    /// - Throws: `unsupportedParameter` or `configurationInvalid` for the parameters.
    package convenience init(
        environment: ProviderEnvironment, parameters: ProviderParameters
    ) throws(ProviderError) {
        try self.init(environment, try Self.descriptor.check(parameters, environment))
    }

    convenience init(_ environment: ProviderEnvironment, _ parameters: Parameters) throws(ProviderError) {
        self.init(environment, try TokenSettings(parameters))
    }

    init(_ environment: ProviderEnvironment, _ settings: TokenSettings) {
        self.environment = environment
        self.settings = settings
        self.locator = TokenLocator(settings, environment)
    }

    /// Finds the identity on the token and tests its key by signing a probe. Asks for the PIN if none is configured.
    /// Suspends for each call into the module for at most the parameter `timeout`, and for the PIN at the reader's PIN pad
    /// for two minutes if that is longer. While other processes log in to the token or read the card, two minutes longer, or nine times the
    /// `timeout`.
    ///
    /// If it finds the identity that it has handed out last, and the module is OpenSC, it starts the module again and looks once
    /// more: OpenSC reads a card once. Not while another token of the module is in use.
    ///
    /// - Throws: `tokenNotPresent`; `notFound` for a token without the identity; `configurationInvalid` if the URI
    ///   matches several; `interactionRequired` if the PIN has no source and no user can be asked; `pinIncorrect`,
    ///   `pinFinalTry` or `pinLocked`; `keyMismatch`; `timedOut`; `unavailable` for a module that fails;
    ///   `storeWriteFailed`; `operationNotAllowed` after ``shutdown()``.
    package func getCertificate(_ interaction: any UserInteraction) async throws(ProviderError) -> Identity {
        do throws(ProviderError) {
            let tokens = try self.tokens()
            var identity = try await identity(on: tokens, interaction)
            // A caller that gets the identity in use hopes for a newer one.
            if identity.certificate == current, let token = (identity.key as? TokenKey)?.token,
                try await tokens.calls.run(
                    "reading the token anew",
                    { () throws(ProviderError) in
                        tokens.takeTurn()
                        return try token.readAnew()
                    })
            {
                identity = try await self.identity(on: tokens, interaction)
            }
            let entry = StoredIdentity(
                certificateChain: identity.certificateChain, privateKey: nil,
                attributes: ["uri": identity.key.uri ?? ""])
            let (storage, name) = (environment.storage, tokens.settings.entryName)
            try await environment.executor.run { () throws(ProviderError) in
                try storage.setEntry(entry, named: name)
            }
            handOut(identity)
            return identity
        } catch {
            throw error.attributed(to: id)
        }
    }

    /// Finds the identity, asks for the PIN if needed, and lets the key sign a probe.
    func identity(
        on tokens: TokenLocator, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Identity {
        let login = try await tokens.calls.run("looking for the token") { () throws(ProviderError) in
            try tokens.loginToMake()
        }
        let pin = try await login?.ask(interaction)
        let identity = try await tokens.calls.run("looking for the identity", atLeast: login?.minimumTime ?? .zero) {
            () throws(ProviderError) in try tokens.identity(pin: pin)
        }
        try await identity.verifyPossession()
        return identity
    }

    /// Returns the identity on the token if that needs no prompt for the PIN. Returns `nil` if it does, and if no token
    /// is present and none was used before.
    ///
    /// Blocks at most for the parameter `timeout`, and while other processes log in to the token or read the card as
    /// ``getCertificate(_:)`` does.
    ///
    /// - Throws: `tokenNotPresent` or `notFound` if an identity was used before and is not there now. Otherwise as
    ///   ``getCertificate(_:)``.
    package func getStoredCertificate() throws(ProviderError) -> Identity? {
        do throws(ProviderError) {
            let tokens = try self.tokens()
            let isKnown = try environment.storage.entry(named: tokens.settings.entryName) != nil
            do throws(ProviderError) {
                let identity = try tokens.calls.wait("looking for the identity") {
                    () throws(ProviderError) in try tokens.identityAtHand()
                }
                if let identity { handOut(identity) }
                return identity
            } catch {
                // After a failed login, the next request for the identity would send the PIN again.
                if !isKnown, error.reason != .login, [.tokenNotPresent, .notFound].contains(error.code) { return nil }
                throw error
            }
        } catch {
            throw error.attributed(to: id)
        }
    }

    /// Deletes the record of the chosen identity, and logs out. If `delete-objects` is set, first destroys the
    /// identity's private key, public key and certificates on the token, without prompting for a PIN. Blocks
    /// at most for the parameter `timeout`, twice.
    ///
    /// - Throws: `deleteFailed` for objects that remain on the token, or for the record. With `delete-objects` also
    ///   `tokenNotPresent`, `interactionRequired` if the PIN has no source, and errors of the login and of the module.
    package func deleteStoredCertificate() throws(ProviderError) {
        do throws(ProviderError) {
            let tokens = try self.tokens()
            if tokens.settings.deletesObjects {
                try tokens.calls.wait("destroying the identity") { () throws(ProviderError) in
                    if let key = try tokens.keyToDestroy() {
                        try key.token.keys.discard(key)
                    } else {
                        for remains in try tokens.remains() { try remains.destroy() }
                    }
                }
            }
            // First, since a module may hang in the middle of a logout.
            try environment.storage.removeEntry(named: tokens.settings.entryName)
            try tokens.calls.wait("logging out") { () throws(ProviderError) in tokens.logout() }
        } catch {
            throw error.attributed(to: id)
        }
    }

    /// Logs out, closes the sessions, and finalises the modules that no other provider of this process uses.
    ///
    /// Waits for a login or signature in progress, but takes at most two seconds: a module that hangs is not finalised.
    /// From then on every call of this provider and of its keys throws `operationNotAllowed`.
    package func shutdown() async {
        let (isUsed, announcements) = state.withLock { state in
            state.isShutDown = true
            return (state.modules != nil, Array(state.announcements.values))
        }
        announcements.forEach { $0.finish() }
        guard isUsed else { return }
        let end = ModuleCalls(timeout: ModuleEnd.limit, threads: 1)
        do throws(ProviderError) {
            try await end.run("closing") { [locator] () throws(ProviderError) in
                locator.shutDown(by: .now + ModuleEnd.limit)
            }
        } catch {
            environment.logger.warning(
                "the PKCS#11 modules were not shut down cleanly", metadata: ["reason": "\(error)"])
        }
    }

    /// Shuts down all modules of this process, as ``shutdown()`` does those of one provider. For programs that end by
    /// `_exit` or a signal; `exit` does it by itself. Blocks, for at most two seconds.
    ///
    /// - Returns: Whether all calls into modules have returned. If not, the process must end by `_exit` or a signal,
    ///   since the libraries' exit handlers would crash it.
    @discardableResult
    package static func shutDownAllModules() -> Bool { ModuleEnd.run() }

    private func handOut(_ identity: Identity) { state.withLock { $0.current = identity.certificate } }

    /// The certificate of the identity that was handed out last.
    var current: X509Certificate? { state.withLock(\.current) }

    var isShutDown: Bool { state.withLock(\.isShutDown) }

    /// Keeps a stream of announcements until it ends, which ``shutdown()`` does.
    /// - Parameter end: Called then.
    func keep(_ continuation: AsyncStream<Void>.Continuation, end: @escaping @Sendable () -> Void) {
        let number = state.withLock { state -> UInt64? in
            guard !state.isShutDown else { return nil }
            state.lastAnnouncement += 1
            state.announcements[state.lastAnnouncement] = continuation
            return state.lastAnnouncement
        }
        guard let number else {
            end()
            return continuation.finish()
        }
        continuation.onTermination = { [weak self] _ in
            end()
            _ = self?.state.withLock { $0.announcements.removeValue(forKey: number) }
        }
    }

    func tokens() throws(ProviderError) -> TokenLocator {
        if isShutDown { throw .modulesEnded }
        return locator
    }
}
