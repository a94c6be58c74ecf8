package import CertificateProviding

extension ProviderParameters {
    /// Returns whether a parameter is `true`; it is not where it is not given.
    /// - Throws: `configurationInvalid` for anything but `true` and `false`.
    package func flag(_ name: String, provider: ProviderID) throws(CertificateProviderError) -> Bool {
        switch string(name)?.lowercased() {
        case nil, "false": false
        case "true": true
        default: throw invalid(name, "must be true or false", provider: provider)
        }
    }
}
