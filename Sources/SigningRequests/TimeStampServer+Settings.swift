public import CertificateProviding
public import Signing

extension TimeStampServer {
    /// Returns the time-stamp server that the property file names in its section `Signing.`; `nil` without one.
    ///
    /// - Parameter settings: ``/Logon/LogonConfiguration/settings``, of a program that declares `SettingsSection.signingRequests`.
    /// - Throws: `configurationInvalid`, errors of the file with the anchors, and `internal` if the section is not declared: a
    ///   signature must not lack its time stamp for that.
    public static func configured(by settings: Parameters) throws(ProviderError) -> TimeStampServer? {
        guard settings.declared.contains(where: { $0.name == RequestSettings.timeStampURL.name }) else {
            throw ProviderError(
                .internal,
                "The program does not declare the section Signing. of the property file; pass SettingsSection.signingRequests to "
                    + "CertprovLogon.")
        }
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
