public import CertificateProviding
public import NIOCore
import NIOSSL

/// The peer of a TLS connection, as it was verified.
public struct TLSPeer: Sendable, Hashable {
    /// The verified chain: leaf first, with the trust anchor. It is the leaf alone if SwiftNIO SSL has verified the peer
    /// itself, and not a handler of ``RotatingTLS``: SwiftNIO SSL does not say which chain it has found.
    public let chain: [X509Certificate]
    /// The leaf.
    public let certificate: X509Certificate

    /// Creates a peer; `nil` for an empty chain.
    ///
    /// - Parameter chain: Leaf first.
    public init?(chain: [X509Certificate]) {
        guard let leaf = chain.first else { return nil }
        (self.chain, certificate) = (chain, leaf)
    }

    /// The alternative names of the leaf, in the order of the certificate.
    public var names: [AlternativeName] { certificate.subjectAlternativeNames }
    /// The common names of the leaf's subject: none, one, or several.
    public var commonNames: [String] { certificate.commonNames }
    /// The organizational units of the leaf's subject.
    public var organizationalUnits: [String] { certificate.organizationalUnits }
}

extension TLSPeer: CustomStringConvertible {
    /// The subject and the alternative names, safe to print on a terminal.
    public var description: String {
        let names = names.prefix(8).map(\.description).joined(separator: ", ")
        return "'\(certificate.subject)'" + (names.isEmpty ? "" : " (\(names))")
    }
}

extension Channel {
    /// Returns the peer of the TLS connection; `nil` if it has not presented a certificate.
    ///
    /// After the handshake it has been verified as the connection's configuration requires.
    ///
    /// The future fails if the channel has no TLS handler, and with `malformedData` for a certificate that cannot be read.
    public func tlsPeer() -> EventLoopFuture<TLSPeer?> {
        pipeline.handler(type: NIOSSLHandler.self).flatMapThrowing { try $0.peer() }
    }
}

extension ChannelPipeline.SynchronousOperations {
    /// Returns the peer like ``NIOCore/Channel/tlsPeer()``. Call it on the channel's event loop.
    ///
    /// - Throws: SwiftNIO's error for a channel without a TLS handler; `malformedData` for a certificate that cannot be read.
    public func tlsPeer() throws -> TLSPeer? { try handler(type: NIOSSLHandler.self).peer() }
}

extension NIOSSLHandler {
    fileprivate func peer() throws -> TLSPeer? {
        let chain = peerValidatedCertificateChain.map(Array.init) ?? peerCertificate.map { [$0] } ?? []
        return TLSPeer(chain: try chain.map(X509Certificate.init))
    }
}

extension X509Certificate {
    init(_ certificate: NIOSSLCertificate) throws {
        try self.init(derRepresentation: certificate.toDERBytes())
    }
}
