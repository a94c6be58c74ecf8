public import CertificateProviding
public import NIOCore
public import NIOSSL
import SwiftASN1
public import X509

/// The peer of a TLS connection, as it was verified.
public struct TLSPeer: Sendable, Hashable {
    /// The verified chain: leaf first, with the trust anchor. It is the leaf alone if SwiftNIO SSL has verified the peer itself, and not
    /// a handler or callback of ``RotatingTLS``: SwiftNIO SSL does not say which chain it has found. It is the leaf alone also for a
    /// client that has resumed a session of a server with the callback.
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

    /// Creates a peer of the chain that a verification callback has passed to SwiftNIO SSL.
    ///
    /// - Throws: `malformedData` for a certificate that cannot be read.
    public init(_ chain: NIOSSL.ValidatedCertificateChain) throws(ProviderError) {
        self.chain = try chain.map(X509Certificate.init(of:))
        certificate = try X509Certificate(of: chain.leaf)
    }

    /// Creates a peer of a validated chain of swift-certificates, as gRPC Swift has it.
    ///
    /// - Throws: `malformedData` for a certificate that cannot be read.
    public init(_ chain: X509.ValidatedCertificateChain) throws(ProviderError) {
        self.chain = try chain.map(X509Certificate.init(of:))
        certificate = try X509Certificate(of: chain.leaf)
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
    /// Returns the peer of the TLS connection; `nil` if it has not presented a certificate. A stream of HTTP/2 has the peer of its
    /// connection.
    ///
    /// After the handshake it has been verified as the connection's configuration requires.
    ///
    /// The future fails if the channel has no TLS handler, and with `malformedData` for a certificate that cannot be read.
    public func tlsPeer() -> EventLoopFuture<TLSPeer?> {
        let own = pipeline.handler(type: NIOSSLHandler.self).flatMapThrowing { try $0.peer() }
        guard let parent else { return own }
        return own.flatMapError { [eventLoop] error in
            guard case ChannelPipelineError.notFound = error else { return eventLoop.makeFailedFuture(error) }
            return parent.tlsPeer().hop(to: eventLoop)
        }
    }
}

extension ChannelPipeline.SynchronousOperations {
    /// Returns the peer of a TLS connection like ``NIOCore/Channel/tlsPeer()``. Call it on the channel's event loop, and not for a stream
    /// of HTTP/2.
    ///
    /// - Throws: SwiftNIO's error for a channel without a TLS handler; `malformedData` for a certificate that cannot be read.
    public func tlsPeer() throws -> TLSPeer? { try handler(type: NIOSSLHandler.self).peer() }
}

extension NIOSSLHandler {
    fileprivate func peer() throws -> TLSPeer? {
        if let chain = peerValidatedCertificateChain { return try TLSPeer(chain) }
        return try peerCertificate.flatMap { TLSPeer(chain: [try X509Certificate($0)]) }
    }
}

extension X509Certificate {
    init(_ certificate: NIOSSLCertificate) throws {
        try self.init(derRepresentation: certificate.toDERBytes())
    }

    fileprivate init(of certificate: NIOSSLCertificate) throws(ProviderError) {
        do { try self.init(certificate) } catch { throw Self.unreadable(error) }
    }

    fileprivate init(of certificate: Certificate) throws(ProviderError) {
        do {
            var serializer = DER.Serializer()
            try serializer.serialize(certificate)
            try self.init(derRepresentation: serializer.serializedBytes)
        } catch { throw Self.unreadable(error) }
    }

    private static func unreadable(_ error: any Error) -> ProviderError {
        (error as? ProviderError)
            ?? ProviderError(.malformedData, "A certificate of the peer's chain cannot be read.", underlying: error)
    }
}
