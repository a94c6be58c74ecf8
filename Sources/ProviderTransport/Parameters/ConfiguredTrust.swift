public import CertificateProviding
public import CertificateTLS

/// The trust in a server that two parameters configure: trust anchors in a PEM file, and pins, as ``ServerParameter``
/// declares them. The files are read when they are needed; those calls block.
public struct ConfiguredTrust: Sendable {
    /// Whether a file of trust anchors is configured.
    public let hasAnchors: Bool
    /// Whether pins are configured.
    public let hasPins: Bool
    private let parameters: Parameters
    private let anchorsParameter: Parameter<String?>
    private let pinsParameter: Parameter<[String]>

    /// Reads the names of the files and pins from parameters. Reads no file yet.
    ///
    /// - Parameters:
    ///   - anchors: The parameter that names the PEM file.
    ///   - pins: The parameter with the pins.
    public init(anchors: Parameter<String?>, pins: Parameter<[String]>, in parameters: Parameters) {
        self.parameters = parameters
        (anchorsParameter, pinsParameter) = (anchors, pins)
        hasAnchors = parameters[anchors] != nil
        hasPins = !parameters[pins].isEmpty
    }

    /// Whether trust anchors or pins are configured. Otherwise only the system trust store authenticates the server: any
    /// of its CAs can then name another server that gets the secrets.
    public var isConfigured: Bool { hasAnchors || hasPins }

    /// Checks, before a secret is sent to a server, that more than the system trust store authenticates it.
    ///
    /// - Throws: `configurationInvalid`, with the parameters to set, if neither trust anchors nor pins are configured.
    public func requireConfigured(for server: ServerURL) throws(ProviderError) {
        guard !isConfigured else { return }
        throw parameters.invalid(
            anchorsParameter,
            "is missing; set it to a PEM file with the CA of \(server.authority), or set '\(pinsParameter.name)': the "
                + "system trust store is not enough for a server that gets secrets")
    }

    /// The file of trust anchors; `nil` if none is configured.
    public var anchorsFile: String? { parameters[anchorsParameter] }

    /// Reads the trust anchors.
    ///
    /// - Returns: An empty array if no file is configured.
    /// - Throws: `fileNotFound`, `configurationInvalid`.
    public func anchors() throws(ProviderError) -> [X509Certificate] {
        guard let path = parameters[anchorsParameter] else { return [] }
        return try parameters.reading(anchorsParameter) { () throws(ProviderError) in
            try CertificateFile.read(path)
        }
    }

    /// Reads the pins.
    ///
    /// - Returns: An empty array if no pin is configured.
    /// - Throws: `fileNotFound`, `configurationInvalid`: an unreadable pin is never ignored.
    public func pins() throws(ProviderError) -> [CertificatePin] {
        try parameters.reading(pinsParameter) { () throws(ProviderError) in
            try parameters[pinsParameter].map { text throws(ProviderError) in try CertificatePin.read(text) }
                .flatMap { $0 }
        }
    }

    /// Returns anchors and pins, with the system trust store if no anchors are configured.
    ///
    /// - Parameter isPinOnly: Whether a pin alone authenticates the server, without a chain to a trust anchor.
    /// - Throws: `fileNotFound`, `configurationInvalid`.
    public func serverTrust(isPinOnly: Bool = false) throws(ProviderError) -> ServerTrust {
        ServerTrust(
            trustAnchors: try anchorsFile.map { path throws(ProviderError) in
                .certificates(try anchors()).named(TrustAnchors.pemFile(path).name)
            } ?? .system, pins: try pins(),
            isPinOnly: isPinOnly)
    }
}
