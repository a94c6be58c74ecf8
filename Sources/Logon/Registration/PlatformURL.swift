package import CertificateProviding
import IdentityStore
import ProviderTransport

extension LogonConfiguration {
    /// The platform server's resource of an application's connections, and where other requests begin.
    struct Platform: Sendable {
        /// `https://Host:Port`, without a path.
        let server: ServerURL
        /// `[URLSuffix][/FarmID]`: begins with a slash, unless it is empty, and does not end with one.
        let base: String
        let applicationID: String
        let securityConfiguration: String
        /// Empty for none.
        let domain: String

        /// The server's origin and ``base``.
        var place: String { server.origin + base }

        /// The path of the connections.
        var connections: String { "\(base)/odata/applications/latest/\(applicationID)/Connections" }

        /// The path of one connection.
        func connection(_ id: ConnectionID) -> String { "\(connections)('\(id)')" }
    }

    /// Checks the settings that a registration needs. Does no I/O.
    ///
    /// - Throws: `configurationInvalid`, with the setting to change.
    package func checkRegistration() throws(ProviderError) { _ = try platform() }

    /// Returns where to register.
    ///
    /// - Throws: `configurationInvalid`, with the setting to change, where one is missing or makes no URL, and for a server
    ///   without TLS that is not on this host, or is to see a certificate.
    func platform() throws(ProviderError) -> Platform {
        func invalid(_ text: String) -> ProviderError {
            let place = path.map { "\($0.withVisibleControls): " } ?? ""
            return ProviderError(.configurationInvalid, place + text)
        }
        let missing = [
            (host == nil, "Host"), (port == nil, "Port"), (securityConfiguration == nil, "SecurityConfiguration"),
            (registration.applicationID == nil, "ApplicationId"),
        ].filter(\.0).map { "'\($0.1)'" }
        guard missing.isEmpty, let host, let port, let securityConfiguration,
            let applicationID = registration.applicationID
        else {
            let names =
                missing.dropLast().isEmpty
                ? missing.joined() : missing.dropLast().joined(separator: ", ") + " and " + (missing.last ?? "")
            throw invalid("A registration needs \(names); set \(missing.count > 1 ? "them" : "it").")
        }
        for (key, value) in [("SecurityConfiguration", securityConfiguration), ("Domain", domain)] {
            // They are header fields.
            guard value.utf8.allSatisfy({ (0x20...0x7e).contains($0) }) else {
                throw self.invalid(
                    key, "The value of '\(key)' must be visible ASCII characters and blanks; correct it.")
            }
        }
        if let source = registration.passcodeSource, source != .prompt, registration.passcodePolicy.maximumAttempts == 1
        {
            throw invalid(
                "'Passcode.max-attempts' is 1, so that the passcode of Passcode.source is never tried; set it to 2 or more."
            )
        }
        let isBracketed = host.contains(":") && !host.hasPrefix("[")
        let origin = "\(usesHTTPS ? "https" : "http")://\(isBracketed ? "[\(host)]" : host):\(port)"
        let parts = [urlSuffix, farmID == "0" ? "" : farmID].map { part in
            String(part.drop { $0 == "/" }.reversed().drop { $0 == "/" }.reversed())
        }
        let base = parts.filter { !$0.isEmpty }.map { "/" + $0 }.joined()
        guard let server = ServerURL(origin), server.path.isEmpty else {
            throw invalid("'Host' and 'Port' do not make a URL; set 'Host' to a name or an address alone.")
        }
        guard let whole = ServerURL(origin + base), whole.query == nil, whole.path == base else {
            throw invalid(
                "'URLSuffix' and 'FarmID' do not make the path of a URL; percent-encode the other characters.")
        }
        guard server.isSecure || server.isLoopback else {
            throw self.invalid(
                "HTTPS",
                "HTTPS=false would send the credentials to \(server.authority) in the clear; remove it, or use a server on "
                    + "this host.")
        }
        guard server.isSecure || userCreationPolicy != .certificate else {
            throw self.invalid(
                "HTTPS",
                "Without TLS the server cannot see the certificate that UserCreationPolicy=certificate registers with; remove HTTPS=false, or set "
                    + "UserCreationPolicy to automatic or manual.")
        }
        return Platform(
            server: server, base: base, applicationID: applicationID, securityConfiguration: securityConfiguration,
            domain: domain)
    }
}
