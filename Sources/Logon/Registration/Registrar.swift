import CertificateProviding
import FoundationEssentials
import IdentityStore
import ProviderTransport
import Synchronization

/// The shared parts of a registration, beside the providers.
final class Registrar: Sendable {
    let vault: DataVault
    let transport: Transport
    let secrets: SecretReader
    let executor: BlockingExecutor
    let now: @Sendable () -> Date
    /// One shared call obtains the missing identity for all waiting requests.
    let obtaining = SharedCall<Identity>()
    /// One shared call takes the missing password for all waiting requests.
    let renewing = SharedCall<Void>()
    private struct State {
        var client: PlatformClient?
        /// The key store of `Vault.key`, by its setting.
        var keyStore: (setting: String, store: any KeyStore)?
        var last: LogonState?
        var followers: [UInt64: AsyncStream<LogonState>.Continuation] = [:]
        var nextFollower: UInt64 = 0
        /// Whether an operation changes the registration.
        var isChanging = false
        /// Whether the program has locked the vault itself, so that only it unlocks it.
        var isLockedOnPurpose = false
        var settings: RegistrationSettings?
        /// How many operations run, and when the last one ended.
        var running = 0
        var lastUse: ContinuousClock.Instant?
        /// Locks the vault when it was not used for this time.
        var timer: (timeout: Duration, task: Task<Void, Never>)?
    }
    private let shared = Mutex(State())

    init(
        _ vault: DataVault, _ transport: Transport, _ secrets: SecretReader, _ executor: BlockingExecutor,
        now: @escaping @Sendable () -> Date
    ) {
        (self.vault, self.transport, self.secrets, self.executor, self.now) = (vault, transport, secrets, executor, now)
    }

    deinit {
        let (timer, followers) = shared.withLock { ($0.timer?.task, Array($0.followers.values)) }
        timer?.cancel()
        for follower in followers { follower.finish() }
    }

    /// Returns the key store of `Vault.key`. Makes it once, and keeps it until ``closeKeyStore()``: a module that is opened again
    /// and again takes its time, and opencryptoki 3.8 closes descriptors of others when it is closed for the second time.
    func keyStore(
        _ setting: String, make: () throws(ProviderError) -> any KeyStore
    ) throws(ProviderError) -> any KeyStore {
        if let known = shared.withLock(\.keyStore), known.setting == setting { return known.store }
        let new = try make()
        return shared.withLock { state in
            if let known = state.keyStore, known.setting == setting { return known.store }
            state.keyStore = (setting, new)
            return new
        }
    }

    func closeKeyStore() async {
        let known = shared.withLock { state in
            defer { state.keyStore = nil }
            return state.keyStore
        }
        await known?.store.shutdown()
    }

    /// Returns the client of the configured server. Makes it once; another one when the settings are others.
    ///
    /// - Throws: `configurationInvalid`.
    func client(_ configuration: LogonConfiguration) throws(ProviderError) -> PlatformClient {
        if let client = shared.withLock(\.client), client.isFor(configuration) { return client }
        let new = PlatformClient(
            try configuration.platform(), configuration, transport, secrets, executor, now: now)
        return shared.withLock { state in
            if let client = state.client, client.isFor(configuration) { return client }
            state.client = new
            return new
        }
    }

    /// As ``client(_:)``, of the server where the application is registered. Another one, or a wrong path of it, knows neither the
    /// connection nor the password.
    ///
    /// - Throws: `configurationInvalid` if the configuration names another one.
    func client(
        _ configuration: LogonConfiguration, of record: ConnectionRecord
    ) throws(ProviderError) -> PlatformClient {
        let client = try client(configuration)
        guard let place = record.place, place != client.platform.place else { return client }
        throw configuration.invalid("Host", ConnectionRecord.otherPlace(place, client.platform.place))
    }

    /// Whether an operation of this process changes the registration. Operations that only ask providers do not count.
    var isChanging: Bool {
        get { shared.withLock(\.isChanging) }
        set { shared.withLock { $0.isChanging = newValue } }
    }

    /// The settings of the manager in force.
    var settings: RegistrationSettings? {
        get { shared.withLock(\.settings) }
        set { shared.withLock { $0.settings = newValue } }
    }

    /// Whether the program has locked the vault itself, so that only it unlocks it.
    var isLockedOnPurpose: Bool {
        get { shared.withLock(\.isLockedOnPurpose) }
        set { shared.withLock { $0.isLockedOnPurpose = newValue } }
    }

    /// The error while another operation has the application's lease: of another process, or of another manager.
    func busy() async -> ProviderError {
        let holder = try? await executor.run { () throws(ProviderError) in self.vault.operationHolder() }
        return RegistrationMachine.Refusal.busy(of: holder ?? nil)
    }

    /// Closes the connections that no request uses.
    func forgetConnections() { shared.withLock(\.client)?.forget() }

    // MARK: - States

    /// Returns what the disk says. A vault without a passcode is unlocked. Blocks.
    func currentState() throws(ProviderError) -> LogonState {
        switch try vault.state() {
        case .none: return .notRegistered
        case .unlocked: return .registeredUnlocked
        case .locked:
            // With a key of a key store, that is asked first.
            guard try vault.hasNoPasscode(), try vault.terms()?.wrapping == nil else { return .registeredLocked }
            try vault.unlock(nil)
            return .registeredUnlocked
        }
    }

    /// Returns what the disk says, with the record of the connection if it can be read. Blocks.
    func currentStateAndRecord() throws(ProviderError) -> (LogonState, ConnectionRecord?) {
        let state = try currentState()
        guard state == .registeredUnlocked else { return (state, nil) }
        return (state, try? ConnectionRecord.read(from: vault))
    }

    /// Returns what the disk says, and tells the followers.
    func state() async throws(ProviderError) -> LogonState {
        let current = try await executor.run { () throws(ProviderError) in try self.currentState() }
        publish(current)
        return current
    }

    /// Returns the record of the connection; `nil` if there is none.
    func record() async throws(ProviderError) -> ConnectionRecord? {
        try await executor.run { () throws(ProviderError) in try ConnectionRecord.read(from: self.vault) }
    }

    /// Tells the followers of a state that is another one than before.
    func publish(_ new: LogonState) {
        let followers = shared.withLock { state -> [AsyncStream<LogonState>.Continuation] in
            guard state.last != new else { return [] }
            state.last = new
            return Array(state.followers.values)
        }
        for follower in followers { follower.yield(new) }
    }

    func states() -> AsyncStream<LogonState> {
        let (stream, continuation) = AsyncStream<LogonState>.makeStream(bufferingPolicy: .bufferingNewest(16))
        let number = shared.withLock { state in
            state.nextFollower += 1
            state.followers[state.nextFollower] = continuation
            return state.nextFollower
        }
        continuation.onTermination = { [weak self] _ in
            self?.shared.withLock { _ = $0.followers.removeValue(forKey: number) }
        }
        return stream
    }

    // MARK: - The lock timeout

    /// Runs an operation that may use the vault. The vault is not locked until it ends, however long that takes. Without
    /// another operation, it is locked when `timeout` has passed since the end of the last one.
    ///
    /// - Parameter timeout: Returns it at the end: the vault may be another one then.
    func using<T>(
        lockingAfter timeout: () -> Duration?, _ operation: () async throws(ProviderError) -> T
    ) async throws(ProviderError) -> T {
        shared.withLock { $0.running += 1 }
        defer { end(lockingAfter: timeout()) }
        return try await operation()
    }

    /// As ``using(lockingAfter:_:)``, on this thread.
    func usingNow(
        lockingAfter timeout: () -> Duration?, _ operation: () throws(ProviderError) -> Void
    ) throws(ProviderError) {
        shared.withLock { $0.running += 1 }
        defer { end(lockingAfter: timeout()) }
        try operation()
    }

    private func end(lockingAfter timeout: Duration?) {
        let now = transport.retryPolicy.now()
        shared.withLock { state in
            state.running -= 1
            state.lastUse = now
            // One for all operations with the same timeout: a sleep that is cancelled stays in the runtime's timers until its end.
            guard state.timer?.timeout != timeout else { return }
            state.timer?.task.cancel()
            state.timer = timeout.map { ($0, timer(lockingAfter: $0)) }
        }
    }

    private func timer(lockingAfter timeout: Duration) -> Task<Void, Never> {
        Task { [weak self, transport] in
            var left: Duration? = timeout
            while let time = left {
                do { try await transport.retryPolicy.sleep(time) } catch { return }
                guard let self else { return }
                left = timeLeft(of: timeout)
            }
            await self?.announceLock()
        }
    }

    /// The configured one, or that of the platform server if it is shorter.
    func lockTimeout(_ settings: RegistrationSettings) -> Duration? {
        guard let demanded = vault.lockTimeout else { return settings.lockTimeout }
        return settings.lockTimeout.map { min($0, demanded) } ?? demanded
    }

    /// Returns the environments of providers, with storage that unlocks the vault at a use that no operation is about, such as the
    /// login that a signature needs.
    func unlocking(_ environment: @escaping ProviderRegistry.Surroundings) -> ProviderRegistry.Surroundings {
        { [weak self] id throws(ProviderError) in
            var own = try environment(id)
            own.storage = UnlockingStorage(storage: own.storage) { [weak self] () throws(ProviderError) in
                try self?.unlockNow()
            }
            return own
        }
    }

    /// Unlocks a locked vault if `Passcode.source` is all that it needs, and the program has not locked it. Blocks, for the source
    /// and for the derivation of the key. With a key of a key store, the next operation unlocks it.
    private func unlockNow() throws(ProviderError) {
        guard let settings, !isLockedOnPurpose, try vault.state() == .locked, try vault.terms()?.wrapping == nil else {
            return
        }
        let hasNoPasscode = try vault.hasNoPasscode()
        let source = hasNoPasscode ? nil : settings.passcodeSource
        guard hasNoPasscode || (source != nil && source != .prompt) else { return }
        try usingNow(lockingAfter: { lockTimeout(settings) }) { () throws(ProviderError) in
            let passcode = try source.map { source throws(ProviderError) in try secrets.read(source) }
            try vault.unlock(passcode, isAutomatic: true)
        }
        publish(.registeredUnlocked)
    }

    /// How long the vault may still be unused; `nil` if that time is over: the vault is locked then. Looked at and locked in one
    /// step, so that no operation begins in between and loses the vault.
    private func timeLeft(of timeout: Duration) -> Duration? {
        let now = transport.retryPolicy.now()
        return shared.withLock { state in
            // Another timer has taken the place of a cancelled one, whose next sleep ends it.
            if state.running > 0 || Task.isCancelled { return timeout }
            let left = timeout - (state.lastUse?.duration(to: now) ?? timeout)
            if left > .zero { return left }
            state.timer = nil
            vault.lock()
            return nil
        }
    }

    /// Tells what the disk says after the timer has locked the vault: another process may have destroyed it.
    private func announceLock() async {
        forgetConnections()
        let vault = vault
        let state = try? await executor.run { () throws(ProviderError) in try vault.state() }
        if let state { publish(state == DataVault.State.none ? .notRegistered : .registeredLocked) }
    }

    /// Locks the vault and closes the connections that were made with its secrets.
    func lock() {
        vault.lock()
        forgetConnections()
        publish(.registeredLocked)
    }
}

/// A provider's part of the vault, which is unlocked first if that needs no user.
private struct UnlockingStorage: ForwardingStorage {
    let storage: any IdentityStorage
    let unlock: @Sendable () throws(ProviderError) -> Void

    func current() throws(ProviderError) -> any IdentityStorage {
        try unlock()
        return storage
    }

    var entryDirectories: [String] { storage.entryDirectories }
}
