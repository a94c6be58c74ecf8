/// A source of a client identity: a PKCS#12 file, a hardware token, a device-management server or a plugin.
///
/// ``getStoredCertificate()`` is cheap: it reads this host's store, or the token. ``getCertificate(_:)`` obtains a new
/// identity and may take long. A conforming type is shared between tasks and guards its own state. Its errors need not
/// name it: the manager that asks the provider adds its ``id``.
public protocol CertificateProvider: Sendable {
    /// The name of the provider in the configuration, such as `pkcs12`.
    var id: ProviderID { get }

    /// Obtains an identity and stores it, so that ``getStoredCertificate()`` returns it from then on. May take long.
    ///
    /// Runs on the caller's executor; calls that block go to ``ProviderEnvironment/executor``. The user may be asked
    /// through `interaction`. The stored identity is replaced only after the new one has proved that it works.
    ///
    /// - Throws: ``ProviderError``. After `notFound`, `tokenNotPresent` and `unavailable`, another provider
    ///   may be tried; every other code needs the user's attention.
    func getCertificate(_ interaction: any UserInteraction) async throws(ProviderError) -> Identity

    /// Returns the stored identity, or `nil` if none is stored.
    ///
    /// Never uses the network and never prompts. Blocks for a bounded time at most: for a small file, or for a call
    /// into a token's module. May be called from any thread.
    ///
    /// - Throws: ``ProviderError`` if the provider cannot tell whether an identity is stored.
    func getStoredCertificate() throws(ProviderError) -> Identity?

    /// Deletes the stored identity. Succeeds if none is stored. May block.
    ///
    /// The source of the identity (file, token, server) stays untouched, unless a parameter of the provider says
    /// otherwise; such a provider has ``deletions``.
    ///
    /// - Throws: `deleteFailed`, and errors of the identity's source.
    func deleteStoredCertificate() throws(ProviderError)

    /// Closes the provider's open resources, such as the sessions of a token. Takes a few seconds at most, even if a
    /// call hangs, and may be called again. Afterwards every call that needs such a resource, also by a key of the
    /// provider, throws `operationNotAllowed`.
    func shutdown() async

    // Further abilities are properties, so that a provider that wraps another one, or a plugin's proxy, passes them on.

    /// Lists the identities that the provider finds; `nil` if it does not support listing.
    var listing: (any IdentityListing)? { get }

    /// Announces what a deletion destroys outside this host's store; `nil` if it destroys nothing there.
    var deletions: (any DeletionAnnouncing)? { get }

    /// Destroys the identity that a new one has replaced; `nil` if nothing remains to be destroyed.
    var replacement: (any ReplacedIdentityDiscarding)? { get }

    /// Says when there may be a new identity; `nil` if the provider is only asked.
    var updates: (any UpdateAnnouncing)? { get }

    /// Asks the issuer when to renew; `nil` if only the certificate's lifetime decides.
    var advice: (any RenewalAdvising)? { get }

    /// Has the identity revoked by its issuer; `nil` if the provider cannot.
    var revocation: (any IdentityRevoking)? { get }

    /// The key store of the provider's identities, for new keys beside them; `nil` if it has none of its own.
    var keyStore: (any KeyStore)? { get }
}

extension CertificateProvider {
    /// Does nothing: the default for a provider without open resources.
    public func shutdown() async {}

    /// No listing: the default.
    public var listing: (any IdentityListing)? { nil }
    /// No announcement: the default.
    public var deletions: (any DeletionAnnouncing)? { nil }
    /// No clean-up: the default.
    public var replacement: (any ReplacedIdentityDiscarding)? { nil }
    /// No announcements of updates: the default.
    public var updates: (any UpdateAnnouncing)? { nil }
    /// No advice: the default.
    public var advice: (any RenewalAdvising)? { nil }
    /// No revocation: the default.
    public var revocation: (any IdentityRevoking)? { nil }
    /// No key store: the default.
    public var keyStore: (any KeyStore)? { nil }
}

/// The name of a provider in a property file and on the command line, such as `pkcs12`.
///
/// Lower-case letters, digits, `-` and `_`, beginning with a letter, at most 64 bytes: it becomes part of a file name
/// and of a property key.
public struct ProviderID: RawRepresentable, Hashable, Sendable, Comparable, CustomStringConvertible {
    public let rawValue: String

    /// Creates an id; `nil` for a name with other characters.
    public init?(rawValue: String) {
        let bytes = rawValue.utf8
        guard let first = bytes.first, (0x61...0x7a).contains(first), bytes.count <= 64 else { return nil }
        let permitted = bytes.allSatisfy {
            (0x61...0x7a).contains($0) || (0x30...0x39).contains($0) || $0 == 0x2d || $0 == 0x5f
        }
        guard permitted else { return nil }
        self.rawValue = rawValue
    }

    /// Creates an id from a literal in source code. Traps on an invalid name.
    public init(_ name: StaticString) {
        guard let id = ProviderID(rawValue: name.description) else {
            preconditionFailure("'\(name)' is not a provider id: use lower-case letters, digits, '-' and '_'")
        }
        self = id
    }

    public var description: String { rawValue }

    public static func < (left: ProviderID, right: ProviderID) -> Bool { left.rawValue < right.rawValue }
}

/// The ability of a ``CertificateProvider`` to list its identities, without prompting and without exporting keys.
public protocol IdentityListing: Sendable {
    /// Returns every identity that the provider finds, stored or available. Objects that could not be read are reported
    /// in the list's failures.
    func listIdentities() async -> IdentityList
}
