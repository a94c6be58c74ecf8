import CLinux
public import CertificateProviding
import FoundationEssentials
import Glibc
import Logging
import PluginProtocol

/// A plugin: an executable that gives a host a provider, key stores or both, over its standard input and output.
///
///     @main struct Main {
///         static func main() async { await Plugin(MyProvider.descriptor).run() }
///     }
///
/// The executable is called `certprov-plugin-` and the plugin's id. The provider gets an environment as in process: storage,
/// secrets, key stores and the log are the host's. Standard output belongs to the protocol; what libraries print there goes to
/// standard error.
public struct Plugin: Sendable {
    private let id: ProviderID
    private let version: String?
    private let provider: ProviderDescriptor?
    private let keyStores: [KeyStoreDescriptor]
    private let concurrency: Int
    private let abilities: Abilities

    /// The abilities of a provider that the host uses only if the plugin's description names them. The others, such as
    /// ``/CertificateProviding/CertificateProvider/listing``, need not be named.
    public struct Abilities: OptionSet, Sendable {
        public let rawValue: Int
        public init(rawValue: Int) { self.rawValue = rawValue }

        /// ``/CertificateProviding/CertificateProvider/updates``. The process runs as long as a service follows them.
        public static let updates = Self(rawValue: 1)
        /// ``/CertificateProviding/CertificateProvider/advice``. A service asks for it several times a day.
        public static let advice = Self(rawValue: 2)
        /// ``/CertificateProviding/CertificateProvider/revocation``.
        public static let revocation = Self(rawValue: 4)
        /// ``/CertificateProviding/IdentityKey/attester`` of the identities' keys that stay in the plugin.
        public static let attestation = Self(rawValue: 8)

        /// As the description names them.
        fileprivate var words: [String] {
            let words: [(Self, String)] = [
                (.updates, "updated"), (.advice, "advice"), (.revocation, "revoke"), (.attestation, "key.attest"),
            ]
            return words.filter { contains($0.0) }.map(\.1)
        }
    }

    /// Creates a plugin with a provider.
    ///
    /// - Parameters:
    ///   - provider: Its id is the plugin's.
    ///   - keyStores: Key stores, whose schemes no built-in key store has. The first one is that of the provider's identities,
    ///     if it has one.
    ///   - version: The plugin's own version, for people.
    ///   - concurrency: How many requests it takes at a time.
    ///   - abilities: Those of the provider that must be named.
    public init(
        _ provider: ProviderDescriptor, keyStores: [KeyStoreDescriptor] = [], version: String? = nil,
        concurrency: Int = 64, abilities: Abilities = []
    ) {
        (id, self.version, self.provider) = (provider.id, version, provider)
        (self.keyStores, self.concurrency, self.abilities) = (keyStores, concurrency, abilities)
    }

    /// Creates a plugin with key stores only. The parameters are those of ``init(_:keyStores:version:concurrency:abilities:)``.
    public init(id: ProviderID, keyStores: [KeyStoreDescriptor], version: String? = nil, concurrency: Int = 64) {
        (self.id, self.version, provider) = (id, version, nil)
        (self.keyStores, self.concurrency, abilities) = (keyStores, concurrency, [])
    }

    /// Serves the host until it closes the connection. Call it once, at the start of the program; the program ends afterwards.
    public func run() async {
        let (input, output) = (certprov_move_up(dup(0)), certprov_move_up(dup(1)))
        guard input >= 0, output >= 0, Self.releaseStandardStreams() else {
            return Self.note("A plugin needs standard input and output.")
        }
        do throws(ProviderError) {
            let server = PluginServer(hello: hello, provider, keyStores)
            let channel = try MessageChannel(input: input, output: output, peer: "The host")
            let end = await server.serve(channel)
            // The host closes the connection otherwise.
            if end.code == .protocolError { Self.note(end.message) }
        } catch {
            Self.note(error.message)
        }
    }

    private static func note(_ text: String) {
        let line = Array("certprov plugin: \(text)\n".utf8)
        _ = write(2, line, line.count)
    }

    /// Keeps libraries from reading or writing messages.
    private static func releaseStandardStreams() -> Bool {
        let null = open("/dev/null", O_RDONLY | O_CLOEXEC)
        guard null >= 0 else { return false }
        defer { close(null) }
        return dup2(null, 0) == 0 && dup2(2, 1) == 1
    }

    private var hello: Hello {
        Hello(
            version: Hello.versions[0], id: id.rawValue, pluginVersion: version,
            provider: provider.map { provider in
                Hello.Provider(
                    displayName: provider.displayName, summary: provider.summary,
                    parameters: provider.ownParameters.map(WireParameter.init),
                    can: ["list", "announceDeletions", "discardReplaced"] + abilities.words,
                    keyStore: keyStores.first?.scheme)
            },
            keyStores: keyStores.map { store in
                Hello.KeyStore(
                    scheme: store.scheme, displayName: store.displayName, summary: store.summary,
                    parameters: store.parameters.map(WireParameter.init), makes: [:], location: nil,
                    can: ["key.open"])
            }, concurrency: concurrency, shutdown: true)
    }
}

extension ProviderDescriptor {
    /// Those that it declares: the host adds the sources of key stores' PINs itself.
    fileprivate var ownParameters: [ParameterDescriptor] {
        let stores = parameters.filter { $0.kind == .keyStore }.map(\.name)
        return parameters.filter { parameter in !stores.contains { parameter.name == $0 + "-pin-source" } }
    }
}
