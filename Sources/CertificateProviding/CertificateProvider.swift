/// A source of a client identity: a PKCS#12 file, a hardware token, a device-management server, a plugin.
///
/// The four requirements keep apart what is cheap from what is not. ``getStoredCertificate()`` answers from what is at
/// hand; ``getCertificate(_:)`` goes and gets one, however long that takes. A conforming type is shared between tasks,
/// so it guards its own state.
public protocol CertificateProvider: Sendable {
    /// The name under which the provider is configured, such as `pkcs12`.
    var id: ProviderID { get }

    /// Obtains an identity, however long that takes, and stores it so that ``getStoredCertificate()`` finds it.
    ///
    /// Runs on the caller's executor; work that blocks goes to ``ProviderEnvironment/executor``. A person may be asked
    /// through `interaction`. The stored identity is replaced only after the new one has proved that it works.
    ///
    /// - Throws: ``CertificateProviderError``. `notFound`, `tokenNotPresent` and `unavailable` mean that another
    ///   provider may be tried; every other code is for a person to look at.
    func getCertificate(_ interaction: any UserInteraction) async throws(CertificateProviderError) -> Identity

    /// Returns the identity that is at hand: `nil` is "none stored", an error is "could not look".
    ///
    /// Never uses the network and never prompts. It may block for a bounded time: to read a small file, or to ask a
    /// token's module. Safe to call from any thread.
    func getStoredCertificate() throws(CertificateProviderError) -> Identity?

    /// Forgets the stored identity. Succeeds when there is none. What the identity was obtained from stays untouched,
    /// unless a parameter of the provider says otherwise; then it conforms to ``DeletionAnnouncing``. May block.
    ///
    /// - Throws: `deleteFailed`, and what the identity's home reports.
    func deleteStoredCertificate() throws(CertificateProviderError)

    /// Replaces the provider's parameters, all or none of them.
    ///
    /// - Throws: `unsupportedParameter` for a name the provider does not document, so that a typing mistake is an
    ///   error and not silence; `configurationInvalid` for a value it cannot use.
    func setParameters(_ parameters: ProviderParameters) throws(CertificateProviderError)

    /// Ends the use of what the provider holds open, such as a token's sessions. Takes a few seconds at most, whatever
    /// hangs, and may be called again. Afterwards every other call, and every key of the provider, throws
    /// `operationNotAllowed` where it would need that.
    func shutdown() async
}

extension CertificateProvider {
    /// Does nothing: the right behaviour for a provider that holds nothing open.
    public func shutdown() async {}

    /// Refuses every parameter: the right behaviour for a provider that documents none.
    public func setParameters(_ parameters: ProviderParameters) throws(CertificateProviderError) {
        try parameters.refuseUnknown(knowing: [], provider: id)
    }
}

/// The name of a provider in a property file and on the command line, such as `pkcs12`.
///
/// Lower-case letters, digits, `-` and `_`, beginning with a letter, at most 64 bytes: it becomes part of a file name
/// and of a property key.
public struct ProviderID: RawRepresentable, Hashable, Sendable, Comparable, CustomStringConvertible {
    public let rawValue: String

    /// Returns `nil` for a name outside the permitted alphabet.
    public init?(rawValue: String) {
        let bytes = rawValue.utf8
        guard let first = bytes.first, (0x61...0x7a).contains(first), bytes.count <= 64 else { return nil }
        let permitted = bytes.allSatisfy {
            (0x61...0x7a).contains($0) || (0x30...0x39).contains($0) || $0 == 0x2d || $0 == 0x5f
        }
        guard permitted else { return nil }
        self.rawValue = rawValue
    }

    /// Creates an id from a literal in source code, where a bad name is the programmer's mistake.
    public init(_ name: StaticString) {
        guard let id = ProviderID(rawValue: name.description) else {
            preconditionFailure("'\(name)' is not a provider id: use lower-case letters, digits, '-' and '_'")
        }
        self = id
    }

    public var description: String { rawValue }

    public static func < (left: ProviderID, right: ProviderID) -> Bool { left.rawValue < right.rawValue }
}

/// The optional ability of a provider to say what it can see, without prompting and without keys leaving home.
public protocol IdentityListing: CertificateProvider {
    /// Returns every identity in sight, stored or available. What could not be read is in the list's failures.
    func listIdentities() async -> IdentityList
}
