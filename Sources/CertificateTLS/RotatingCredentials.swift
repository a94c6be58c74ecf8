package import CertificateProviding
import NIOCore
package import NIOSSL
import Synchronization

/// The identity of ``RotatingTLS``, which is replaced while servers and clients use it.
///
/// Every handshake uses the chain and the key that are current when it needs them, always of the same identity.
package final class RotatingCredentials: TLSCredentialSource {
    private struct State {
        var credentials: TLSCredentials
        /// The number of the update that installed the credentials.
        var installed: UInt64 = 0
        /// The number of the last update that was started.
        var begun: UInt64 = 0
    }
    private let state: Mutex<State>
    /// One list for all identities: BoringSSL reads it from the context, not from the credentials.
    private let preferences: [SignatureAlgorithm]
    /// Whether the first key can sign in TLS 1.3.
    private let signsInTLS13: Bool

    /// Creates an object with initial credentials. Their key is not tested; it first signs in a handshake.
    ///
    /// Their signature schemes remain the most preferred ones in every configuration that presents this object,
    /// whatever identities follow. If their key cannot sign in TLS 1.3, TLS 1.2 remains the highest version.
    package init(_ credentials: TLSCredentials) {
        self.state = Mutex(State(credentials: credentials))
        self.signsInTLS13 = credentials.signsInTLS13
        let first = credentials.signatureAlgorithms
        self.preferences = first + SignatureAlgorithm.usable.filter { !first.contains($0) }
    }

    /// The credentials of the next handshake. May be read on any thread; does not block.
    package var current: TLSCredentials { state.withLock { $0.credentials } }

    /// Replaces the identity as ``RotatingTLS/update(to:)`` says.
    package func update(to identity: Identity) async throws(ProviderError) {
        let number = state.withLock { state in
            state.begun += 1
            return state.begun
        }
        let credentials = try TLSCredentials(identity)
        try checkPreferences(for: credentials)
        do {
            try await identity.verifyPossession(using: credentials.signatureAlgorithms.first?.scheme)
        } catch {
            throw error.attributed(to: identity.provenance.provider)
        }
        state.withLock { state in
            guard number > state.installed else { return }  // overtaken by a later one
            state.credentials = credentials
            state.installed = number
        }
    }

    /// Makes `configuration` ask this object for the current credentials in each handshake.
    package func present(in configuration: inout TLSConfiguration) {
        // The configuration holds no credentials of its own, so that none can outlive an update. BoringSSL calls back
        // on servers after the ClientHello, and on clients when the server asks for a certificate.
        configuration.certificateChain = []
        configuration.privateKey = nil
        configuration.signingSignatureAlgorithms = preferences
        if !signsInTLS13 { configuration.excludeTLS13() }
        configuration.sslContextCallback = { [self] _, promise in promise.succeed(current.override) }
    }

    /// Checks that BoringSSL can use the key with ``preferences``. BoringSSL picks the first entry that the key type
    /// permits and the peer supports. A key inside BoringSSL supports all of them. For an external key, all schemes
    /// that it supports must come before those that it does not.
    private func checkPreferences(for credentials: TLSCredentials) throws(ProviderError) {
        guard !credentials.isKeyNative else { return }
        let key = credentials.identity.certificate.publicKey
        let able = Set(credentials.signatureAlgorithms)
        let leading = preferences.filter { $0.fits(key.algorithm) }.prefix { able.contains($0) }
        guard leading.count == able.count else {
            let schemes = credentials.signatureAlgorithms.map(\.scheme.description).joined(separator: ", ")
            throw ProviderError(
                .unsupportedAlgorithm,
                """
                The key of '\(credentials.identity.certificate.subject)' (\(key.displayName)) signs with \(schemes), \
                which does not fit the TLS configurations in use; restart the service to use it.
                """,
                provider: credentials.identity.provenance.provider)
        }
    }
}
