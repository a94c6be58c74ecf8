public import CertificateProviding
public import NIOSSL

/// What one TLS handshake with a server showed. Made by ``ConnectionProbe``.
///
/// SwiftNIO SSL does not tell which cipher suite was negotiated, which intermediates the server sent, nor which
/// authorities it named when it asked for a certificate; so they are not here.
public struct ConnectionReport: Sendable {
    public let tlsVersion: TLSVersion
    /// What was agreed through ALPN (RFC 7301); nil without an agreement.
    public let applicationProtocol: String?
    /// The server's leaf: verified, and valid for the server's name.
    public let serverCertificate: X509Certificate
    public let clientAuthentication: ClientAuthentication

    /// What the server made of the client's certificate. A refusal is not among these but a thrown error, and so is a
    /// connection that ends right after the handshake without the alert close_notify.
    public struct ClientAuthentication: RawRepresentable, Hashable, Sendable {
        public let rawValue: String
        public init(rawValue: String) { self.rawValue = rawValue }

        /// The server did not ask for a certificate.
        public static let notRequested = Self(rawValue: "notRequested")
        /// The server asked, and went on after it had the answer.
        public static let accepted = Self(rawValue: "accepted")
        /// The server asked, and raised no objection for as long as the probe listened, which is at least the round
        /// trip that a refusal takes, or until the server closed the connection with close_notify. A TLS 1.3 server that
        /// waits for the client's first message looks like this.
        public static let unopposed = Self(rawValue: "unopposed")
    }
}
