import CertificateProviding
import RemoteMDMParameters

extension Settings {
    /// The token in which keys are made, as the parameters name it.
    struct TokenLocation: Sendable {
        /// RFC 7512.
        let uri: String
        /// What a URI says of the module and the PIN, with its question mark: it holds for every object of the token.
        var query: String { uri.firstIndex(of: "?").map { String(uri[$0...]) } ?? "" }
        let pinSource: String?

        /// `nil` for keys in the store.
        init?(_ parameters: ProviderParameters, _ provider: ProviderID) throws(CertificateProviderError) {
            let source = try parameters.secretSource(Parameter.keyPINSource, provider: provider)
            guard let uri = parameters.string(Parameter.key), uri != "store" else {
                guard source == nil else {
                    throw parameters.invalid(Parameter.keyPINSource, "needs a token's URI in 'key'", provider: provider)
                }
                return nil
            }
            guard uri.lowercased().hasPrefix("pkcs11:") else {
                throw parameters.invalid(Parameter.key, "must be store or a token's URI, pkcs11:…", provider: provider)
            }
            guard !uri.lowercased().contains("pin-value") else {
                throw CertificateProviderError(
                    .configurationInvalid,
                    "A PIN in the URI of 'key' is read by everybody who sees the configuration; name its source with "
                        + "'key-pin-source'.", provider: provider)
            }
            self.uri = uri
            pinSource = parameters.string(Parameter.keyPINSource)
        }
    }
}
