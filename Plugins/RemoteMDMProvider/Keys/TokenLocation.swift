import CertificateProviding
import RemoteMDMParameters

extension EnrolmentSettings {
    /// The token in which keys are made, as the parameters name it.
    struct TokenLocation: Sendable {
        /// RFC 7512.
        let uri: String
        /// What a URI says of the module and the PIN, with its question mark: it holds for every object of the token.
        var query: String { uri.firstIndex(of: "?").map { String(uri[$0...]) } ?? "" }
        let pinSource: String?
        private let parameters: ProviderParameters
        /// What the URI says of the token.
        private let tokenAttributes: [Substring: [UInt8]]

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
                throw parameters.invalid(
                    Parameter.key,
                    "has a PIN in its URI, which everybody reads who sees the configuration; name its source with "
                        + "'key-pin-source'", provider: provider)
            }
            self.uri = uri
            self.parameters = parameters
            tokenAttributes = Self.tokenAttributes(of: uri)
            pinSource = parameters.string(Parameter.keyPINSource)
        }

        /// Calls `body`, and says of what it throws that it is about this place.
        func reading<T>(
            _ body: () throws(CertificateProviderError) -> T
        ) throws(CertificateProviderError) -> T {
            try parameters.reading(Parameter.key, provider: RemoteMDMParameters.id, body)
        }

        /// Whether the key of a URI, in which all is said of its token, is in the token that is meant here.
        func means(tokenOf keyURI: String) -> Bool {
            let actual = Self.tokenAttributes(of: keyURI)
            return tokenAttributes.allSatisfy { actual[$0] == $1 }
        }

        /// RFC 7512, section 2.3.
        private static func tokenAttributes(of uri: String) -> [Substring: [UInt8]] {
            let path = uri.drop { $0 != ":" }.dropFirst().prefix { $0 != "?" }
            let pairs = path.split(separator: ";").map { $0.split(separator: "=", maxSplits: 1) }
            let known = pairs.filter { $0.count == 2 && ["token", "serial", "model", "manufacturer"].contains($0[0]) }
            return Dictionary(known.map { ($0[0], decoded($0[1])) }) { $1 }
        }

        /// The octets behind percent signs (RFC 3986, section 2.1): the same value may be written in several ways.
        private static func decoded(_ text: Substring) -> [UInt8] {
            var bytes: [UInt8] = []
            var rest = Array(text.utf8)[...]
            while let byte = rest.popFirst() {
                if byte == UInt8(ascii: "%"), rest.count >= 2,
                    let value = UInt8(String(decoding: rest.prefix(2), as: UTF8.self), radix: 16)
                {
                    bytes.append(value)
                    rest = rest.dropFirst(2)
                } else {
                    bytes.append(byte)
                }
            }
            return bytes
        }
    }
}
