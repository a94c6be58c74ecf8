public import CertificateProviding

extension ProviderError.Reason {
    /// The server has refused a password that was sent, by the status 401. Note the password by
    /// ``/CertificateProviding/ProviderEnvironment/noteOutcome(of:for:isRejected:)`` then, so that it is not sent again by itself.
    public static let rejectedPassword = Self(rawValue: "rejectedPassword")
    /// The proxy has refused the password that was sent. ``ProxySettings/noteOutcome(_:through:_:)`` notes that.
    public static let rejectedProxyPassword = Self(rawValue: "rejectedProxyPassword")
    /// A trusted server probably refuses our certificate, which it has seen: it has ended the connection, by an alert about the
    /// certificate or before it answered, or its status may be about the certificate (``HTTPResponse/mayRefuseCertificate``). The
    /// lost answer to a request that is not repeatable (``HTTPRequest/isRepeatable``) does not count.
    public static let rejectedCertificate = Self(rawValue: "rejectedCertificate")
}
