public import CertificateProviding
public import CertificateTLS
public import FoundationEssentials

/// How to authenticate a server, and the certificate to present to it.
public struct ServerSecurity: Sendable {
    /// The trust anchors and pins that the server is verified with.
    package var trust: ServerTrust
    /// The client certificate; `nil` for none.
    package var credentials: TLSCredentials?
    /// The wall clock, for the validity of the server's certificate.
    package var now: @Sendable () -> Date
    /// Runs the reading of the trust anchors' files.
    package var executor: BlockingExecutor
    /// Whether trust anchors, names and dates are not verified. Pins are still checked. Only for requests without
    /// secrets, whose response is not trusted.
    package var skipsVerification: Bool
    /// Whether credentials are sent without TLS to a server on this host (``ServerURL/isLoopback``); false by default.
    public var permitsPlaintextToLoopback = false
    /// The settings that messages name, so that the user finds what to change.
    public var settingNames = ServerSettingNames()

    /// Creates a security.
    ///
    /// - Parameters:
    ///   - trust: The trust anchors and pins that the server is verified with.
    ///   - credentials: The client certificate; `nil` for none.
    ///   - now: The wall clock, for the validity of the server's certificate.
    ///   - executor: Runs the reading of the trust anchors' files; by default a thread of its own, while there is work.
    ///   - skipsVerification: Whether trust anchors, names and dates are not verified. Pins still are.
    public init(
        trust: ServerTrust, credentials: TLSCredentials? = nil, now: @escaping @Sendable () -> Date = { Date() },
        executor: BlockingExecutor = .threads(maximum: 1), skipsVerification: Bool = false
    ) {
        self.trust = trust
        self.credentials = credentials
        self.now = now
        self.executor = executor
        self.skipsVerification = skipsVerification
    }
}
