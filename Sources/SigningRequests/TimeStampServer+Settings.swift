public import CertificateProviding
public import Signing

extension TimeStampServer {
    /// Returns the time-stamp server that the property file names in its section `Signing.`; `nil` without one.
    ///
    /// - Parameter settings: ``/Logon/LogonConfiguration/settings``.
    /// - Throws: `configurationInvalid`, and errors of the file with the anchors.
    public static func configured(by settings: Parameters) throws(ProviderError) -> TimeStampServer? {
        guard let url = settings[RequestSettings.timeStampURL], url != RequestSettings.noTimeStamp else { return nil }
        guard let path = settings[RequestSettings.timeStampAnchors] else {
            throw settings.invalid(RequestSettings.timeStampURL, "needs Signing.time-stamp-anchors")
        }
        let anchors = try settings.reading(RequestSettings.timeStampAnchors) { () throws(ProviderError) in
            try CertificateFile.read(path)
        }
        var server = try settings.reading(RequestSettings.timeStampURL) { () throws(ProviderError) in
            try TimeStampServer(url, anchors: anchors)
        }
        server.policy = settings[RequestSettings.timeStampPolicy]
        return server
    }
}
