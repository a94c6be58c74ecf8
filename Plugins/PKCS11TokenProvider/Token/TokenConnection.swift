import CP11Kit
import CertificateProviding
import Synchronization

/// A token that is being used: its sessions, whether its user is logged in, and where its keys are.
///
/// Worthless once the token was removed or reset. Nothing is repaired then: a new connection finds everything again.
final class TokenConnection: Sendable {
    let slot: Slot
    let sessions: SessionPool
    let mechanisms: TokenMechanisms
    private let state = Mutex(State())

    private struct State {
        var isLoggedIn = false
        /// By the public key, and after login: the same handle may later mean another key.
        var keys: [PublicKeyInfo: Key] = [:]
    }

    /// A private key as this connection knows it.
    struct Key: Sendable {
        let found: TokenReader.PrivateKey
        /// Others that may be the one: the `CKA_ID` can be the same, and most kinds of key show nothing else.
        fileprivate var others: ArraySlice<TokenReader.PrivateKey>
        /// Whether a signature of it has been verified.
        fileprivate(set) var isProven = false
    }

    /// Opens the first session. Blocks.
    init(slot: Slot) throws(CryptokiError) {
        self.slot = slot
        self.sessions = try SessionPool(slot: slot)
        self.mechanisms = try TokenMechanisms(of: slot)
    }

    /// Whether private objects can be seen: the user is logged in, or the token has no login (`CKF_LOGIN_REQUIRED`).
    var isOpen: Bool { !slot.has(UInt(CKF_LOGIN_REQUIRED)) || state.withLock { $0.isLoggedIn } }

    /// Logs the user in. Login belongs to the whole application and not to a session: being logged in already is success,
    /// whoever did it. Blocks, with a PIN pad for as long as the person takes.
    ///
    /// - Parameter pin: `nil` for a token with a PIN pad of its own.
    /// - Returns: Whether the token has looked at the PIN, and found it right.
    func login(_ pin: SecretBytes?) throws(CryptokiError) -> Bool {
        let isProven = try sessions.withSession { session throws(CryptokiError) in
            do throws(CryptokiError) {
                try session.login(pin, as: CK_USER_TYPE(CKU_USER))
                return true
            } catch {
                guard error.code == CKR_USER_ALREADY_LOGGED_IN else { throw error }
                return false
            }
        }
        state.withLock { $0.isLoggedIn = true }
        return isProven
    }

    /// Whether somebody else in this process has logged out. Modules call that many things when they are to sign.
    var hasLostLogin: Bool {
        var info = CK_SESSION_INFO()
        let isKnown: Void? = try? sessions.withSession { session throws(CryptokiError) in
            try slot.module.call("C_GetSessionInfo") { $0.C_GetSessionInfo?(session.handle, &info) }
        }
        return isKnown != nil && state.withLock(\.isLoggedIn)
            && [CKS_RO_PUBLIC_SESSION, CKS_RW_PUBLIC_SESSION].contains(info.state)
    }

    /// Logs the user out, where this connection logged them in.
    func logout() {
        guard
            state.withLock({ state in
                defer { state = State() }
                return state.isLoggedIn
            })
        else { return }
        try? sessions.withSession { session throws(CryptokiError) in
            try slot.module.call("C_Logout") { $0.C_Logout?(session.handle) }
        }
    }

    /// Returns the private key that may belong to a public key; `nil` when there is none on the token.
    ///
    /// - Parameter id: The `CKA_ID` of its certificate, which is where it is looked for.
    func key(for publicKey: PublicKeyInfo, id: [UInt8]) throws(CryptokiError) -> Key? {
        if let known = state.withLock({ $0.keys[publicKey] }) { return known }
        let found = try sessions.withSession { session throws(CryptokiError) in
            try TokenReader(session: session, slot: slot).privateKeys(id: id)
        }
        let candidates = found.filter { $0.mayBe(publicKey) }
        guard let first = candidates.first else { return nil }
        let key = Key(found: first, others: candidates.dropFirst())
        state.withLock { $0.keys[publicKey] = key }
        return key
    }

    /// Notes that a signature of `key` is one of the key that was looked for.
    func hasProven(_ key: Key, for publicKey: PublicKeyInfo) {
        update(key, for: publicKey) { $0.isProven = true }
    }

    /// Passes on to the next key that may be the one that was looked for, since `key` is not.
    /// - Returns: Whether there is another one.
    func rulesOut(_ key: Key, for publicKey: PublicKeyInfo) -> Bool {
        guard let next = key.others.first else { return false }
        update(key, for: publicKey) { $0 = Key(found: next, others: key.others.dropFirst()) }
        return true
    }

    /// Only where no other thread has, meanwhile.
    private func update(_ key: Key, for publicKey: PublicKeyInfo, _ change: (inout Key) -> Void) {
        state.withLock { state in
            guard var known = state.keys[publicKey], known.found.handle == key.found.handle else { return }
            change(&known)
            state.keys[publicKey] = known
        }
    }
}

extension Session {
    /// Blocks.
    func login(_ pin: SecretBytes?, as user: CK_USER_TYPE) throws(CryptokiError) {
        guard let pin else {
            return try module.call("C_Login") { $0.C_Login?(handle, user, nil, 0) }
        }
        try pin.withUnsafeBytes { bytes throws(CryptokiError) in
            // The standard's parameter is not const, and modules do not write to it.
            let text = UnsafeMutablePointer(mutating: bytes.bindMemory(to: UInt8.self).baseAddress)
            try module.call("C_Login") { $0.C_Login?(handle, user, text, CK_ULONG(bytes.count)) }
        }
    }
}
