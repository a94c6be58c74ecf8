import CertificateProviding
import CertificateTLS
import ServerTransport

/// The trust in a server that two parameters configure: trust anchors in a PEM file, and pins. The files are read when
/// they are needed; those calls block.
struct ConfiguredTrust: Sendable {
    let hasAnchors: Bool
    let hasPins: Bool
    private let parameters: Parameters
    private let anchorsParameter: Parameter<String?>
    private let pinsParameter: Parameter<[String]>

    init(anchors: Parameter<String?>, pins: Parameter<[String]>, in parameters: Parameters) {
        self.parameters = parameters
        (anchorsParameter, pinsParameter) = (anchors, pins)
        hasAnchors = parameters[anchors] != nil
        hasPins = !parameters[pins].isEmpty
    }

    /// - Returns: An empty array if no file is configured.
    /// - Throws: `fileNotFound`, `configurationInvalid`.
    func anchors() throws(CertificateProviderError) -> [X509Certificate] {
        guard let path = parameters[anchorsParameter] else { return [] }
        return try parameters.reading(anchorsParameter) { () throws(CertificateProviderError) in
            try CertificateFile.read(path)
        }
    }

    /// - Returns: An empty array if no pin is configured.
    /// - Throws: `fileNotFound`, `configurationInvalid`: an unreadable pin is never ignored.
    func pins() throws(CertificateProviderError) -> [CertificatePin] {
        try parameters.reading(pinsParameter) { () throws(CertificateProviderError) in
            try parameters[pinsParameter].map { text throws(CertificateProviderError) in try CertificatePin.read(text) }
                .flatMap { $0 }
        }
    }

    /// Returns anchors and pins, with the system trust store if no anchors are configured.
    func serverTrust(isPinOnly: Bool = false) throws(CertificateProviderError) -> ServerTrust {
        ServerTrust(
            trustAnchors: hasAnchors ? .certificates(try anchors()) : .system, pins: try pins(),
            isPinOnly: isPinOnly)
    }
}
