import Foundation
import Hummingbird
import NIOCore
import NIOSSL
import SwiftASN1
import X509

/// The principal is the subject of the certificate of the TLS connection.
struct TLSClientCertificate: Authenticator {
    let revocations: Revocations

    func authenticate(_ request: Request, on channel: any Channel) async throws -> Authentication {
        guard let peer = try await channel.nioSSL_peerCertificate().get() else {
            throw HTTPError(.forbidden, message: "The connection has no client certificate.")
        }
        return try revocations.authenticate(try Certificate(derEncoded: try peer.toDERBytes()))
    }
}

/// The principal is the subject of the certificate that a reverse proxy has verified: nginx's `$ssl_client_verify` in
/// `X-Client-Verify`, and its `$ssl_client_escaped_cert` in `X-Client-Certificate`.
///
/// Anything that reaches the listener can claim to be any principal. Only the proxy may reach it.
struct ProxiedClientCertificate: Authenticator {
    let revocations: Revocations

    func authenticate(_ request: Request, on channel: any Channel) async throws -> Authentication {
        guard request.headers["X-Client-Verify"] == "SUCCESS" else {
            throw HTTPError(.forbidden, message: "The proxy has verified no client certificate.")
        }
        guard let pem = request.headers["X-Client-Certificate"]?.removingPercentEncoding,
            let certificate = try? Certificate(pemEncoded: pem)
        else {
            throw HTTPError(.badRequest, message: "X-Client-Certificate is not one URL-encoded certificate in PEM.")
        }
        return try revocations.authenticate(certificate)
    }
}

extension Revocations {
    /// A connection may outlive its certificate. Each request is therefore checked again.
    fileprivate func authenticate(_ certificate: Certificate) throws -> Authentication {
        let now = Date()
        guard (certificate.notValidBefore...certificate.notValidAfter).contains(now), !isRevoked(certificate, at: now)
        else { throw HTTPError(.forbidden, message: "The client certificate is expired or revoked.") }
        guard let principal = Principal(certificate) else {
            throw HTTPError(.forbidden, message: "The client certificate has no subject.")
        }
        return Authentication(principal: principal)
    }
}
