public import ArgumentParser
public import CertificateProviding
import IdentityStore
import Logging
import Logon
import Terminal

struct Keygen: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "keygen",
        abstract: "Make a key pair on a token or in another key store, and a certificate request for it.",
        discussion: """
            The private key never leaves its key store. The request (PKCS#10, PEM) goes to stdout or to a file. When the \
            certificate authority has issued the certificate, store it with 'certprov store-certificate', if the key store \
            keeps certificates: a token does, store: does not.

            With --for, the request is for a key that is there already. Without --subject and --san, it has the names of the \
            key's present certificate: its certificate is renewed.
            """)

    @OptionGroup var options: GlobalOptions
    @OptionGroup var place: KeyStoreOptions

    @Option(
        name: .customLong("for"),
        help: ArgumentHelp(
            "Make no key, but a request for the key with this URI, which 'certprov list' shows.", valueName: "uri"))
    var existing: String?

    @Option(
        help: ArgumentHelp(
            "The kind of key: \(KeyType.allCases.map(\.rawValue).joined(separator: ", ")). Default: p256.",
            valueName: "type"))
    var keyType: KeyType?

    @Option(help: ArgumentHelp("The label of the key. Default: the request's subject.", valueName: "text"))
    var label: String?

    @Option(
        help: ArgumentHelp(
            "The subject of the request, as in RFC 4514: CN=client,O=Example. Default: the label as CN, or the present name.",
            valueName: "name"))
    var subject: String?

    @Option(
        help: ArgumentHelp(
            "A subject alternative name: dns:host.example, ip:192.0.2.1, email:…, uri:… or upn:…; may be repeated.",
            valueName: "name"))
    var san: [String] = []

    @Option(
        help: ArgumentHelp("Write the request to this file instead of stdout.", valueName: "file"),
        completion: .file())
    var out: String?

    @Flag(help: "Replace the file of --out if it exists.")
    var force = false

    func validate() throws {
        try place.check(options)
        if let existing {
            if keyType != nil || label != nil {
                throw ValidationError("--for makes no key: remove --key-type and --label.")
            }
            if existing.lowercased().contains("pin-value") { throw KeyStoreOptions.pinIsVisible }
            if subject == nil && !san.isEmpty { throw ValidationError("--san with --for needs a --subject.") }
        } else if subject == nil && label == nil {
            throw ValidationError("Name the key with --subject or --label.")
        }
        if subject?.isEmpty == true && san.isEmpty { throw ValidationError("An empty --subject needs a --san.") }
        if label?.isEmpty == true { throw ValidationError("--label must not be empty.") }
        if out?.isEmpty == true { throw ValidationError("--out needs the name of a file.") }
        if force && out == nil { throw ValidationError("--force needs --out.") }
    }

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            if let existing { return try await request(for: existing, context) }
            let (store, provider) = try await context.keyStore(place)
            // Whatever is wrong with these is found before there is a key.
            let alternatives = try alternativeNames()
            let names =
                if let subject {
                    try CertificateRequest.Names(subject: subject, subjectAlternativeNames: alternatives)
                } else {
                    try CertificateRequest.Names(commonName: label ?? "", subjectAlternativeNames: alternatives)
                }
            let file = out.map { OutputFile(path: $0, replacing: force) }
            try file?.check()
            let interaction = context.interaction
            let label = label ?? names.commonName ?? subject ?? ""
            try await context.makeKey(in: store, keyType ?? .p256, label: label, names, into: file, interaction) {
                key, request throws(ProviderError) in
                if file == nil, !context.options.json {
                    context.remark("the private key is \(key.uri ?? "in the key store")")
                }
                try context.show(KeyPairDocument(key, provider, request, file: out)) {
                    file == nil ? request.pemRepresentation : (key.uri ?? "the key has no URI") + "\n"
                }
            }
            return .done
        }
    }
}

extension Keygen {
    private func alternativeNames() throws(ProviderError) -> [AlternativeName] {
        try san.map { text throws(ProviderError) in try AlternativeName(text) }
    }

    /// Writes a request for a key that is there already.
    private func request(
        for uri: String, _ context: CommandContext
    ) async throws(ProviderError) -> ExitStatus {
        var names: CertificateRequest.Names?
        if let subject {
            names = try CertificateRequest.Names(subject: subject, subjectAlternativeNames: alternativeNames())
        }
        let file = out.map { OutputFile(path: $0, replacing: force) }
        try file?.check()
        let (store, provider) = try await context.keyStore(place, ofKey: uri)
        let (key, certificate) = try await Self.key(uri, in: store, provider, context.interaction)
        try await context.requireUnnamed(key.publicKey)
        if let certificate, names == nil { names = try CertificateRequest.Names(of: certificate) }
        guard let names else {
            throw ProviderError(
                .notFound, "The key has no certificate whose names the request could have; name them with --subject.",
                provider: provider)
        }
        let request = try await CertificateRequest(names, key: key)
        try file?.write(request.pemRepresentation)
        try context.show(KeyPairDocument(key, provider, request, file: out)) {
            file == nil ? request.pemRepresentation : (key.uri ?? uri) + "\n"
        }
        return .done
    }

    /// Finds a key by its URI.
    ///
    /// - Returns: Also the certificate that the key store has for it; `nil` without one.
    private static func key(
        _ uri: String, in store: any KeyStore, _ provider: ProviderID, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> (any IdentityKey, X509Certificate?) {
        do throws(ProviderError) {
            let identity = try await store.identity(uri, interaction)
            return (identity.key, identity.certificate)
        } catch { guard error.code == .notFound else { throw error } }
        func name(_ uri: String) -> Substring { uri.prefix { $0 != "?" } }
        let keys = try await store.list()
        if let found = keys.first(where: { name($0.reference.uri) == name(uri) }),
            let key = try await store.key(for: found.reference, interaction)
        {
            return (key, nil)
        }
        let others = keys.prefix(20).map { "'\(String(name($0.reference.uri)).withVisibleControls)'" }
        throw ProviderError(
            .notFound,
            "The key store has no key with the URI '\(String(name(uri)).withVisibleControls)'. "
                + (others.isEmpty ? "It shows no key at all." : "Use one of: \(others.joined(separator: ", "))."),
            provider: provider)
    }
}

extension KeyType: ExpressibleByArgument {}

extension CommandContext {
    /// The key store of `--key`; otherwise that of the one configured provider that has one.
    ///
    /// - Returns: Also the name under which results show it.
    func keyStore(_ place: KeyStoreOptions) async throws(ProviderError) -> (any KeyStore, ProviderID) {
        if let key = place.key { return try await keyStore(key, place.pinSource) }
        let stores = try await manager(try configuration()).providers.compactMap { provider in
            provider.keyStore.map { ($0, provider.id) }
        }
        guard let store = stores.first, stores.count == 1 else {
            throw ProviderError(
                .configurationInvalid,
                stores.isEmpty
                    ? "No configured provider can make keys; name a token with --uri pkcs11:…, or a key store with --key."
                    : "Several configured providers make keys; choose one with --provider.")
        }
        return store
    }
}

extension CommandContext {
    /// The key store of a key: that of the options, else the configured provider's that has the key, else the one that the
    /// URI names by itself.
    fileprivate func keyStore(
        _ place: KeyStoreOptions, ofKey uri: String
    ) async throws(ProviderError) -> (any KeyStore, ProviderID) {
        guard place.key == nil, options.drivenProvider == nil else { return try await keyStore(place) }
        let configuration = try ConfigurationLookup(options: options, registry: registry).configurationIfAny()
        if !configuration.providers.isEmpty {
            for provider in try await manager(configuration).providers {
                if let store = provider.keyStore, store.holds(keyURI: uri) { return (store, provider.id) }
            }
        }
        return try await keyStore(uri, nil)
    }
}

extension CommandContext {
    /// The part of the identity store with the keys whose requests are not out yet. No provider has a name that ends so.
    private static let requestStorage = ProviderID("requests_")
    /// As many processes make a key at a time.
    private static let requestRecords = (1...16).map { "request-\($0)" }

    /// Makes a key, and hands its request over. A key whose request is not out is destroyed: here, or, if this process is
    /// killed, by the next one that makes a key in the same key store. If it is killed while it writes the request, a CA may
    /// get that: the key stays, and the next command names it.
    ///
    /// - Parameters:
    ///   - file: Gets the request; `nil` if `show` hands it over.
    ///   - show: Shows the key and the request.
    fileprivate func makeKey(
        in store: any KeyStore, _ type: KeyType, label: String, _ names: CertificateRequest.Names,
        into file: OutputFile?, _ interaction: any UserInteraction,
        show: (any IdentityKey, CertificateRequest) throws(ProviderError) -> Void
    ) async throws(ProviderError) {
        var environment = environment(try identityStore().storage(for: Self.requestStorage))
        // The remains in another key store are destroyed when that is used again, and are not reported here.
        environment.logger = Logger(label: "certprov") { _ in SwiftLogNoOpLogHandler() }
        let (free, unsettled) = try await requestRecords(in: store, environment, interaction)
        if free == nil { try await unsettled.first?.settle() }
        guard let place = free ?? unsettled.first else {
            throw ProviderError(
                .unavailable,
                "\(Self.requestRecords.count) commands make a key at this moment; try again when one of them has ended."
            )
        }
        let keys = place.keys
        place.lease.isUnsettled = false
        let (key, request): (any IdentityKey, CertificateRequest)
        do throws(ProviderError) {
            key = try await keys.make(NewKey(type, label: label), interaction)
            request = try await CertificateRequest(names, key: key)
            place.lease.isUnsettled = true
            if let file { try file.write(request.pemRepresentation) } else { try show(key, request) }
        } catch {
            // A key that cannot be destroyed now stays in the record.
            try? await keys.destroyOthers(than: [], interaction)
            place.lease.isUnsettled = false
            throw error
        }
        // The request is out. A key that cannot be removed from the record is named by the next command.
        if (try? await keys.handOver(store.reference(to: key))) != nil { place.lease.isUnsettled = false }
        if file != nil { try show(key, request) }
        for record in unsettled.dropFirst(free == nil ? 1 : 0) { try? await record.settle() }
    }

    /// The record of one command's key.
    private struct RequestRecord {
        let lease: RecordLease
        let keys: OwnedKeys

        /// The keys have been named. One that cannot be removed from the record is named again.
        func settle() async throws(ProviderError) {
            for key in try keys.recorded() { try await keys.handOver(key) }
        }
    }

    /// Destroys the keys of processes that were killed, and names those of processes that were killed while they wrote a request.
    ///
    /// - Returns: A free record, if there is one, and those of the named keys.
    private func requestRecords(
        in store: any KeyStore, _ environment: ProviderEnvironment, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> (free: RequestRecord?, unsettled: [RequestRecord]) {
        var (free, unsettled): (RequestRecord?, [RequestRecord]) = (nil, [])
        for name in Self.requestRecords {
            let storage = environment.storage
            let isThere = try storage.record(named: name) != nil
            guard isThere || free == nil else { continue }
            let lease = try await environment.executor.run { () throws(ProviderError) in
                try storage.leaseRecord(named: name)
            }
            guard let lease else { continue }
            let record = RequestRecord(lease: lease, keys: OwnedKeys(store, environment, record: name))
            let left = try record.keys.recorded()
            guard lease.isUnsettled, !left.isEmpty else {
                try await record.keys.destroyOthers(than: [], interaction)
                free = free ?? record
                continue
            }
            for key in left {
                remark(
                    "an earlier keygen was killed while it wrote the request for the key \(key.uri.withVisibleControls); "
                        + "the key stays, since a CA may have the request. If none has, delete it with the key store's tool."
                )
            }
            unsettled.append(record)
        }
        return (free, unsettled)
    }
}

/// The result of `keygen`.
private struct KeyPairDocument: CommandDocument {
    static let kind = "KeyPair"

    let provider: String
    let key: IdentityDocument.Key
    let certificateRequest: String
    let file: Nullable<String>

    init(_ key: any IdentityKey, _ provider: ProviderID, _ request: CertificateRequest, file: String?) {
        self.provider = provider.rawValue
        self.key = IdentityDocument.Key(
            key.publicKey, in: key.location, isExportable: key.exporter != nil, uri: key.uri)
        self.certificateRequest = request.pemRepresentation
        self.file = Nullable(file)
    }
}
