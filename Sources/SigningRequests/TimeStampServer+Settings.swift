public import CertificateProviding
public import Signing

extension TimeStampServer {
    /// Returns the time-stamp server that the property file names in its section `Signing.`; `nil` without one.
    ///
    /// - Parameters:
    ///   - environment: That of a part of the program (``/Logon/LogonManager/environment(of:)``), which remembers rejected passwords of
    ///     `Signing.time-stamp-user`; without it, a file with this setting is an error.
    ///   - settings: ``/Logon/LogonConfiguration/settings``, of a program that declares `SettingsSection.signingRequests`.
    /// - Throws: `configurationInvalid`, errors of the file with the anchors, and `internal` if the section is not declared: a
    ///   signature must not lack its time stamp for that.
    public static func configured(
        by settings: Parameters, _ environment: ProviderEnvironment? = nil
    ) throws(ProviderError) -> TimeStampServer? {
        try configured(by: settings, environment, anchors: nil)
    }

    /// - Parameter anchors: A file instead of the configured one.
    package static func configured(
        by settings: Parameters, _ environment: ProviderEnvironment?, anchors: String?
    ) throws(ProviderError) -> TimeStampServer? {
        guard settings.declared.contains(where: { $0.name == RequestSettings.timeStampURL.name }) else {
            throw ProviderError(
                .internal,
                "The program does not declare the section Signing. of the property file; pass SettingsSection.signingRequests to "
                    + "CertprovLogon.")
        }
        guard let url = settings[RequestSettings.timeStampURL], url != RequestSettings.noTimeStamp else { return nil }
        let certificates: [X509Certificate]
        if let anchors {
            certificates = try CertificateFile.read(anchors)
        } else if let path = settings[RequestSettings.timeStampAnchors] {
            certificates = try settings.reading(RequestSettings.timeStampAnchors) { () throws(ProviderError) in
                try CertificateFile.read(path)
            }
        } else {
            throw settings.invalid(RequestSettings.timeStampURL, "needs Signing.time-stamp-anchors")
        }
        var server = try settings.reading(RequestSettings.timeStampURL) { () throws(ProviderError) in
            try TimeStampServer(url, anchors: certificates)
        }
        server.policy = settings[RequestSettings.timeStampPolicy]
        if let user = settings[RequestSettings.timeStampUser],
            let source = settings[RequestSettings.timeStampPasswordSource]
        {
            guard let environment else {
                throw settings.invalid(
                    RequestSettings.timeStampUser,
                    "cannot be used with this program, which has no place for passwords that a server has rejected")
            }
            server = try settings.reading(RequestSettings.timeStampUser) { () throws(ProviderError) in
                var server = server
                try server.logIn(as: user, passwordFrom: source, environment)
                return server
            }
        }
        return server
    }
}
