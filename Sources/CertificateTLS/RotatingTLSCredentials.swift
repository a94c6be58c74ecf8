public import CertificateProviding
import NIOCore
public import NIOSSL
import Synchronization

/// Credentials that can be replaced while servers and clients use them.
///
/// Every handshake takes the chain and the key that are current when it needs them, always of the same identity.
/// Connections that are established, and handshakes that have already taken theirs, go on undisturbed. A pooled
/// connection of an HTTP client therefore keeps its identity until the pool closes it.
///
/// Trust is not part of a rotation. A configuration reads its ``TrustAnchors`` when it is made, and keeps them: for
/// other ones, make a new configuration, with the same credentials, and new servers or clients with it.
public final class RotatingTLSCredentials: TLSCredentialSource {
    private struct State {
        var credentials: TLSCredentials
        /// The number of the update that brought the credentials.
        var installed: UInt64 = 0
        /// The number of the last update that began.
        var begun: UInt64 = 0
    }
    private let state: Mutex<State>
    /// One list for all identities to come: BoringSSL takes it from the context, not from the credentials.
    private let preferences: [SignatureAlgorithm]
    /// Of the first one, as the preferences are.
    private let signsInTLS13: Bool

    /// Begins with `credentials`, whose key is not asked for a probe: it is known to sign only once a handshake needs
    /// it.
    ///
    /// Their signature schemes stay the most preferred ones in every configuration that presents this object, whatever
    /// identities follow; and where their key cannot sign in TLS 1.3, TLS 1.2 stays the highest version.
    public init(_ credentials: TLSCredentials) {
        self.state = Mutex(State(credentials: credentials))
        self.signsInTLS13 = credentials.signsInTLS13
        let first = credentials.signatureAlgorithms
        self.preferences = first + SignatureAlgorithm.usable.filter { !first.contains($0) }
    }

    /// What the next handshake presents. Safe to read on any thread; does not block.
    public var current: TLSCredentials { state.withLock { $0.credentials } }

    /// Replaces the identity, after it was converted and its key has signed a probe that its certificate verifies, with
    /// the scheme that TLS prefers. On any error the present identity stays. Of several updates at the same time the
    /// one that began last wins.
    ///
    /// Runs on the caller's executor for as long as the key takes to sign. Not for an event loop.
    ///
    /// - Throws: `unsupportedAlgorithm` for an identity that BoringSSL cannot use, and for a key that stays at home and
    ///   differs from the first one in what it can sign, such as P-384 after P-256; `keyMismatch` when the probe does
    ///   not verify; or what the key reports.
    public func update(to identity: Identity) async throws(CertificateProviderError) {
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

    public func present(in configuration: inout TLSConfiguration) {
        // The configuration holds no credentials of its own, so that none can outlive an update. BoringSSL calls back
        // on servers after the ClientHello, and on clients when the server asks for a certificate.
        configuration.certificateChain = []
        configuration.privateKey = nil
        configuration.signingSignatureAlgorithms = preferences
        if !signsInTLS13 { configuration.excludeTLS13() }
        configuration.sslContextCallback = { [self] _, promise in promise.succeed(current.override) }
    }

    /// BoringSSL picks the first of ``preferences`` that the kind of key permits and the peer knows. A key of its own
    /// can do them all; of a key that stays at home, everything it can do must come before what it cannot.
    private func checkPreferences(for credentials: TLSCredentials) throws(CertificateProviderError) {
        guard !credentials.isKeyNative else { return }
        let key = credentials.identity.certificate.publicKey
        let able = Set(credentials.signatureAlgorithms)
        let leading = preferences.filter { $0.fits(key.algorithm) }.prefix { able.contains($0) }
        guard leading.count == able.count else {
            let schemes = credentials.signatureAlgorithms.map(\.scheme.description).joined(separator: ", ")
            throw CertificateProviderError(
                .unsupportedAlgorithm,
                """
                The key of '\(credentials.identity.certificate.subject)' (\(key.displayName)) signs with \(schemes), \
                which does not fit the connections in use; restart the service to use it.
                """,
                provider: credentials.identity.provenance.provider)
        }
    }
}
