import CP11Kit
import CertificateProviding

/// A token that is being used: its sessions, whether its user is logged in, and where its keys are.
///
/// Worthless once the token was removed or reset. Nothing is repaired then: a new connection finds everything again.
struct TokenConnection: Sendable {
    let queue: TokenQueue
    let link: Link
    /// Whether it had a login when this operation began.
    let hadLogin: Bool
    /// The keys that were known then.
    let knownKeys: [PublicKeyInfo: Key]

    var slot: Slot { link.slot }
    var mechanisms: TokenMechanisms { link.mechanisms }

    /// A private key as this connection knows it.
    final class Key: Sendable {
        let found: TokenReader.PrivateKey
        /// Other candidates for the key: the `CKA_ID` can be the same, and most kinds of key show nothing else.
        fileprivate let others: ArraySlice<TokenReader.PrivateKey>
        /// Whether a signature of it has been verified.
        let isProven: Bool

        fileprivate init(
            _ found: TokenReader.PrivateKey, others: ArraySlice<TokenReader.PrivateKey>, isProven: Bool = false
        ) {
            self.found = found
            self.others = others
            self.isProven = isProven
        }
    }

    /// Calls `body`, alone.
    ///
    /// - Returns: `nil` where this is not the token's connection any more.
    @discardableResult
    func withOpen<T: Sendable>(_ body: (inout TokenQueue.Open) -> T) -> T? {
        queue.state.withLock { $0.open.link === link ? body(&$0.open) : nil }
    }

    /// Whether private objects can be seen: the user is logged in, or the token has no login (`CKF_LOGIN_REQUIRED`).
    var isLoggedIn: Bool { needsNoLogin || withOpen { $0.login != nil } ?? false }

    var needsNoLogin: Bool { !slot.has(UInt(CKF_LOGIN_REQUIRED)) }

    /// Logs the user in. A login belongs to the whole application and not to a session, so an existing login is a success.
    /// Blocks, with a PIN pad for as long as the person takes.
    ///
    /// - Parameter pin: `nil` for a token with a PIN pad of its own.
    /// - Returns: Whether the token has looked at the PIN, and found it right.
    func login(_ pin: SecretBytes?) throws(CryptokiError) -> Bool {
        let isProven = try withSession { session throws(CryptokiError) in
            try session.login(pin, as: CK_USER_TYPE(CKU_USER))
        }
        if isProven { slot.module.notesLogin(at: slot.id, isLoggedIn: true) }
        let login = Module.KeptLogin(slot)
        withOpen { open in
            if open.login == nil { open.login = login }
            open.isLoginOwn = open.isLoginOwn || isProven
        }
        return isProven
    }

    /// Whether the sessions or their module are gone. A failure since then says nothing about the token as it is now.
    var isOver: Bool { !link.keeper.isOfThisModule || withOpen { _ in } == nil }

    /// Whether another part of this process has logged out, or the token was away. Modules have many codes for that when they
    /// are to sign.
    var hasLostLogin: Bool {
        do throws(CryptokiError) {
            return try !withSession { session throws(CryptokiError) in
                try slot.module.control("C_GetSessionInfo") { () throws(CryptokiError) in
                    try seesEverything(session)
                }
            }
        } catch { return error.endsConnection && !error.isUnspecific }
    }

    /// Whether what a search in `session` does not find is not there: without a login private keys are hidden. Said of
    /// now, and not of the time of the search.
    func seesEverything(_ session: Session) throws(CryptokiError) -> Bool {
        guard slot.has(UInt(CKF_LOGIN_REQUIRED)) else { return true }
        var info = CK_SESSION_INFO()
        do throws(CryptokiError) {
            try session.call("C_GetSessionInfo") { $0.C_GetSessionInfo?(session.handle, &info) }
        } catch {
            if error.code == CKR_FUNCTION_NOT_SUPPORTED { return true }
            throw error
        }
        return ![CKS_RO_PUBLIC_SESSION, CKS_RW_PUBLIC_SESSION].contains(info.state)
    }

    /// Searches for what only a login shows, and once more where nothing is there: others in this process log out, and
    /// in again.
    ///
    /// - Returns: `nil` where nothing was found and the login was lost, which ``searchWithoutLogin`` says.
    func findHidden<T>(
        in session: Session, _ search: () throws(CryptokiError) -> [T]
    ) throws(CryptokiError) -> [T]? {
        for _ in 0..<2 {
            let found = try search()
            if !found.isEmpty { return found }
            // Without a login of this connection, that is expected.
            guard try seesEverything(session) else { return isLoggedIn ? nil : [] }
            // SoftHSM finds nothing on a token that it has lost.
            try slot.requirePresence()
        }
        return []
    }

    /// The error of a search without a result after the login was lost.
    static let searchWithoutLogin = CryptokiError(
        function: "C_FindObjects", code: CKR_SESSION_CLOSED, origin: .logout)

    /// Logs the user out.
    ///
    /// - Parameter always: Also where another part of the process logged them in.
    func logout(always: Bool = false) {
        let before = withOpen { open in
            defer { (open.login, open.isLoginOwn, open.keys) = (nil, false, [:]) }
            return (login: open.login, isOwn: open.isLoginOwn)
        }
        guard before?.isOwn == true || always else { return }
        try? withSession { session throws(CryptokiError) in session.logOut() }
    }

    /// Returns the private key that may belong to a public key; `nil` when there is none on the token.
    ///
    /// - Parameters:
    ///   - id: The `CKA_ID` of its certificate, which is where it is looked for.
    ///   - session: The one that the caller has, where it has one.
    func key(for publicKey: PublicKeyInfo, id: [UInt8], in session: Session? = nil) throws(CryptokiError) -> Key? {
        if let known = knownKeys[publicKey] { return known }
        func search(_ session: Session) throws(CryptokiError) -> [TokenReader.PrivateKey]? {
            try findHidden(in: session) { () throws(CryptokiError) in
                try TokenReader(session: session, slot: slot).privateKeys(id: id).all { $0.mayBe(publicKey) }
            }
        }
        let candidates = if let session { try search(session) } else { try withSession(search) }
        guard let candidates else { throw Self.searchWithoutLogin }
        guard let first = candidates.first else { return nil }
        let key = Key(first, others: candidates.dropFirst())
        withOpen { $0.keys[publicKey] = key }
        return key
    }

    /// Whether a signature has shown which key is that of a public key.
    func hasProvenKey(of publicKey: PublicKeyInfo) -> Bool { knownKeys[publicKey]?.isProven ?? false }

    /// Notes that a signature of `key` is one of the key that was looked for.
    func hasProven(_ key: Key, for publicKey: PublicKeyInfo) {
        replace(key, for: publicKey, by: Key(key.found, others: key.others, isProven: true))
    }

    /// Notes a key that was found by a signature, so that it is not looked for again.
    func hasProven(_ found: TokenReader.PrivateKey, for publicKey: PublicKeyInfo) {
        withOpen { $0.keys[publicKey] = Key(found, others: [], isProven: true) }
    }

    /// Passes on to the next key that may be the one that was looked for, since `key` is not. After the last one they
    /// are looked for anew: it may have been a bad signature only.
    /// - Returns: Whether there is another one.
    func rulesOut(_ key: Key, for publicKey: PublicKeyInfo) -> Bool {
        let next = key.others.first.map { Key($0, others: key.others.dropFirst()) }
        replace(key, for: publicKey, by: next)
        return next != nil
    }

    /// A key that is destroyed: its handle may be the next one's.
    func forgetKey(for publicKey: PublicKeyInfo) { withOpen { $0.keys[publicKey] = nil } }

    /// Only if no other thread has replaced it.
    private func replace(_ key: Key, for publicKey: PublicKeyInfo, by other: Key?) {
        withOpen { open in
            guard open.keys[publicKey]?.found.handle == key.found.handle else { return }
            open.keys[publicKey] = other
        }
    }
}
