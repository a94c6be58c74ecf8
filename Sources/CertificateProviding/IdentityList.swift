/// What a provider can see: identities, the things it could not read, and remarks a person should hear.
public struct IdentityList: Sendable {
    public var identities: [ListedIdentity]
    /// What failed, in the order met. A failure never hides the identities beside it.
    public var failures: [CertificateProviderError]
    /// Sentences such as "the file changed after the identity was stored".
    public var remarks: [String]
    /// The RFC 7512 URIs of what is there besides the identities, such as the certificates of their issuers.
    public var otherObjects: [String]
    /// Which of the identities ``CertificateProvider/getCertificate(_:)`` would take now, or why it would fail:
    /// `interactionRequired` where that depends on what a person answers. `nil` from a provider that cannot say.
    ///
    /// An identity in sight need not be one to use: there may be another beside it, or the configuration may name one
    /// that is not there.
    public var choice: Result<ListedIdentity, CertificateProviderError>?

    public init(
        identities: [ListedIdentity] = [], failures: [CertificateProviderError] = [], remarks: [String] = [],
        otherObjects: [String] = [], choice: Result<ListedIdentity, CertificateProviderError>? = nil
    ) {
        self.identities = identities
        self.failures = failures
        self.remarks = remarks
        self.otherObjects = otherObjects
        self.choice = choice
    }
}

/// One identity as a listing shows it: public facts only.
public struct ListedIdentity: Sendable {
    public var provider: ProviderID
    /// What the `alias` parameter would be set to in order to choose this identity.
    public var alias: String?
    /// Whether ``CertificateProvider/getStoredCertificate()`` would return this identity.
    public var isStored: Bool
    /// Leaf first.
    public var certificateChain: [X509Certificate]
    public var keyLocation: KeyLocation
    public var isKeyExportable: Bool
    /// The key's RFC 7512 URI, without any PIN, where it has one.
    public var keyURI: String?

    public init(
        provider: ProviderID, alias: String?, isStored: Bool, certificateChain: [X509Certificate],
        keyLocation: KeyLocation, isKeyExportable: Bool, keyURI: String? = nil
    ) {
        self.provider = provider
        self.alias = alias
        self.isStored = isStored
        self.certificateChain = certificateChain
        self.keyLocation = keyLocation
        self.isKeyExportable = isKeyExportable
        self.keyURI = keyURI
    }

    /// Describes `identity` as `provider` holds it.
    public init(_ identity: Identity, isStored: Bool) {
        self.init(
            provider: identity.provenance.provider, alias: identity.provenance.alias, isStored: isStored,
            certificateChain: identity.certificateChain, keyLocation: identity.key.location,
            isKeyExportable: identity.key is any ExportableIdentityKey, keyURI: identity.key.uri)
    }
}
