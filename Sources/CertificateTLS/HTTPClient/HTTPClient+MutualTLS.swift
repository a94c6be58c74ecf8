public import AsyncHTTPClient
public import CertificateProviding
public import CertificateTLSCore
import NIOSSL

extension HTTPClient.Configuration {
    /// A configuration for mutual TLS: presents `credentials` to servers that ask, and trusts `trustAnchors` only.
    ///
    /// With ``RotatingTLSCredentials`` one client keeps its connection pool over every change of identity. New
    /// connections present the new identity; pooled ones keep theirs until they have been idle for
    /// `connectionPool.idleTimeout` or were used `maximumUsesPerConnection` times.
    ///
    /// Reads the trust anchors' file, where there is one; do not call it on an event loop.
    /// - Throws: `fileNotFound`, `configurationInvalid` or `malformedData` for the trust anchors.
    public static func mutualTLS(
        presenting credentials: some TLSCredentialSource, trusting trustAnchors: TrustAnchors = .system
    ) throws(CertificateProviderError) -> HTTPClient.Configuration {
        HTTPClient.Configuration(
            tlsConfiguration: try .makeClientConfiguration(presenting: credentials, trusting: trustAnchors))
    }
}
