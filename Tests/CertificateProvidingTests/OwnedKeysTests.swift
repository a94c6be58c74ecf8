import CertificateProviding
import Logging
import Synchronization
import TestSupport
import Testing

/// A provider's record of its keys.
@Suite struct OwnedKeysTests {
    private let host = Host()
    private let person = NoUserInteraction()

    /// Runs a provider's steps again and again, each time killed one step later, until they end.
    private func killed(
        _ prepare: (Host) async throws -> Void = { _ in }, _ run: (Host) async throws -> Void,
        then check: (Host) async throws -> Void
    ) async throws {
        for steps in 0..<100 {
            let host = Host()
            try await prepare(host)
            host.power.cut(after: steps)
            try? await run(host)
            let isKilled = host.power.isOff
            let next = host.restarted()
            #expect(try next.unknownKeys().isEmpty, "after \(steps) steps")
            try await check(next)
            if !isKilled {
                #expect(steps > 5)
                return
            }
        }
        Issue.record("The steps do not end.")
    }

    private func enrol(_ host: Host) async throws {
        try await host.keys.destroyOthers(than: host.used, person)
        do {
            let key = try await host.keys.make(NewKey(.p256, label: "client"), person)
            try host.use(host.keys.store.reference(to: key))
        } catch {
            try await host.keys.destroyOthers(than: host.used, person)
            throw error
        }
        try await host.keys.destroyOthers(than: host.used, person)
    }

    @Test func aKillAtAnyMomentLeavesNoKeyThatIsNotInTheRecord() async throws {
        try await killed(enrol, enrol) { host in
            let current = try #require(host.current)
            _ = try host.keys.storedKey(current)
            try await host.keys.destroyOthers(than: [current], person)
            #expect(host.uris == [current.uri])
        }
    }

    @Test func aDeletionThatIsKilledIsCompletedByTheNext() async throws {
        try await killed(enrol) { host in
            try host.keys.destroyAllStored(and: host.current)
        } then: { host in
            try host.keys.destroyAllStored(and: host.current)
            #expect(host.uris.isEmpty)
            #expect(try host.storage.record(named: "keys") == nil)
        }
    }

    @Test("A key that is handed over is not destroyed as a leftover")
    func aKeyThatIsHandedOverIsNobodysLeftover() async throws {
        let handed = try await host.keys.make(NewKey(.p256, label: "handed over"), person)
        _ = try await host.keys.make(NewKey(.p256, label: "left"), person)
        try await host.keys.handOver(host.keys.store.reference(to: handed))
        try await host.keys.destroyOthers(than: [], person)
        #expect(try host.uris == [#require(handed.uri)])
    }

    @Test func aKeyThatCannotBeWrittenDownIsDestroyed() async throws {
        host.memory.fail(with: ProviderError(.storeWriteFailed, "The disk is full."), whenReading: false)
        let error = await failure { try await host.keys.make(NewKey(.p256, label: "client"), person) }
        #expect(error?.code == .storeWriteFailed && host.uris.isEmpty)
    }

    @Test func aKeyThatIsGoneIsAnError() async throws {
        try await enrol(host)
        let current = try #require(host.current)
        try host.keys.store.destroyStored(current)
        #expect(failure { try host.keys.storedKey(current) }?.code == .notFound)
    }

    @Test func aLostStoreBlocksNothingUnlessItIsTheConfiguredOne() async throws {
        try await enrol(host)
        host.breakStore()
        await #expect(throws: ProviderError.self) { try await host.keys.destroyOthers(than: [], person) }
        #expect(throws: ProviderError.self) { try host.keys.destroyAllStored(and: nil) }
        let moved = host.with(place: "test:new")
        try await moved.keys.destroyOthers(than: [], person)
        // Still in the record, for the day when the store is back.
        host.repairStore()
        try await moved.keys.destroyOthers(than: [], person)
        #expect(host.uris.isEmpty)
        try await enrol(host)
        host.breakStore()
        try moved.keys.destroyAllStored(and: host.current)
    }

    @Test("The keys that a deletion will destroy in a key store are announced")
    func whatIsDestroyedElsewhereIsAnnounced() async throws {
        try await enrol(host)
        let uri = try #require(host.current).uri
        #expect(try await host.keys.announceDestruction(and: host.current) == ["the key \(uri)"])
        #expect(try await host.keys.announceDestruction(and: nil) == ["the key \(uri)"])
    }

    @TaskLocal private static var isOnExecutor = false

    @Test("A key store is looked for on a thread that may block")
    func aKeyStoreIsLookedForOnAThreadThatMayBlock() async throws {
        try await enrol(host)
        let threads = BlockingExecutor.threads()
        var environment = ProviderEnvironment.testing(storage: host.storage)
        environment.executor = BlockingExecutor { job in
            threads.submit { Self.$isOnExecutor.withValue(true) { job() } }
        }
        let opened = Mutex<[Bool]>([])
        environment.keyStores = KeyStores(schemes: ["test"]) { _ throws(ProviderError) in
            opened.withLock { $0.append(Self.isOnExecutor) }
            throw ProviderError(.unavailable, "The key store does not answer.")
        }
        let keys = OwnedKeys(host.with(place: "test:new").keys.store, environment, record: "keys")
        try await keys.destroyOthers(than: [], person)
        await #expect(throws: ProviderError.self) { try await keys.announceDestruction(and: nil) }
        #expect(opened.withLock(\.self) == [true, true])
    }

    @Test func aDamagedRecordIsRefusedAndDeleted() async throws {
        try await enrol(host)
        try host.memory.updateRecord(named: "keys") { _ in SecretBytes(utf8: "{") }
        #expect(await failure { try await enrol(host) }?.code == .storeReadFailed)
        try host.keys.destroyAllStored(and: host.current)
        #expect(host.uris.isEmpty)
        host.forget()
        try await enrol(host)
    }

    @Test("No key is destroyed and no record emptied if the record cannot be read for a moment")
    func anUnreadRecordIsNotEmptied() async throws {
        try await enrol(host)
        let before = try #require(try host.memory.record(named: "keys"))
        let hasFailed = Mutex(false)
        let flaky = HookedStorage(host.storage) { call, _ throws(ProviderError) in
            guard case .record = call else { return }
            let isFirst = hasFailed.withLock { hasFailed in
                defer { hasFailed = true }
                return !hasFailed
            }
            if isFirst { throw ProviderError(.storeReadFailed, "Input/output error.") }
        }
        var environment = ProviderEnvironment.testing(storage: flaky)
        environment.keyStores = KeyStores(schemes: []) { _ in nil }
        let keys = OwnedKeys(host.keys.store, environment, record: "keys")
        #expect(throws: ProviderError.self) { try keys.destroyAllStored(and: host.current) }
        #expect(try host.memory.record(named: "keys") == before && host.uris.count == 1)
        try keys.destroyAllStored(and: host.current)
        #expect(try host.memory.record(named: "keys") == nil && host.uris.isEmpty)
    }

    @Test func aRecordOfANewerVersionIsLeftAlone() async throws {
        let newer = SecretBytes(utf8: #"{"version":2,"secrets":[]}"#)
        try host.memory.updateRecord(named: "keys") { _ in newer }
        for error in [
            await #expect(throws: ProviderError.self) { try await enrol(host) },
            #expect(throws: ProviderError.self) { try host.keys.destroyAllStored(and: nil) },
        ] { #expect(error?.code == .storeReadFailed && error?.message.contains("newer certprov") == true) }
        #expect(try host.memory.record(named: "keys") == newer)
    }

    @Test("The lease of a record is held during the work and released after an error")
    func theLeaseIsHeldDuringTheWork() async throws {
        let environment = ProviderEnvironment.testing()
        let inner = try await environment.withLease(of: "keys") { () throws(ProviderError) in
            #expect(try environment.storage.withLease(of: "keys") { 1 } == nil)
            return try environment.storage.withLease(of: "other") { 2 }
        }
        #expect(inner == 2)
        await #expect(throws: ProviderError.self) {
            try await environment.withLease(of: "keys") { () throws(ProviderError) in
                throw ProviderError(.unavailable, "down")
            }
        }
        #expect(try environment.storage.withLease(of: "keys") { 3 } == 3)
    }
}

/// A host with a provider that has keys in a key store. Each write may be the last thing that the process does.
private struct Host {
    let power = Power()
    let memory: InMemoryStorage
    let storage: any IdentityStorage
    private let device: Device
    let keys: OwnedKeys

    init() { self.init(InMemoryStorage(), Device(), "test:a") }

    private init(_ memory: InMemoryStorage, _ device: Device, _ place: String) {
        self.memory = memory
        self.device = device
        let storage = HookedStorage(memory) { [power] call, _ throws(ProviderError) in
            switch call {
            case .record, .updateRecord, .updatedRecord: try power.spend()
            case .entry, .setEntry: break
            }
        }
        self.storage = storage
        var environment = ProviderEnvironment.testing(storage: storage)
        environment.keyStores = KeyStores(schemes: ["test"]) { [power] location in
            DeviceStore(place: location.uri, device: device, power: power)
        }
        keys = OwnedKeys(DeviceStore(place: place, device: device, power: power), environment, record: "keys")
    }

    /// The key of the stored identity.
    var current: KeyReference? { device.state.withLock(\.current) }
    var used: [KeyReference] { [current].compactMap(\.self) }

    func use(_ key: KeyReference) throws(ProviderError) {
        try power.spend()
        device.state.withLock { $0.current = key }
        try power.spend()
    }

    func forget() { device.state.withLock { $0.current = nil } }

    var uris: [String] { device.state.withLock { $0.keys.keys.sorted() } }

    /// The keys in the store that no announcement names.
    func unknownKeys() throws -> [String] {
        let record = try memory.record(named: "keys")
        let text = record?.withUnsafeBytes { String(decoding: $0, as: UTF8.self) } ?? ""
        return uris.filter { !text.contains($0.dropFirst("test:a/".count)) }
    }

    /// The next process. The store destroys the keys of those that were not told that the key is written down.
    func restarted() -> Host {
        device.state.withLock { $0.keys = $0.keys.filter { $0.value.isRemembered } }
        return Host(memory.afterCrash(), device, "test:a")
    }

    /// The same, with another key store configured.
    func with(place: String) -> Host { Host(memory, device, place) }

    func breakStore() { device.state.withLock { $0.isBroken = true } }
    func repairStore() { device.state.withLock { $0.isBroken = false } }
}

/// The state that outlives a process.
private final class Device: Sendable {
    struct State {
        var keys: [String: (key: SoftwareKey, isRemembered: Bool)] = [:]
        var made = 0
        var isBroken = false
        var current: KeyReference?
    }
    let state = Mutex(State())
}

/// A key store as the contract has it: a key that was not written down is destroyed.
private struct DeviceStore: KeyStore {
    let place: String
    let device: Device
    let power: Power

    var properties: KeyStoreProperties {
        KeyStoreProperties(scheme: "test", location: KeyLocation(rawValue: "elsewhere"), makes: [.p256: .signing])
    }
    func holds(keyURI: String) -> Bool { keyURI == place || keyURI.hasPrefix(place + "/") }

    func check(_ interaction: any UserInteraction) async throws(ProviderError) {}

    func make(
        _ new: NewKey, _ interaction: any UserInteraction,
        remember: @escaping @Sendable (any IdentityKey) async throws(ProviderError) -> Void
    ) async throws(ProviderError) -> any IdentityKey {
        try properties.check(new)
        try power.spend()
        var key = try SoftwareKey(new, location: location)
        let uri = device.state.withLock { state in
            state.made += 1
            let uri = "\(place)/key-\(state.made)-"
            key.uri = uri
            state.keys[uri] = (key, false)
            return uri
        }
        do throws(ProviderError) {
            try power.spend()
            try await remember(key)
            try power.spend()
        } catch {
            if !power.isOff { device.state.withLock { $0.keys[uri] = nil } }
            throw error
        }
        device.state.withLock { $0.keys[uri]?.isRemembered = true }
        try power.spend()
        return key
    }

    func key(
        for key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> (any IdentityKey)? { try storedKey(for: key) }

    func storedKey(for key: KeyReference) throws(ProviderError) -> (any IdentityKey)? {
        device.state.withLock { $0.keys[key.uri]?.key }
    }

    func list() async throws(ProviderError) -> [KeyDescription] { [] }

    func destroy(
        _ key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Bool { try destroyStored(key) }

    func destroyStored(_ key: KeyReference) throws(ProviderError) -> Bool {
        try power.spend()
        let (isBroken, wasThere) = device.state.withLock { state in
            (state.isBroken, !state.isBroken && state.keys.removeValue(forKey: key.uri) != nil)
        }
        if isBroken { throw ProviderError(.tokenNotPresent, "The device is gone.") }
        try power.spend()
        return wasThere
    }

    func announceDestruction(of key: KeyReference) async throws(ProviderError) -> [String] {
        ["the key \(key.uri)"]
    }
}
