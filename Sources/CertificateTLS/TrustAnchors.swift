public import CertificateProviding
import NIOSSL

/// The trust anchors of a connection.
public struct TrustAnchors: Sendable, Hashable {
    /// The name of the anchors in messages, such as `the file '/etc/app/ca.pem'`.
    public var name: String {
        switch source {
        case .system: "the system trust store"
        case .pemFile(let path): "the file \(path.shellQuoted)"
        case .certificates: origin ?? "the given certificates"
        }
    }

    /// Returns the same anchors with another ``name``: the file or record that certificates were read from.
    public func named(_ origin: String) -> Self {
        var copy = self
        copy.origin = origin
        return copy
    }

    private enum Source: Hashable {
        case system(admitsAnyClient: Bool)
        case pemFile(String)
        case certificates([X509Certificate])
    }
    private let source: Source
    private var origin: String?

    /// The system trust store, for a client. A server that demands client certificates refuses it: it would admit
    /// every client with a certificate from any public CA.
    public static let system = Self(source: .system(admitsAnyClient: false))

    /// The system trust store, also for a server that demands client certificates. Every client with a certificate from
    /// any of its CAs is admitted, so such a server must check the names of each client itself.
    public static let systemAdmittingAnyClient = Self(source: .system(admitsAnyClient: true))

    /// Exactly these certificates. At least one must be self-signed, since a chain must end in one: BoringSSL uses the
    /// others as intermediates that the peer need not send. An empty list is refused when a configuration is created.
    public static func certificates(_ certificates: [X509Certificate]) -> Self {
        Self(source: .certificates(certificates))
    }

    /// The certificates of a PEM file (RFC 7468), used as in ``certificates(_:)``. The file is read whenever a
    /// configuration is created.
    public static func pemFile(_ path: String) -> Self { Self(source: .pemFile(path)) }

    /// The maximum size in bytes. The largest public bundles have a quarter of a megabyte.
    static let maximumFileSize = 16 * 1024 * 1024

    /// Reads the anchors. Blocks on the file, if there is one.
    ///
    /// - Throws: `fileNotFound`; `configurationInvalid` for a file that cannot be read, is not a regular file, is too
    ///   large or contains certificates in OpenSSL's own format, and for a list or file without a self-signed
    ///   certificate; `malformedData` for a damaged certificate.
    func load() throws(CertificateProviderError) -> NIOSSLTrustRoots {
        switch source {
        case .system:
            return .default
        case .certificates(let certificates):
            guard !certificates.isEmpty else {
                throw CertificateProviderError(
                    .configurationInvalid, "The list of trust anchors is empty; add at least one root certificate.")
            }
            try Self.checkThatChainsCanEnd(in: certificates, from: "The list of trust anchors")
            do {
                return .certificates(
                    try certificates.map { try NIOSSLCertificate(bytes: $0.derRepresentation, format: .der) })
            } catch {
                throw CertificateProviderError(
                    .malformedData, "A trust anchor is not a certificate that BoringSSL can read.", underlying: error)
            }
        case .pemFile(let path):
            return .certificates(try Self.certificates(inPEMFile: path))
        }
    }

    /// Reads the anchors of a server that demands client certificates. Blocks as ``load()``.
    ///
    /// - Throws: As ``load()``, and `configurationInvalid` for ``system``.
    func loadForClients() throws(CertificateProviderError) -> NIOSSLTrustRoots {
        if source == .system(admitsAnyClient: false) {
            throw CertificateProviderError(
                .configurationInvalid,
                """
                No trust anchors are configured for clients. The system trust store would admit every client with a \
                certificate from a public CA; set TrustAnchors in the property file to a PEM file with the CAs of the \
                clients.
                """)
        }
        return try load()
    }

    /// Returns the anchors; `nil` for the system trust store. Blocks and throws as ``load()``.
    func certificates() throws(CertificateProviderError) -> [X509Certificate]? {
        switch source {
        case .system: return nil
        case .certificates(let certificates):
            _ = try load()
            return certificates
        case .pemFile(let path):
            let readable = try Self.certificates(inPEMFile: path)
            return readable.compactMap { try? X509Certificate(derRepresentation: $0.toDERBytes()) }
        }
    }

    /// Returns the same anchors with their file read, which they keep the name of. Blocks and throws as ``load()``.
    package func read() throws(CertificateProviderError) -> TrustAnchors {
        guard case .pemFile = source, let certificates = try certificates() else { return self }
        return .certificates(certificates).named(name)
    }

    private static func certificates(
        inPEMFile path: String
    ) throws(CertificateProviderError) -> [NIOSSLCertificate] {
        let file = "The trust anchor file \(path.shellQuoted)"
        let blocks: [PEMBlock]
        let certificates: [NIOSSLCertificate]
        do throws(CertificateProviderError) {
            blocks = try PEMFile(path: path, atMost: maximumFileSize).certificateBlocks()
            certificates = try blocks.map { block throws(CertificateProviderError) in
                do { return try NIOSSLCertificate(bytes: block.bytes, format: .der) } catch {
                    throw CertificateProviderError(
                        .malformedData, "line \(block.line) begins a damaged certificate; replace it.",
                        underlying: error)
                }
            }
        } catch {
            var error = error
            error.message = "\(file) cannot be used: \(error.message)"
            throw error
        }
        guard !certificates.isEmpty else {
            throw CertificateProviderError(
                .configurationInvalid,
                "\(file) holds no PEM certificate; convert DER with: openssl x509 -inform der")
        }
        // A certificate that this library cannot parse is not a root that BoringSSL uses, but may stand beside one.
        let readable = blocks.lazy.compactMap { try? X509Certificate(derRepresentation: $0.bytes) }
        try checkThatChainsCanEnd(in: readable, from: file)
        return certificates
    }

    private static func checkThatChainsCanEnd(
        in certificates: some Sequence<X509Certificate>, from origin: String
    ) throws(CertificateProviderError) {
        var issuer: String?
        for certificate in certificates {
            if certificate.isSelfIssued { return }
            issuer = certificate.issuer
        }
        throw CertificateProviderError(
            .configurationInvalid,
            """
            \(origin) contains no self-signed certificate, and every chain must end in one; add the certificate of \
            '\(issuer ?? "the root")'.
            """)
    }
}
