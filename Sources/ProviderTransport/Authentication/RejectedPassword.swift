/// The underlying error of a refusal of a password that was sent: the status 401 of a server, or 407 of a proxy.
///
/// Note the password by ``/CertificateProviding/ProviderEnvironment/note(_:for:isRejected:)`` then, so that it is not sent again by
/// itself.
public struct RejectedPassword: Error, Hashable {
    /// Whether it is the proxy's password. ``ProxySettings/noteOutcome(_:through:_:)`` notes that.
    public let isOfProxy: Bool

    /// Creates a mark, for tests and for a protocol that has errors of its own.
    public init(isOfProxy: Bool = false) { self.isOfProxy = isOfProxy }
}
