import AsyncHTTPClient
import CertificateProviding
import Logging
import NIOCore
import NIOSSL
import ServiceIdentity

extension HTTPClient.Configuration {
    /// Logs whom each new connection leads to. The server's certificate is verified before; this only shows it.
    ///
    /// AsyncHTTPClient shows its connections to nobody but to a debugging hook.
    mutating func logServerCertificates(to logger: Logger) {
        httpVersion = .http1Only
        http1_1ConnectionDebugInitializer = { channel in
            channel.nioSSL_peerCertificate().flatMapThrowing { certificate in
                guard let certificate else { return }
                let server = try X509Certificate(derRepresentation: certificate.toDERBytes())
                logger.info("connected to server", metadata: server.logMetadata)
            }
        }
    }
}
