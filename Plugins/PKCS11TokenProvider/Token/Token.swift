import CP11Kit
import CertificateProviding
import Logging
import Synchronization

/// One token, wherever it is plugged in at the moment: finds it, connects to it, and connects again after it was away.
///
/// All functions block, and belong on the threads of ``calls``.
final class Token: Sendable {
    let identity: Slot.Identity
    let displayName: String
    let calls: ModuleCalls
    private let module: Module
    private let pins: PINSupply
    private let connection = Mutex<TokenConnection?>(nil)
    /// One thread at a time connects and logs in.
    private let connecting = Mutex(())

    init(_ slot: Slot, calls: ModuleCalls, pins: PINSupply) {
        self.identity = slot.identity
        self.displayName = slot.displayName
        self.module = slot.module
        self.calls = calls
        self.pins = pins
    }

    /// Lends the connection to `body`. Where the token was removed or reset, connects again and calls `body` once more.
    ///
    /// - Throws: What the token says, `tokenNotPresent` while it is away.
    func withConnection<T>(
        _ body: (TokenConnection) throws(CryptokiError) -> T
    ) throws(CertificateProviderError) -> T {
        let first = try connected()
        do throws(CryptokiError) { return try body(first) } catch {
            guard error.endsConnection else { throw describe(error) }
            forget(first)
        }
        let second = try connected()
        do throws(CryptokiError) { return try body(second) } catch {
            if error.endsConnection { forget(second) }
            throw describe(error)
        }
    }

    /// Lends a connection on which the user is logged in, where the token has a login.
    ///
    /// - Throws: Also `interactionRequired` where there is no PIN, and what ``PINPolicy`` refuses.
    func withOpenConnection<T>(
        _ body: (TokenConnection) throws(CryptokiError) -> T
    ) throws(CertificateProviderError) -> T {
        try open(try connected(), nil)
        do throws(CryptokiError) { return try body(try connectedNow()) } catch {
            guard error.endsConnection else { throw describe(error) }
            if let current = connection.withLock({ $0 }) { forget(current) }
        }
        try open(try connected(), nil)
        do throws(CryptokiError) { return try body(try connectedNow()) } catch { throw describe(error) }
    }

    /// Logs the user in, where the token has a login and it has not happened yet.
    /// - Parameter pin: One that a person has just given; otherwise the configured one is used.
    func open(pin: SecretBytes?) throws(CertificateProviderError) { try open(try connected(), pin) }

    /// Whether a login needs nobody to be asked.
    var isPINAtHand: Bool { pins.isAtHand }

    /// Whether private objects can be seen now.
    var isOpen: Bool { connection.withLock { $0 }?.isOpen ?? false }

    func logout() {
        let connection = connection.withLock { connection in
            defer { connection = nil }
            return connection
        }
        connection?.logout()
        pins.forget()
    }

    /// Signs, and after the token was away looks for the key again and makes sure that it is the same one.
    func sign(
        _ message: [UInt8], with key: TokenKey, by way: SigningMechanism
    ) throws(CertificateProviderError) -> [UInt8] {
        let signature = try withOpenConnection { connection throws(CryptokiError) -> [UInt8]? in
            guard let handle = try connection.key(for: key.publicKey, id: key.id) else { return nil }
            return try connection.sessions.withSession { session throws(CryptokiError) in
                try session.sign(
                    message, with: handle.handle, by: way, modulusBits: key.publicKey.bits,
                    authenticate: handle.needsPINEachTime
                        ? { session throws(CryptokiError) in
                            try session.login(self.pins.known, as: CK_USER_TYPE(CKU_CONTEXT_SPECIFIC))
                        } : nil)
            }
        }
        guard let signature else {
            throw CertificateProviderError(
                .notFound, "The token '\(displayName)' no longer has the private key of the certificate.")
        }
        return try way.encoded(signature, token: displayName)
    }

    private func connectedNow() throws(CryptokiError) -> TokenConnection {
        guard let current = connection.withLock({ $0 }) else {
            throw CryptokiError(function: "C_OpenSession", code: CKR_TOKEN_NOT_PRESENT)
        }
        return current
    }

    private func connected() throws(CertificateProviderError) -> TokenConnection {
        if let current = connection.withLock({ $0 }) { return current }
        return try connecting.withLock { _ throws(CertificateProviderError) in
            if let current = connection.withLock({ $0 }) { return current }
            do throws(CryptokiError) {
                guard let slot = try present() else {
                    throw CryptokiError(function: "C_GetSlotList", code: CKR_TOKEN_NOT_PRESENT)
                }
                let new = try TokenConnection(slot: slot)
                connection.withLock { $0 = new }
                return new
            } catch { throw describe(error) }
        }
    }

    /// The slot that the token is in now; `nil` while it is in none.
    private func present() throws(CryptokiError) -> Slot? {
        try Slot.all(of: module).first { $0.identity == identity }
    }

    private func forget(_ old: TokenConnection) {
        connection.withLock { if $0 === old { $0 = nil } }
    }

    private func open(_ connection: TokenConnection, _ pin: SecretBytes?) throws(CertificateProviderError) {
        guard !connection.isOpen else { return }
        try connecting.withLock { _ throws(CertificateProviderError) in
            guard !connection.isOpen else { return }
            let slot: Slot
            do throws(CryptokiError) {
                // The flags as they are now: the PIN may have been tried elsewhere meanwhile.
                guard let now = try present() else {
                    throw CryptokiError(function: "C_GetTokenInfo", code: CKR_TOKEN_NOT_PRESENT)
                }
                slot = now
            } catch { throw describe(error) }
            try pins.login(slot, given: pin) { pin throws(CryptokiError) in try connection.login(pin) }
        }
    }

    func describe(_ error: CryptokiError) -> CertificateProviderError {
        CertificateProviderError(error, token: displayName)
    }
}
