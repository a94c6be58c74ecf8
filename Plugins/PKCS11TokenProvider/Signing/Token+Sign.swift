import CP11Kit
import CertificateProviding

extension Token {
    /// Signs, and after the token was away looks for the key again and makes sure that it is the same one.
    func sign(
        _ message: [UInt8], with key: TokenKey, by ways: [SigningMechanism]
    ) throws(CertificateProviderError) -> [UInt8] {
        while true {
            guard let result = try attempt(message, with: key, by: ways) else {
                try pins.requirePermission(for: self)
                throw CertificateProviderError(
                    .notFound, "The token '\(displayName)' no longer has the private key of the certificate.")
            }
            let signature = try result.signature.encoded(for: key.publicKey, token: displayName)
            if result.key.isProven { return signature }
            if key.publicKey.isValidSignature(signature, for: message, using: result.signature.scheme) {
                result.connection.hasProven(result.key, for: key.publicKey)
                return signature
            }
            guard result.connection.rulesOut(result.key, for: key.publicKey) else {
                throw CertificateProviderError(
                    .keyMismatch,
                    "The key on the token '\(displayName)' is no longer that of the certificate; obtain the identity anew."
                )
            }
        }
    }

    /// Signs with what is taken for the key; `nil` when there is none.
    private func attempt(
        _ message: [UInt8], with key: TokenKey, by ways: [SigningMechanism]
    ) throws(CertificateProviderError)
        -> (signature: TokenSignature, key: TokenConnection.Key, connection: TokenConnection)?
    {
        try withOpenConnection { connection throws(CryptokiError) in
            guard let known = try connection.key(for: key.publicKey, id: key.id) else { return nil }
            let signature = try connection.sessions.withSession { session throws(CryptokiError) in
                try session.sign(
                    message, with: known.found.handle, by: ways, modulusBits: key.publicKey.bits,
                    authenticate: known.found.needsPINEachTime ? confirmation(on: connection) : nil)
            }
            return (signature, known, connection)
        }
    }
}
