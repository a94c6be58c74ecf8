/// The CA certificates that come with an identity from its source, such as an enrolment server's CAs. A service that
/// trusts its identity's source verifies peers by them. They need not be roots.
///
/// Two bundles are equal when they have the same certificates, in whatever order.
public struct TrustBundle: Sendable, Hashable {
    /// Never empty, without duplicates, in an order that depends on nothing but the certificates.
    public let certificates: [X509Certificate]

    /// Creates a bundle; `nil` for no certificates. Certificates that are not a CA's are left out.
    public init?(_ certificates: some Sequence<X509Certificate>) {
        self.certificates = Set(certificates.filter(\.isAuthority)).sorted {
            $0.derRepresentation.lexicographicallyPrecedes($1.derRepresentation)
        }
        if self.certificates.isEmpty { return nil }
    }
}
