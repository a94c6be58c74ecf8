import CertificateProviding
import FoundationEssentials
import Logging
import PluginProtocol

/// The host, for key stores and keys that are there.
final class HostSource: PeerSource {
    private let host: Peer
    let executor = BlockingExecutor.threads()
    /// The host bounds its own work. A person may have to be asked for a PIN.
    let timeout = Duration.seconds(600)

    init(_ host: Peer) { self.host = host }

    var livePeer: Peer? { host }
    func peer() throws(ProviderError) -> Peer { host }
    func describing(_ error: ProviderError) -> ProviderError { error }
    var currentRequest: UInt64? { Peer.current }
    let isHost = true

    /// The key stores of the host.
    var keyStores: KeyStores {
        KeyStores(schemes: []) { [self] location throws(ProviderError) in
            try RemoteKeyStore.open(location, at: host, source: self)
        }
    }
}

/// The user, who is asked by the host.
struct RemoteInteraction: UserInteraction {
    private let host: Peer
    private let request: UInt64
    let canAsk: Bool

    init(_ host: Peer, request: UInt64, canAsk: Bool) {
        (self.host, self.request, self.canAsk) = (host, request, canAsk)
    }

    func requestSecret(_ prompt: String) async throws(ProviderError) -> SecretBytes {
        guard let secret = try await ask("secret", prompt).secret else { throw Self.incomplete }
        return secret.bytes
    }

    func confirm(_ question: String) async throws(ProviderError) -> Bool {
        guard let isConfirmed = try await ask("confirm", question).confirmed else { throw Self.incomplete }
        return isConfirmed
    }

    func requestText(_ prompt: String) async throws(ProviderError) -> String {
        guard let text = try await ask("text", prompt).text else { throw Self.incomplete }
        return text
    }

    func choose(_ question: String, among choices: [String]) async throws(ProviderError) -> Int {
        guard let choice = try await ask("choice", question, choices).choice, choices.indices.contains(choice) else {
            throw Self.incomplete
        }
        return choice
    }

    func report(_ progress: String) { host.channel.notify("progress", Progress(for: request, text: progress)) }

    func report(_ progress: String, remaining: Duration) {
        host.channel.notify("progress", Progress(for: request, text: progress, remaining: remaining / .seconds(1)))
    }

    private static let incomplete = ProviderError(
        .protocolError, "The host's answer to a question is not complete.")

    private func ask(
        _ kind: String, _ text: String, _ choices: [String]? = nil
    ) async throws(ProviderError) -> PromptAnswer {
        guard canAsk else { return try await NoUserInteraction().refuse(text) }
        return try await host.request(
            "prompt", Prompt(for: request, kind: kind, text: text, choices: choices), .unlimited)
    }
}

extension NoUserInteraction {
    fileprivate func refuse(_ question: String) async throws(ProviderError) -> PromptAnswer {
        PromptAnswer(confirmed: try await confirm(question))
    }
}

/// The part of the host's identity store that this configuration of the plugin has. Blocks while the host reads or writes.
struct RemoteStorage: IdentityStorage {
    private let host: Peer
    /// Whether it is what all configurations have in common.
    private let isShared: Bool

    init(_ host: Peer, isShared: Bool = false) { (self.host, self.isShared) = (host, isShared) }

    var shared: any IdentityStorage { RemoteStorage(host, isShared: true) }

    private func call<Answer: Decodable & Sendable>(
        _ name: String, _ record: String, as type: Answer.Type = Answer.self,
        _ change: (inout StorageRequest) -> Void = { _ in }
    ) throws(ProviderError) -> Answer {
        var request = StorageRequest(record)
        if isShared { request.shared = true }
        change(&request)
        return try host.call(name, request, .unlimited)
    }

    func entry(named name: String) throws(ProviderError) -> StoredIdentity? {
        let answer: EntryAnswer = try call("entry.read", name)
        return try answer.entry.map { entry throws(ProviderError) in try entry.entry() }
    }

    func entryNames() throws(ProviderError) -> [String] { try names().entries }

    func recordNames() throws(ProviderError) -> [String] { try names().records }

    private func names() throws(ProviderError) -> StorageNames {
        try host.call("storage.list", StorageListRequest(shared: isShared ? true : nil), .unlimited)
    }

    func setEntry(_ identity: StoredIdentity, named name: String) throws(ProviderError) {
        let _: Nothing = try call("entry.write", name) { $0.entry = WireEntry(identity) }
    }

    func removeEntry(named name: String) throws(ProviderError) {
        let _: Nothing = try call("entry.remove", name)
    }

    func record(named name: String) throws(ProviderError) -> SecretBytes? {
        try call("record.read", name, as: RecordAnswer.self).value?.bytes
    }

    func updateRecord(
        named name: String, _ change: (SecretBytes?) throws(ProviderError) -> SecretBytes?
    ) throws(ProviderError) {
        // Others change it seldom.
        for _ in 0..<100 {
            let old: RecordAnswer = try call("record.read", name)
            guard let new = try change(old.value?.bytes) else { return }
            let answer: WriteAnswer = try call("record.write", name) { request in
                (request.value, request.version) = (Secret(new), old.version)
            }
            if answer.written { return }
        }
        throw ProviderError(
            .storeWriteFailed,
            "The record was changed by other processes each time that it was to be written; try again.")
    }

    func removeRecord(named name: String) throws(ProviderError) {
        let _: WriteAnswer = try call("record.write", name) { $0.value = Secret(SecretBytes(copying: [])) }
    }

    func leaseRecord(named name: String) throws(ProviderError) -> RecordLease? {
        let answer: LeaseAnswer = try call("lease.take", name)
        guard answer.taken else { return nil }
        let held = HeldLease { let _: Nothing? = try? call("lease.release", name) }
        return RecordLease(
            isUnsettled: answer.unsettled,
            isAwaited: {
                withExtendedLifetime(held) {}
                return (try? call("lease.look", name, as: LeaseAnswer.self).awaited) ?? false
            },
            note: { isUnsettled in
                withExtendedLifetime(held) {}
                let _: Nothing? = try? call("lease.note", name) { $0.unsettled = isUnsettled }
            })
    }
}

/// Releases a lease when the last user of it goes.
private final class HeldLease: Sendable {
    private let release: @Sendable () -> Void
    init(_ release: @escaping @Sendable () -> Void) { self.release = release }
    deinit { release() }
}

/// Sends log lines to the host.
struct RemoteLogHandler: LogHandler {
    private let host: Peer
    var metadata: Logger.Metadata = [:]
    /// The host leaves out what it does not want.
    var logLevel = Logger.Level.debug

    init(_ host: Peer) { self.host = host }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        let all = metadata.merging(event.metadata ?? [:]) { $1 }
        host.channel.notify(
            "log",
            LogLine(
                level: event.level.rawValue, message: event.message.description,
                metadata: all.isEmpty ? nil : all.mapValues(\.description)))
    }
}
