import CertificateProviding
import Crypto
import FoundationEssentials
import Logging
import PluginProtocol

/// Serves one process of a plugin: secrets, storage, key stores and log lines.
final class HostServices: Sendable {
    private let id: ProviderID
    private let environment: ProviderEnvironment
    /// Has threads of its own: those that use the plugin may all wait for these.
    private let executor = BlockingExecutor.threads()
    /// The descriptions of sources that the configuration names.
    private let sources: Set<String>
    private let keyStores: KeyStoreService
    private let onUpdate: @Sendable () -> Void
    private struct State {
        var leases: [String: RecordLease] = [:]
        /// Whether the plugin's process has ended, and what it has asked for is not to be done any more.
        var isClosed = false
        var lines = 0
        var second = ContinuousClock.now
        /// The sources of PINs that this side has named in requests about the plugin's key store.
        var pinSources: Set<String> = []
    }
    private let state = BlockingMutex(State())

    /// How many lines of a plugin are logged in a second.
    private static let maximumLines = 100
    /// How many leases a plugin may have at a time. Each is an open file of this process.
    private static let maximumLeases = 64

    /// - Parameters:
    ///   - sources: The sources of secrets that the plugin may ask for.
    ///   - onUpdate: The plugin has something new.
    init(
        _ id: ProviderID, _ environment: ProviderEnvironment, sources: Set<String>,
        stores: UsableKeyStores,
        onUpdate: @escaping @Sendable () -> Void
    ) {
        (self.id, self.environment) = (id, environment)
        (self.sources, self.onUpdate) = (sources, onUpdate)
        keyStores = KeyStoreService(
            executor: executor,
            interaction: { fields, _, peer in
                guard fields.mayAsk == true, let context = peer.context(of: fields.for) else {
                    return NoUserInteraction()
                }
                return context.interaction
            },
            permit: { uri throws(ProviderError) in try stores.permit(uri) },
            open: { request throws(ProviderError) in
                guard let uri = request.store else {
                    throw ProviderError(.protocolError, "The field 'store' of a message is missing.")
                }
                return try stores.store(uri, pinSource: request.pinSource, parameter: request.parameter)
            })
    }

    static let unknownSource = ProviderError(
        .operationNotAllowed, "The plugin asks for a secret whose source the configuration does not name.")

    /// Lets the plugin read the PIN of its own key store.
    func permit(pinSource: String) { _ = state.withLock { $0.pinSources.insert(pinSource) } }

    /// Releases what the plugin holds.
    func close() {
        state.withLock { ($0.leases, $0.isClosed) = ([:], true) }
        keyStores.forget()
    }

    func receive(notice name: String, _ message: Message) throws(ProviderError) {
        switch name {
        case "updated": onUpdate()
        case "log":
            let line: LogLine = try message.params()
            guard mayLog() else { return }
            let metadata = (line.metadata ?? [:]).prefix(32).map { key, value in
                (
                    String(key.withVisibleControls.prefix(64)),
                    Logger.MetadataValue.string(String(value.withVisibleControls.prefix(1024)))
                )
            }
            environment.logger.log(
                level: Logger.Level(rawValue: line.level) ?? .info,
                "\(line.message.withVisibleControls.prefix(4096))",
                metadata: Logger.Metadata([("plugin", .string(id.rawValue))] + metadata) { first, _ in first })
        default: break
        }
    }

    /// Logs a line that the plugin has written to standard error.
    func log(standardError line: String) {
        guard mayLog() else { return }
        environment.logger.debug("\(line.withVisibleControls)", metadata: ["plugin": .string(id.rawValue)])
    }

    private func mayLog() -> Bool {
        state.withLock { state in
            let now = ContinuousClock.now
            if now - state.second > .seconds(1) { (state.second, state.lines) = (now, 0) }
            state.lines += 1
            return state.lines <= Self.maximumLines
        }
    }

    func receive(_ request: IncomingRequest, from peer: Peer) {
        if keyStores.answer(request, from: peer) { return }
        if request.name == "secret" { return peer.answer(request) { secret($0, request, peer) } }
        if request.name == "storage.list" {
            return peer.answer(request) { (fields: StorageListRequest) in
                peer.perform(request, on: executor) { [self] () throws(ProviderError) in
                    let part = part(isShared: fields.shared)
                    // Without those of configurations, where it is not one of them.
                    return StorageNames(
                        entries: fields.shared == true
                            ? [] : try part.entryNames().filter(ConfigurationStorage.isPermitted),
                        records: try part.recordNames().filter(ConfigurationStorage.isPermitted))
                }
            }
        }
        guard let work = Self.storage[request.name] else { return request.refuse() }
        peer.answer(request) { (fields: StorageRequest) in
            guard ConfigurationStorage.isPermitted(fields.name) else {
                return request.fail(
                    ProviderError(.protocolError, PluginHost.nameRefusal))
            }
            guard fields.shared != true || !request.name.hasPrefix("entry.") else {
                return request.fail(
                    ProviderError(
                        .protocolError,
                        "Entries are identities of one configuration; only records and leases are shared."))
            }
            peer.perform(request, on: executor) { [self] () throws(ProviderError) in
                guard !state.withLock(\.isClosed) else { throw closed }
                return try work(self, part(isShared: fields.shared), fields)
            }
        }
    }

    private var closed: ProviderError {
        ProviderError(.unavailable, "The plugin '\(id)' has ended.", provider: id)
    }

    private func secret(_ fields: SecretRequest, _ request: IncomingRequest, _ peer: Peer) {
        guard let source = SecretSource(fields.source),
            sources.contains(source.description) || state.withLock({ $0.pinSources.contains(source.description) })
        else { return request.fail(Self.unknownSource) }
        peer.perform(request, on: executor) { [environment] () throws(ProviderError) in
            SecretAnswer(Secret(try environment.secrets.read(source)))
        }
    }

    // MARK: - Storage

    /// The configuration's own part, or what all configurations of the plugin have in common.
    private func part(isShared: Bool?) -> any IdentityStorage {
        isShared == true ? environment.storage.shared : environment.storage
    }

    private typealias Work =
        @Sendable (HostServices, any IdentityStorage, StorageRequest) throws(ProviderError) -> StorageAnswer

    private enum StorageAnswer: Encodable, Sendable {
        case nothing, record(RecordAnswer), written(Bool), entry(StoredIdentity?), lease(LeaseAnswer)

        func encode(to encoder: any Encoder) throws {
            switch self {
            case .nothing: try Nothing().encode(to: encoder)
            case .record(let answer): try answer.encode(to: encoder)
            case .written(let isWritten): try WriteAnswer(isWritten).encode(to: encoder)
            case .entry(let entry): try EntryAnswer(entry.map(WireEntry.init)).encode(to: encoder)
            case .lease(let answer): try answer.encode(to: encoder)
            }
        }
    }

    private static let storage: [String: Work] = [
        "record.read": { services, storage, fields throws(ProviderError) in
            let record = try storage.record(named: fields.name)
            return .record(RecordAnswer(value: record.map(Secret.init), version: version(of: record)))
        },
        "record.write": { services, storage, fields throws(ProviderError) in
            guard let value = fields.value?.bytes else {
                throw ProviderError(.protocolError, "The field 'value' is missing.")
            }
            if value.isEmpty, fields.version == nil {
                try storage.removeRecord(named: fields.name)
                return .written(true)
            }
            var isWritten = false
            try storage.updateRecord(named: fields.name) { record in
                guard fields.version == nil || fields.version == version(of: record) else { return nil }
                isWritten = true
                return value
            }
            return .written(isWritten)
        },
        "entry.read": { services, storage, fields throws(ProviderError) in
            .entry(try storage.entry(named: fields.name))
        },
        "entry.write": { services, storage, fields throws(ProviderError) in
            guard let entry = fields.entry, !entry.chain.isEmpty else {
                throw ProviderError(.protocolError, "The field 'entry' is missing, or has no certificate.")
            }
            let identity = try entry.entry()
            if let key = identity.privateKey {
                // A key that does not fit must not replace one that does.
                _ = try Identity(
                    certificateChain: identity.certificateChain, key: try SoftwareKey(pkcs8: key, location: .store),
                    provenance: .init(provider: services.id))
            }
            try storage.setEntry(identity, named: fields.name)
            return .nothing
        },
        "entry.remove": { services, storage, fields throws(ProviderError) in
            try storage.removeEntry(named: fields.name)
            return .nothing
        },
        "lease.take": { services, storage, fields throws(ProviderError) in
            let (isTaken, count) = services.state.withLock { ($0.leases[fields.lease] != nil, $0.leases.count) }
            guard count < maximumLeases else {
                throw ProviderError(
                    .operationNotAllowed, "The plugin has \(count) leases; it must release one before it takes another."
                )
            }
            guard !isTaken, let lease = try storage.leaseRecord(named: fields.name) else {
                return .lease(LeaseAnswer(taken: false))
            }
            // A late one would never be released.
            let isClosed = services.state.withLock { state in
                if !state.isClosed { state.leases[fields.lease] = lease }
                return state.isClosed
            }
            guard !isClosed else { throw services.closed }
            return .lease(LeaseAnswer(taken: true, unsettled: lease.isUnsettled))
        },
        "lease.look": { services, storage, fields throws(ProviderError) in
            let lease = try services.lease(fields.lease)
            return .lease(LeaseAnswer(taken: true, unsettled: lease.isUnsettled, awaited: lease.isAwaited))
        },
        "lease.note": { services, storage, fields throws(ProviderError) in
            try services.lease(fields.lease).isUnsettled = fields.unsettled ?? false
            return .nothing
        },
        "lease.release": { services, storage, fields throws(ProviderError) in
            _ = services.state.withLock { $0.leases.removeValue(forKey: fields.lease) }
            return .nothing
        },
    ]

    private func lease(_ name: String) throws(ProviderError) -> RecordLease {
        guard let lease = state.withLock({ $0.leases[name] }) else {
            throw ProviderError(.operationNotAllowed, "The plugin does not have the lease of this record.")
        }
        return lease
    }

    /// Names a content, for a write that replaces nothing else.
    private static func version(of record: SecretBytes?) -> String {
        guard let record else { return "none" }
        return record.withUnsafeBytes { Array(SHA256.hash(data: $0)).hexEncoded }
    }
}

extension StorageRequest {
    /// The name of a lease among all of a process. No name has a slash.
    fileprivate var lease: String { shared == true ? "/" + name : name }
}
