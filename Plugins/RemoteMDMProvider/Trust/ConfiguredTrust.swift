import CertificateProviding
import CertificateTLSCore
import ServerTransport

/// Whom to take for a server, as two parameters say: authorities in a PEM file, and pins. Files are read when they are
/// needed, all of which blocks.
struct ConfiguredTrust: Sendable {
    let hasAnchors: Bool
    let hasPins: Bool
    private let parameters: ProviderParameters
    private let provider: ProviderID
    private let names: (anchors: String, pins: String)

    /// - Throws: `configurationInvalid` for an empty pin: one that got lost, by a variable that is not set for example,
    ///   is never no pin.
    init(
        anchors: String, pins: String, in parameters: ProviderParameters, provider: ProviderID
    ) throws(CertificateProviderError) {
        self.parameters = parameters
        self.provider = provider
        names = (anchors, pins)
        hasAnchors = parameters.string(anchors) != nil
        hasPins = parameters[pins] != nil
        guard !pinTexts.contains("") else {
            throw parameters.invalid(
                pins, "has an empty pin; write the pin there, or remove the parameter", provider: provider)
        }
    }

    private var pinTexts: [String] {
        (parameters[names.pins]?.text).map {
            $0.split(separator: ",", omittingEmptySubsequences: false).map { String($0).trimmed }
        } ?? []
    }

    /// - Returns: None where no file is configured.
    /// - Throws: `fileNotFound`, `configurationInvalid`.
    func anchors() throws(CertificateProviderError) -> [X509Certificate] {
        guard let path = parameters.string(names.anchors) else { return [] }
        return try parameters.reading(names.anchors, provider: provider) { () throws(CertificateProviderError) in
            try CertificateFile.read(path)
        }
    }

    /// - Returns: None where none is configured.
    /// - Throws: `fileNotFound`, `configurationInvalid`: a pin that cannot be read is never no pin.
    func pins() throws(CertificateProviderError) -> [CertificatePin] {
        try parameters.reading(names.pins, provider: provider) { () throws(CertificateProviderError) in
            try pinTexts.map { text throws(CertificateProviderError) in try CertificatePin.read(text) }.flatMap { $0 }
        }
    }

    /// Both, with the host's list of authorities where none are configured.
    func serverTrust(isPinOnly: Bool = false) throws(CertificateProviderError) -> ServerTrust {
        ServerTrust(
            trustAnchors: hasAnchors ? .certificates(try anchors()) : .system, pins: try pins(),
            isPinOnly: isPinOnly)
    }
}

extension ProviderParameters {
    /// Refuses a parameter that is there and says nothing.
    /// - Throws: `configurationInvalid`.
    func refuseEmpty(_ name: String, provider: ProviderID) throws(CertificateProviderError) {
        guard self[name]?.text.trimmed != "" else {
            throw invalid(name, "is empty; write a value there, or remove the parameter", provider: provider)
        }
    }
}
