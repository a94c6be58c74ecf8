public import CertificateProviding

/// The network of a provider's connections, and the delays between its attempts. A value that is passed in, so that a
/// service decides on its event loops, and a test on its network, its clock and its randomness.
public struct Transport: Sendable {
    /// The network that connections are made in.
    public var network: any Network
    /// The delays between attempts.
    public var retryPolicy: RetryPolicy

    /// Creates a transport. Opens no connection.
    ///
    /// - Parameters:
    ///   - network: By default TCP on the event loops that SwiftNIO shares in a process.
    ///   - retryPolicy: By default with the host's clock and randomness.
    public init(network: any Network = TCPNetwork(), retryPolicy: RetryPolicy = RetryPolicy()) {
        self.network = network
        self.retryPolicy = retryPolicy
    }
}

extension ProviderEnvironment {
    private enum TransportKey: ProviderEnvironmentKey {
        static var defaultValue: Transport { Transport() }
    }

    /// The network, and the delays between attempts. A program passes its event loops once, for all its providers.
    public var transport: Transport {
        get { self[TransportKey.self] }
        set { self[TransportKey.self] = newValue }
    }
}
