import CertificateProviding
import Synchronization

/// The tokens in which keys live: the PKCS#11 provider, as often as there are URIs.
///
/// It has its own part of the store, where it remembers which PINs a token has rejected: whoever sends one there must
/// know what others have sent.
final class TokenHome: Sendable {
    static let provider = ProviderID("pkcs11")

    private let make: ProviderEnvironment.ProviderMaker
    /// `nil` where no token is configured any more: what was made in one before is still found there.
    private let location: EnrolmentSettings.TokenLocation?
    /// Those that were made, by what they were told. Each new one would have the vendor's module loaded anew.
    private let made = Mutex<[[String: String]: any KeyGenerating]>([:])
    /// The key that was used last, for which somebody may have given a PIN.
    private let opened = Mutex<(any IdentityKey)?>(nil)
    /// Identities come and go: what is not needed any more is not kept.
    private static let maximum = 8

    init(_ location: EnrolmentSettings.TokenLocation?, _ make: @escaping ProviderEnvironment.ProviderMaker) {
        self.location = location
        self.make = make
    }

    /// Where new keys are made; `nil` where that is the store.
    func provider() throws(CertificateProviderError) -> (any KeyGenerating)? {
        try location.map { location throws(CertificateProviderError) in
            var parameters = ["uri": location.uri]
            parameters["pin-source"] = location.pinSource
            return try location.reading { () throws(CertificateProviderError) in try provider(parameters) }
        }
    }

    /// Where one key is.
    func provider(ofKey uri: String) throws(CertificateProviderError) -> any KeyGenerating {
        try provider(parameters(ofKey: uri))
    }

    /// As ``provider(ofKey:)``; its deletion destroys the key and the certificates for it.
    func destroyer(ofKey uri: String) throws(CertificateProviderError) -> any KeyGenerating {
        try provider(parameters(ofKey: uri).merging(["delete-objects": "true"]) { $1 })
    }

    /// The URI by which a new key is found again, also when the configuration names its module no more.
    func uri(of key: any IdentityKey) throws(CertificateProviderError) -> String {
        guard let uri = key.uri else {
            throw CertificateProviderError(.internal, "The token's key has no URI, by which it would be found again.")
        }
        return uri + (location?.query ?? "")
    }

    /// With the module and the PIN's source that are configured now, where these are of that key's token. What is
    /// configured for one token is not for another.
    private func parameters(ofKey uri: String) -> [String: String] {
        guard let location, location.means(tokenOf: uri) else { return ["uri": uri] }
        var parameters = ["uri": String(uri.prefix { $0 != "?" }) + location.query]
        parameters["pin-source"] = location.pinSource
        return parameters
    }

    /// Whether a key is in the token that is configured now.
    func isConfigured(forKey uri: String) -> Bool { location?.means(tokenOf: uri) ?? false }

    func shutdown() async {
        for provider in made.withLock({ $0.values }) { await provider.shutdown() }
    }

    func opened(_ key: any IdentityKey) -> any IdentityKey {
        opened.withLock { $0 = key }
        return key
    }

    /// A key whose token somebody has logged in to, in this process.
    func openedKey(for publicKey: PublicKeyInfo) -> (any IdentityKey)? {
        opened.withLock { $0.flatMap { $0.publicKey.isSameKey(as: publicKey) ? $0 : nil } }
    }

    private func provider(_ parameters: [String: String]) throws(CertificateProviderError) -> any KeyGenerating {
        if let known = made.withLock({ $0[parameters] }) { return known }
        let provider = try make(Self.provider, ProviderParameters(parameters.mapValues { .init($0) }))
        guard let home = provider as? any KeyGenerating else {
            throw CertificateProviderError(.internal, "The provider '\(Self.provider)' cannot make keys.")
        }
        return made.withLock { made in
            if let known = made[parameters] { return known }
            if made.count >= Self.maximum { made = [:] }
            made[parameters] = home
            return home
        }
    }
}
