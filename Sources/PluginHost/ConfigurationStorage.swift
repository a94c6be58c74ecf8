import CertificateProviding

/// The part that one configuration of a plugin's provider has of the plugin's part of the identity store.
///
/// A plugin chooses the names of its entries, records and leases, mostly without a thought of other configurations. Two property files
/// would share an identity: here each name ends with an `@` and the name of the configuration.
struct ConfigurationStorage: IdentityStorage {
    /// Whether a plugin may choose the name. The store permits 128 bytes, of which the configuration takes 33.
    static func isPermitted(_ name: String) -> Bool {
        (1...95).contains(name.utf8.count) && !name.hasPrefix(".")
            && !name.utf8.contains { [0, 0x2f, 0x40].contains($0) }
    }

    /// The plugin's part.
    let shared: any IdentityStorage
    private let suffix: String

    /// - Parameter values: Those of the parameters that distinguish identities, by name, without secrets.
    init(_ plugin: any IdentityStorage, distinguishedBy values: [String: String]) {
        shared = plugin
        // The length tells apart what a value contains from what follows it.
        suffix =
            "@"
            + StoredIdentity.name(
                distinguishedBy: values.sorted { $0.key < $1.key }.map { "\($0)=\($1.utf8.count):\($1)" })
    }

    private func own(_ names: [String]) -> [String] {
        names.filter { $0.hasSuffix(suffix) }.map { String($0.dropLast(suffix.count)) }
    }

    var entryDirectories: [String] { shared.entryDirectories }
    func entryNames() throws(ProviderError) -> [String] { own(try shared.entryNames()) }
    func recordNames() throws(ProviderError) -> [String] { own(try shared.recordNames()) }

    func entry(named name: String) throws(ProviderError) -> StoredIdentity? {
        try shared.entry(named: name + suffix)
    }

    func setEntry(_ identity: StoredIdentity, named name: String) throws(ProviderError) {
        try shared.setEntry(identity, named: name + suffix)
    }

    func removeEntry(named name: String) throws(ProviderError) {
        try shared.removeEntry(named: name + suffix)
    }

    func record(named name: String) throws(ProviderError) -> SecretBytes? {
        try shared.record(named: name + suffix)
    }

    func updateRecord(
        named name: String, _ change: (SecretBytes?) throws(ProviderError) -> SecretBytes?
    ) throws(ProviderError) { try shared.updateRecord(named: name + suffix, change) }

    func removeRecord(named name: String) throws(ProviderError) {
        try shared.removeRecord(named: name + suffix)
    }

    func leaseRecord(named name: String) throws(ProviderError) -> RecordLease? {
        try shared.leaseRecord(named: name + suffix)
    }
}

extension [DeclaredParameter] {
    /// Returns the given values by which the identities of configurations differ: a new version of a plugin may have other defaults.
    /// Names of files show a digest of them, so a secret in a URI is left out: a short one could be guessed.
    func distinguishingValues(_ parameters: Parameters) -> [String: String] {
        let given = map(\.descriptor).filter { $0.distinguishes && parameters.texts.string($0.name) != nil }
        return texts(parameters).reduce(into: [:]) { values, text in
            guard let parameter = given.first(where: { $0.name == text.key }) else { return }
            values[text.key] = text.value.withoutSecret(of: parameter.kind)
        }
    }
}

extension String {
    fileprivate func withoutSecret(of kind: ParameterDescriptor.Kind) -> String {
        switch kind {
        case .boolean: lowercased()
        case .path, .secretPath, .certificateFile, .library: self
        default: withoutPIN.withoutPassword
        }
    }

    /// Without `pin-value` and `pin-source` (RFC 7512, section 2.4).
    private var withoutPIN: String {
        let parts = split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 2 else { return self }
        let query = parts[1].split(separator: "&").filter { !$0.lowercased().hasPrefix("pin-") }
        return parts[0] + (query.isEmpty ? "" : "?" + query.joined(separator: "&"))
    }

    /// Without the password of the user information (RFC 3986, section 3.2.1).
    private var withoutPassword: String {
        guard let start = firstRange(of: "://")?.upperBound else { return self }
        let authority = self[start...].prefix { !"/?#".contains($0) }
        guard let at = authority.lastIndex(of: "@"), let colon = authority[..<at].firstIndex(of: ":") else {
            return self
        }
        return String(self[..<colon] + self[at...])
    }
}
