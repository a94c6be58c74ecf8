public import CertificateProviding
import CP11Kit
import Logging
import Synchronization

/// An identity whose key lives in a PKCS#11 token: a smart card, a TPM, a hardware security module.
///
/// The key signs in the token and never leaves it. What is stored on this host is which identity was chosen, and,
/// sealed, what became of PINs that were sent, so that a token is not sent a wrong one twice.
///
/// Calls into the vendor's library run on threads of their own, and cost a caller at most the parameter `timeout`.
public final class PKCS11TokenProvider: CertificateProvider {
    public static let id = ProviderID("pkcs11")
    public var id: ProviderID { Self.id }

    let environment: ProviderEnvironment
    private let state = Mutex(State())

    private struct State {
        var settings: TokenSettings?
        /// What the settings lead to, found at the first use.
        var tokens: TokenLocator?
        var isShutDown = false
    }

    public init(environment: ProviderEnvironment) { self.environment = environment }

    public func setParameters(_ parameters: ProviderParameters) throws(CertificateProviderError) {
        let settings = try TokenSettings(parameters, provider: id)
        state.withLock { $0 = State(settings: settings, isShutDown: $0.isShutDown) }
    }

    /// Finds the identity, asks for the PIN where nobody has configured one, and lets the key sign a probe.
    public func getCertificate(_ interaction: any UserInteraction) async throws(CertificateProviderError) -> Identity {
        do throws(CertificateProviderError) {
            let tokens = try self.tokens()
            let login = try await tokens.calls.run("looking for the token") { () throws(CertificateProviderError) in
                try tokens.loginToMake()
            }
            let pin = try await login?.ask(interaction)
            let identity = try await tokens.calls.run("looking for the identity") {
                () throws(CertificateProviderError) in try tokens.identity(pin: pin)
            }
            try await identity.verifyPossession()
            let entry = StoredIdentity(
                certificateChain: identity.certificateChain, privateKey: nil,
                attributes: ["uri": identity.key.uri ?? ""])
            let (storage, name) = (environment.storage, tokens.settings.entryName)
            try await environment.executor.run { () throws(CertificateProviderError) in
                try storage.setEntry(entry, named: name)
            }
            return identity
        } catch {
            throw error.attributed(to: id)
        }
    }

    /// Returns the identity on the token where nobody has to be asked for a PIN; `nil` where one has to be, and where
    /// no token is there and none was ever used.
    ///
    /// Blocks for the module, at most for the parameter `timeout`.
    public func getStoredCertificate() throws(CertificateProviderError) -> Identity? {
        do throws(CertificateProviderError) {
            let tokens = try self.tokens()
            let isKnown = try environment.storage.entry(named: tokens.settings.entryName) != nil
            do throws(CertificateProviderError) {
                return try tokens.calls.wait("looking for the identity") { () throws(CertificateProviderError) in
                    try tokens.identityAtHand()
                }
            } catch {
                // Whoever then asks for the identity would send the PIN again.
                let wasInLogin = (error.underlying as? CryptokiError)?.function == "C_Login"
                if !isKnown, !wasInLogin, [.tokenNotPresent, .notFound].contains(error.code) { return nil }
                throw error
            }
        } catch {
            throw error.attributed(to: id)
        }
    }

    /// Forgets the choice and logs out. Only where `delete-objects` says so, the identity's private key, public key and
    /// certificates are destroyed before; for that nobody is asked for a PIN.
    public func deleteStoredCertificate() throws(CertificateProviderError) {
        do throws(CertificateProviderError) {
            let tokens = try self.tokens()
            if tokens.settings.deletesObjects {
                try tokens.calls.wait("destroying the identity") { () throws(CertificateProviderError) in
                    if let key = try tokens.keyToDestroy() {
                        try key.token.discard(key)
                    } else {
                        for remains in try tokens.remains() { try remains.destroy() }
                    }
                }
            }
            // First, since a module may hang in the middle of a logout.
            try environment.storage.removeEntry(named: tokens.settings.entryName)
            try tokens.calls.wait("logging out") { () throws(CertificateProviderError) in tokens.logout() }
        } catch {
            throw error.attributed(to: id)
        }
    }

    /// Logs out, closes the sessions, and finalises the modules that no other provider of this process uses. A login
    /// or a signature that is going on comes to its end before. Takes at most two seconds: a module that hangs is left
    /// as it is. From then on every call of this provider, and of its keys, throws `operationNotAllowed`.
    public func shutdown() async {
        let tokens = state.withLock { state in
            state.isShutDown = true
            return state.tokens
        }
        guard let tokens else { return }
        let end = ModuleCalls(timeout: ModuleEnd.limit, threads: 1)
        do throws(CertificateProviderError) {
            try await end.run("closing") { () throws(CertificateProviderError) in
                tokens.shutDown(by: .now + ModuleEnd.limit)
            }
        } catch {
            environment.logger.warning(
                "the PKCS#11 modules were not shut down cleanly", metadata: ["reason": "\(error)"])
        }
    }

    /// Shuts down all modules of this process, as ``shutdown()`` does those of one provider. For programs that end by
    /// `_exit` or a signal; `exit` does it by itself. Blocks, for at most two seconds.
    ///
    /// - Returns: Whether all calls into modules have returned. If not, the process must end by `_exit` or a signal, since
    ///   the libraries' exit handlers would crash it.
    @discardableResult
    public static func shutDownAllModules() -> Bool { ModuleEnd.run() }

    func tokens() throws(CertificateProviderError) -> TokenLocator {
        let (settings, known, isShutDown) = state.withLock { ($0.settings, $0.tokens, $0.isShutDown) }
        if isShutDown { throw .modulesEnded }
        if let known { return known }
        guard let settings else {
            throw CertificateProviderError(
                .configurationInvalid, "The provider '\(id)' has no parameters yet; set 'uri'.", provider: id)
        }
        let new = TokenLocator(settings, environment)
        return state.withLock { state in
            if let known = state.tokens { return known }
            state.tokens = new
            return new
        }
    }
}
