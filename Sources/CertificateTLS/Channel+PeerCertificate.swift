public import CertificateProviding
public import NIOCore
import NIOSSL

extension Channel {
    /// Returns the leaf that the peer of a TLS connection has shown, or nil when it has shown none yet, or at all.
    ///
    /// Once the handshake is complete it is verified, as the configuration of the connection says.
    ///
    /// The future fails where the channel has no TLS handler, and with `malformedData` for a leaf that cannot be read.
    public func tlsPeerCertificate() -> EventLoopFuture<X509Certificate?> {
        nioSSL_peerCertificate().flatMapThrowing { try $0.map(X509Certificate.init) }
    }
}

extension ChannelPipeline.SynchronousOperations {
    /// As ``NIOCore/Channel/tlsPeerCertificate()``, on the channel's event loop.
    public func tlsPeerCertificate() throws -> X509Certificate? {
        try nioSSL_peerCertificate().map(X509Certificate.init)
    }
}

extension X509Certificate {
    init(_ certificate: NIOSSLCertificate) throws {
        try self.init(derRepresentation: certificate.toDERBytes())
    }
}
