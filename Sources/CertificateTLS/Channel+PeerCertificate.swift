public import CertificateProviding
public import NIOCore
import NIOSSL

extension Channel {
    /// Returns the peer's leaf certificate; `nil` if the peer of the TLS connection has not presented one.
    ///
    /// After the handshake it has been verified as the connection's configuration requires.
    ///
    /// The future fails if the channel has no TLS handler, and with `malformedData` for a leaf that cannot be read.
    public func tlsPeerCertificate() -> EventLoopFuture<X509Certificate?> {
        nioSSL_peerCertificate().flatMapThrowing { try $0.map(X509Certificate.init) }
    }
}

extension ChannelPipeline.SynchronousOperations {
    /// Returns the leaf like ``NIOCore/Channel/tlsPeerCertificate()``. Call it on the channel's event loop.
    ///
    /// - Throws: SwiftNIO's error for a channel without a TLS handler; `malformedData` for a leaf that cannot be read.
    public func tlsPeerCertificate() throws -> X509Certificate? {
        try nioSSL_peerCertificate().map(X509Certificate.init)
    }
}

extension X509Certificate {
    init(_ certificate: NIOSSLCertificate) throws {
        try self.init(derRepresentation: certificate.toDERBytes())
    }
}
