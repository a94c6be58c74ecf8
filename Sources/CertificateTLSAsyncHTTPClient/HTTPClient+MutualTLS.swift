public import AsyncHTTPClient
public import CertificateProviding
public import CertificateTLS
import NIOSSL

extension HTTPClient.Configuration {
    /// Creates a configuration for mutual TLS: presents `credentials` to servers that ask, and trusts `trustAnchors`
    /// only.
    ///
    /// With ``/CertificateTLS/RotatingTLSCredentials``, one client keeps its connection pool when the identity changes. New connections
    /// present the new identity; pooled ones keep theirs until they were idle for `connectionPool.idleTimeout` or used
    /// `maximumUsesPerConnection` times.
    ///
    /// Reads the file of the trust anchors, if there is one; do not call it on an event loop.
    /// - Throws: `fileNotFound`, `configurationInvalid` or `malformedData` for the trust anchors.
    public static func mutualTLS(
        presenting credentials: some TLSCredentialSource, trusting trustAnchors: TrustAnchors = .system
    ) throws(ProviderError) -> HTTPClient.Configuration {
        HTTPClient.Configuration(
            tlsConfiguration: try .makeClientConfiguration(presenting: credentials, trusting: trustAnchors))
    }
}
