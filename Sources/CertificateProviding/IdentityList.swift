/// The identities that a provider finds, the objects that it could not read, and remarks for the user.
public struct IdentityList: Sendable {
    /// The identities that were found.
    public var identities: [ListedIdentity]
    /// The failures, in the order in which they occurred. They do not hide the other identities.
    public var failures: [ProviderError]
    /// Remarks for the user, such as "the file changed after the identity was stored".
    public var remarks: [String]
    /// The RFC 7512 URIs of the other objects, such as the certificates of issuers.
    public var otherObjects: [String]
    /// The identity that ``CertificateProvider/getCertificate(_:)`` would choose now, or the error that it would throw:
    /// `interactionRequired` if the choice depends on the user's answer. `nil` if the provider cannot tell.
    ///
    /// A listed identity is not always usable: there may be several, or the configuration may name one that does not
    /// exist.
    public var choice: Result<ListedIdentity, ProviderError>?

    /// Creates a list.
    public init(
        identities: [ListedIdentity] = [], failures: [ProviderError] = [], remarks: [String] = [],
        otherObjects: [String] = [], choice: Result<ListedIdentity, ProviderError>? = nil
    ) {
        self.identities = identities
        self.failures = failures
        self.remarks = remarks
        self.otherObjects = otherObjects
        self.choice = choice
    }
}

/// One identity in a listing: public information only.
public struct ListedIdentity: Sendable {
    /// The provider that lists the identity.
    public var provider: ProviderID
    /// The value of the `alias` parameter that selects this identity; `nil` if it has none.
    public var alias: String?
    /// Whether ``CertificateProvider/getStoredCertificate()`` would return this identity.
    public var isStored: Bool
    /// The side of TLS that the identity is for.
    public var usage: IdentityUsage
    /// Leaf first, without the root.
    public var certificateChain: [X509Certificate]
    /// The place that holds the private key.
    public var keyLocation: KeyLocation
    /// Whether the private key can be exported.
    public var isKeyExportable: Bool
    /// The key's RFC 7512 URI, without any PIN; `nil` if it has none.
    public var keyURI: String?

    /// Creates an entry of a listing. A root at the end of the chain is left out.
    public init(
        provider: ProviderID, alias: String?, isStored: Bool, certificateChain: [X509Certificate],
        keyLocation: KeyLocation, isKeyExportable: Bool, keyURI: String? = nil, usage: IdentityUsage = .client
    ) {
        self.provider = provider
        self.alias = alias
        self.isStored = isStored
        self.certificateChain = CertificateChain.withoutRoot(certificateChain)
        self.keyLocation = keyLocation
        self.isKeyExportable = isKeyExportable
        self.keyURI = keyURI
        self.usage = usage
    }

    /// Creates the entry of an identity, with its provenance and key.
    public init(_ identity: Identity, isStored: Bool) {
        self.init(
            provider: identity.provenance.provider, alias: identity.provenance.alias, isStored: isStored,
            certificateChain: identity.certificateChain, keyLocation: identity.key.location,
            isKeyExportable: identity.key.exporter != nil, keyURI: identity.key.uri,
            usage: identity.usage)
    }
}
