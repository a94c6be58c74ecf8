import AsyncHTTPClient
import CertificateProviding
import CertificateTLS
import Logging
import NIOCore
import ServiceIdentity

extension HTTPClient.Configuration {
    /// Logs whom each new connection leads to. The server's certificate is verified before; this only shows it.
    ///
    /// AsyncHTTPClient shows its connections to nobody but to its debugging hooks, one for each version of HTTP.
    mutating func logServerCertificates(to logger: Logger) {
        let log: @Sendable (any Channel) -> EventLoopFuture<Void> = { channel in
            channel.tlsPeer().map { peer in
                guard let server = peer?.certificate else { return }
                logger.info("connected to server", metadata: server.logMetadata)
            }
        }
        http1_1ConnectionDebugInitializer = log
        http2ConnectionDebugInitializer = log
    }
}
