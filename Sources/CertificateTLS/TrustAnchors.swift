public import CertificateProviding
package import NIOSSL

/// The trust anchors of a connection.
public struct TrustAnchors: Sendable, Hashable {
    /// The name of the anchors in messages, such as `the file '/etc/app/ca.pem'`.
    public var name: String {
        switch source {
        case .system: "the system trust store"
        case .pemFile(let path): "the file \(path.shellQuoted)"
        case .identity: origin ?? "the trust bundle of the identity"
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
        case identity
    }
    private let source: Source
    private var origin: String?

    /// The system trust store, for a client. A server that demands client certificates refuses it: it would admit
    /// every client with a certificate from any public CA.
    public static let system = Self(source: .system(admitsAnyClient: false))

    /// The system trust store, also for a server that demands client certificates. Every client with a certificate from
    /// any of its CAs is admitted, so such a server must check the names of each client itself.
    public static let systemAdmittingAnyClient = Self(source: .system(admitsAnyClient: true))

    /// Exactly these certificates, roots or not. At least one must be self-signed if BoringSSL verifies the peer, as with
    /// ``RotatingTLS/clientConfiguration()``, since a chain must end in one there: it uses the others as intermediates that the peer need
    /// not send. An empty list is refused when it is used.
    public static func certificates(_ certificates: [X509Certificate]) -> Self {
        Self(source: .certificates(certificates))
    }

    /// The certificates of a PEM file (RFC 7468), or of all files of a directory but hidden ones, used as in
    /// ``certificates(_:)``. The files are read whenever a configuration is created; ``RotatingTLS`` reads them again when
    /// they change.
    public static func pemFile(_ path: String) -> Self { Self(source: .pemFile(path)) }

    /// The CA certificates that come with the identity (``/CertificateProviding/Identity/trust``), and change with it. For
    /// ``RotatingTLS`` only, which knows the identity.
    public static let ofIdentity = Self(source: .identity)

    package var isOfIdentity: Bool { source == .identity }
    /// The files that are read; `nil` for other anchors.
    var files: FileGroup? { if case .pemFile(let path) = source { FileGroup(path) } else { nil } }

    /// The maximum size in bytes. The largest public bundles have a quarter of a megabyte.
    static let maximumFileSize = 16 * 1024 * 1024

    /// Reads the anchors for BoringSSL. Blocks on the files, if there are any.
    ///
    /// - Throws: As ``certificates()``, and `configurationInvalid` for certificates of which none is self-signed.
    package func load() throws(ProviderError) -> NIOSSLTrustRoots {
        guard let certificates = try certificates() else { return .default }
        try checkThatChainsCanEnd(in: certificates)
        return .certificates(try Self.converted(certificates))
    }

    static func converted(
        _ certificates: [X509Certificate]
    ) throws(ProviderError) -> [NIOSSLCertificate] {
        do {
            return try certificates.map { try NIOSSLCertificate(bytes: $0.derRepresentation, format: .der) }
        } catch {
            throw ProviderError(
                .malformedData, "A trust anchor is not a certificate that BoringSSL can read.", underlying: error)
        }
    }

    /// The size in bytes up to which a server sends the names of its anchors: one record of TLS. A message has room for 64 KiB of
    /// them (RFC 8446, section 4.2.4).
    private static let maximumSizeOfNames = 16_384
    /// BoringSSL sorts the anchors of a context anew for each: with hundreds, that takes longer than the handshake.
    private static let maximumCountOfNames = 64

    private static func areShort(_ names: [X509Certificate]) -> Bool {
        names.reduce(0) { $0 + $1.subjectDER.count + 2 } <= maximumSizeOfNames
    }

    /// Returns the anchors whose names a server with a context for each connection sends to its clients: all, or none if these are
    /// many. A client that gets none chooses its certificate itself.
    static func named(
        _ certificates: [X509Certificate]
    ) throws(ProviderError) -> [NIOSSLCertificate] {
        certificates.count <= maximumCountOfNames && areShort(certificates) ? try converted(certificates) : []
    }

    /// Checks that a server may demand client certificates from these anchors.
    ///
    /// - Throws: `configurationInvalid` for ``system``.
    func requireForClients() throws(ProviderError) {
        guard source == .system(admitsAnyClient: false) else { return }
        throw ProviderError(
            .configurationInvalid,
            """
            No trust anchors are configured for clients. The system trust store would admit every client with a \
            certificate from a public CA; set TrustAnchors in the property file to a PEM file with the CAs of the \
            clients.
            """)
    }

    /// Returns the anchors, never an empty list; `nil` for the system trust store. Blocks on the files, if there are any.
    ///
    /// - Throws: `fileNotFound`; `configurationInvalid` for a file that cannot be read, is not a regular file, is too
    ///   large, contains no certificate or one in OpenSSL's own format, and for an empty list; `malformedData` for a damaged
    ///   certificate.
    func certificates() throws(ProviderError) -> [X509Certificate]? {
        switch source {
        case .system: return nil
        case .certificates(let certificates):
            guard !certificates.isEmpty else {
                throw ProviderError(
                    .configurationInvalid, "The list of trust anchors is empty; add at least one CA certificate.")
            }
            return certificates
        case .pemFile: return try contents().flatMap(\.certificates)
        case .identity:
            throw ProviderError(
                .configurationInvalid,
                "The trust anchors that come with the identity are not known here; set TrustAnchors to a PEM file.")
        }
    }

    /// Returns the anchors by their files, of which a single one is not named; empty for the system trust store. Blocks and throws
    /// as ``certificates()``.
    package func contents() throws(ProviderError) -> [(file: String?, certificates: [X509Certificate])] {
        guard case .pemFile(let path) = source else { return try certificates().map { [(nil, $0)] } ?? [] }
        return try FileGroup(path).files().map { file throws(ProviderError) in
            // One that this library cannot read may stand beside others.
            let readable = try Self.certificates(inPEMFile: file).compactMap {
                try? X509Certificate(derRepresentation: $0.toDERBytes())
            }
            guard !readable.isEmpty else {
                throw ProviderError(
                    .malformedData,
                    "The trust anchor file \(file.shellQuoted) holds no certificate that can be used; replace it.")
            }
            return (file == path ? nil : file, readable)
        }
    }

    /// Returns the anchors for an identity: its trust bundle for ``ofIdentity``, else the same.
    ///
    /// - Throws: `configurationInvalid` for an identity without trust bundle.
    package func resolved(with identity: Identity) throws(ProviderError) -> TrustAnchors {
        guard isOfIdentity else { return self }
        guard let bundle = identity.trust else {
            throw ProviderError(
                .configurationInvalid,
                """
                No CA certificates come with the identity '\(identity.certificate.subject)', so that 'TrustAnchors = provider' \
                trusts none; set TrustAnchors to a PEM file.
                """,
                provider: identity.provenance.provider)
        }
        return .certificates(bundle.certificates).named("the trust bundle of '\(identity.certificate.subject)'")
    }

    /// Returns the same anchors with their files read, which they keep the name of. Blocks and throws as
    /// ``certificates()``.
    package func read() throws(ProviderError) -> TrustAnchors {
        guard case .pemFile = source, let certificates = try certificates() else { return self }
        return .certificates(certificates).named(name)
    }

    private static func certificates(
        inPEMFile path: String
    ) throws(ProviderError) -> [NIOSSLCertificate] {
        let file = "The trust anchor file \(path.shellQuoted)"
        let blocks: [PEMBlock]
        let certificates: [NIOSSLCertificate]
        do throws(ProviderError) {
            blocks = try PEMFile(path: path, atMost: maximumFileSize).certificateBlocks()
            certificates = try blocks.map { block throws(ProviderError) in
                do { return try NIOSSLCertificate(bytes: block.bytes, format: .der) } catch {
                    throw ProviderError(
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
            throw ProviderError(
                .configurationInvalid,
                "\(file) holds no PEM certificate; convert DER with: openssl x509 -inform der")
        }
        return certificates
    }

    private func checkThatChainsCanEnd(in certificates: [X509Certificate]) throws(ProviderError) {
        guard !certificates.contains(where: \.isSelfIssued) else { return }
        let origin =
            if case .certificates = source, origin == nil { "The list of trust anchors" } else { name.capitalizedFirst }
        throw ProviderError(
            .configurationInvalid,
            """
            \(origin) contains no self-signed certificate, and where SwiftNIO SSL verifies the peer, every chain must end in \
            one; add the certificate of '\(certificates.last?.issuer ?? "the root")'.
            """)
    }
}

extension String {
    fileprivate var capitalizedFirst: String { prefix(1).uppercased() + dropFirst() }
}
