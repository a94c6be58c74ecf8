package import CertificateProviding
package import NIOSSL

/// The result of one TLS handshake with a server. Created by ``ConnectionProbe``.
///
/// SwiftNIO SSL does not report the cipher suite, the intermediates that the server sent, or the CA names in its
/// certificate request; so they are missing here.
package struct ConnectionReport: Sendable {
    /// The negotiated TLS version.
    package let tlsVersion: TLSVersion
    /// The protocol negotiated through ALPN (RFC 7301); `nil` if there is none.
    package let applicationProtocol: String?
    /// The server's leaf certificate: verified, and valid for the server's name.
    package let serverCertificate: X509Certificate
    /// The server's reaction to the client certificate.
    package let clientAuthentication: ClientAuthentication

    /// The status of the server's answer to `GET /` (RFC 9110, section 15); `nil` if the probe sends no request.
    package let httpStatus: Int?

    /// The server's reaction to the client certificate. A refusal is a thrown error instead, and so is a connection
    /// that ends right after the handshake, without session tickets and without the alert close_notify.
    package struct ClientAuthentication: RawRepresentable, Hashable, Sendable {
        package let rawValue: String
        package init(rawValue: String) { self.rawValue = rawValue }

        /// The server did not ask for a certificate.
        package static let notRequested = Self(rawValue: "notRequested")
        /// The server asked for a certificate, and completed its handshake after it got the answer: the end of the handshake
        /// in TLS 1.2, session tickets or data in TLS 1.3. It may refuse the client all the same when it gets a request:
        /// nginx answers 400 to an expired certificate.
        package static let completed = Self(rawValue: "completed")
        /// The server asked for a certificate, and did not refuse it while the probe listened (at least the round trip
        /// of a refusal), or until the server closed the connection with close_notify. Typical for a TLS 1.3 server
        /// that waits for the client's first message.
        package static let unopposed = Self(rawValue: "unopposed")
    }
}
