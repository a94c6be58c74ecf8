import CP11Kit
import CertificateProviding
import Crypto
import Synchronization

extension Token {
    /// Makes sure that a key is that of its public key, by a signature where there was none on this connection.
    ///
    /// - Parameters:
    ///   - mechanisms: Those of one scheme; `nil` for the key's first one.
    ///   - asksEachTime: Whether the key wants the PIN for it. A person is not asked for that.
    func prove(
        _ key: TokenKey, by mechanisms: [SigningMechanism]? = nil, asksEachTime: Bool
    ) throws(ProviderError) {
        guard let scheme = key.signatureSchemes.first else { return }
        let (isProven, slot) = try withConnection { connection throws(CryptokiError) in
            (connection.hasProvenKey(of: key.publicKey), connection.slot)
        }
        if isProven { return }
        if asksEachTime, slot.has(UInt(CKF_PROTECTED_AUTHENTICATION_PATH)) || !isPINAtHand { return }
        _ = try sign(Self.probe(), with: key, by: mechanisms ?? key.mechanisms.filter { $0.scheme == scheme })
    }

    /// Whether a public object is a key that signs without a login. It signs a probe where there was no signature on
    /// this connection.
    func signsWithoutLogin(_ key: TokenKey) -> Bool {
        guard let scheme = key.signatureSchemes.first else { return false }
        do throws(ProviderError) {
            let isProven = try withConnection { connection throws(CryptokiError) in
                connection.hasProvenKey(of: key.publicKey)
            }
            if isProven { return true }
            _ = try sign(
                .message(Self.probe()), with: key, by: key.mechanisms.filter { $0.scheme == scheme }, loggedIn: false)
            return true
        } catch {
            // Other failures may be gone the next time.
            if error.isOfNoLogin { noteLogin(isNeededFor: key.publicKey) }
            return false
        }
    }

    /// A message that can never be mistaken for one that means something, by what it begins with.
    static func probe() -> [UInt8] {
        let nonce = SymmetricKey(size: .bits256).withUnsafeBytes { Array($0) }
        return Array("certprov proof of possession\0".utf8) + nonce
    }

    /// Signs, and after the token was away looks for the key again and makes sure that it is the same one.
    func sign(
        _ message: [UInt8], with key: TokenKey, by mechanisms: [SigningMechanism]
    ) throws(ProviderError) -> [UInt8] { try sign(.message(message), with: key, by: mechanisms) }

    /// Signs as ``sign(_:with:by:)`` does a message, by its digest. The signature of a digest alone cannot be verified here: if
    /// none of the key has been on this connection, it signs a probe first. A person who confirms each signature does so
    /// twice then.
    func sign(
        digest: [UInt8], with key: TokenKey, by mechanisms: [SigningMechanism]
    ) throws(ProviderError) -> [UInt8] { try sign(.digest(digest), with: key, by: mechanisms) }

    private func sign(
        _ content: SignedContent, with key: TokenKey, by mechanisms: [SigningMechanism]
    ) throws(ProviderError) -> [UInt8] {
        if needsNoLogin(for: key.publicKey) {
            do throws(ProviderError) {
                return try sign(content, with: key, by: mechanisms, loggedIn: false)
            } catch {
                guard error.isOfNoLogin else { throw error }
                noteLogin(isNeededFor: key.publicKey)
            }
        }
        return try sign(content, with: key, by: mechanisms, loggedIn: true)
    }

    /// - Parameter loggedIn: Whether to log in first.
    private func sign(
        _ content: SignedContent, with key: TokenKey, by mechanisms: [SigningMechanism], loggedIn: Bool
    ) throws(ProviderError) -> [UInt8] {
        while true {
            if case .digest = content { try prove(key, by: mechanisms, asksEachTime: false) }
            guard let result = try attempt(content, with: key, by: mechanisms, loggedIn: loggedIn) else {
                try pins.requirePermission(for: self)
                throw ProviderError(
                    .notFound,
                    "The token '\(displayName)' no longer has the private key of the certificate; fetch a new identity."
                )
            }
            let refusal: ProviderError
            do throws(ProviderError) {
                let (signature, scheme) = try signature(result.outcome, for: key)
                if result.key.isProven { return signature }
                // The token was away after the probe.
                guard case .message(let message) = content else { continue }
                if key.publicKey.isValidSignature(signature, for: message, using: scheme) {
                    result.connection.hasProven(result.key, for: key.publicKey)
                    return signature
                }
                refusal = ProviderError(
                    .keyMismatch,
                    "The private key on the token '\(displayName)', id \(DisplayText.hexadecimal(key.id)), is not the key of the "
                        + "certificate; replace the key or the certificate, or configure another identity."
                )
            } catch {
                if result.key.isProven { throw error }
                refusal = error
            }
            guard result.connection.rulesOut(result.key, for: key.publicKey) else { throw refusal }
        }
    }

    private func signature(
        _ outcome: Result<TokenSignature, CryptokiError>, for key: TokenKey
    ) throws(ProviderError) -> ([UInt8], SignatureScheme) {
        switch outcome {
        case .success(let signature):
            return (try signature.encoded(for: key.publicKey, token: displayName), signature.scheme)
        case .failure(let error): throw describe(error)
        }
    }

    /// Signs with the remembered handle of the key; `nil` when there is none.
    private func attempt(
        _ content: SignedContent, with key: TokenKey, by mechanisms: [SigningMechanism], loggedIn: Bool
    ) throws(ProviderError)
        -> (outcome: Result<TokenSignature, CryptokiError>, key: TokenConnection.Key, connection: TokenConnection)?
    {
        try withConnection(loggedIn: loggedIn) { connection throws(CryptokiError) in
            guard let known = try connection.key(for: key.publicKey, id: key.id) else { return nil }
            do throws(CryptokiError) {
                let signature = try connection.withSession { session throws(CryptokiError) in
                    try session.sign(
                        content, with: known.found.handle, by: mechanisms, modulusBits: key.publicKey.bits,
                        authenticate: known.found.needsPINEachTime ? confirmation(on: connection) : nil)
                }
                return (.success(signature), known, connection)
            } catch {
                // If several keys have one id, the first may be of another kind.
                guard !known.isProven, error.isOfAnotherKind else { throw error }
                return (.failure(error), known, connection)
            }
        }
    }
}

extension ProviderError {
    /// Whether the token demands a login.
    fileprivate var isOfNoLogin: Bool {
        code == .interactionRequired && nativeCode == Int(CKR_USER_NOT_LOGGED_IN)
    }
}
