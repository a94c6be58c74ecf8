import CertificateProviding
import CertificateTLS
import Foundation
import IdentityStore
import Logging
import NIOCore
import ProviderTransport
import Synchronization
import TestSupport
import Testing

@testable import Logon

/// A host with an application, a provider and a server, for suites with ``EndsHosts``. The provider obtains an identity.
final class RegistrationHost: Sendable {
    static let passcode = "correct horse battery"
    let directory: TemporaryDirectory
    let server: PlatformServer
    let provider = ScriptedProvider(ProviderID("test"))
    let identity: Identity
    let person = Person(passcode)
    private let settings: [String: String?]
    private let variables: [String: String]
    private let now: @Sendable () -> Date
    private let keyStore = ExampleKeyStore.descriptor(ProviderID("keys"))
    private let made: (LogonManager, DataVault)
    private let processes = Mutex<[@Sendable () -> LogonManager?]>([])

    var manager: LogonManager { made.0 }
    var vault: DataVault { made.1 }

    init(
        settings: [String: String?] = [:], variables: [String: String] = [:],
        retryPolicy: RetryPolicy = .retryingAtOnce, now: @escaping @Sendable () -> Date = { Date() }
    ) async throws {
        directory = try TemporaryDirectory()
        let authority = try TestAuthority()
        // For clocks that a test turns.
        let leaf = try authority.issue(
            "server", addresses: [[127, 0, 0, 1]], notAfter: Date(timeIntervalSinceNow: 800_000))
        server = try await PlatformServer(authority, server: leaf)
        identity = try authority.issue("client")
        try directory.write(authority.root.pemRepresentation.utf8, to: "anchors.pem")
        (self.settings, self.variables, self.now) = (settings, variables, now)
        made = try Self.manager(settings, variables, directory, server, provider, keyStore, retryPolicy, now)
        provider.obtain(identity)
        EndsHosts.hosts?.add(self)
    }

    /// The next process, with other settings.
    func restarted(
        _ more: [String: String?] = [:], variables: [String: String] = [:],
        retryPolicy: RetryPolicy = .retryingAtOnce
    ) throws -> LogonManager {
        let manager = try Self.manager(
            settings.merging(more) { $1 }, self.variables.merging(variables) { $1 }, directory, server, provider,
            keyStore, retryPolicy, now
        ).0
        processes.withLock { $0.append { [weak manager] in manager } }
        return manager
    }

    /// The next process, for what throws nothing else.
    func process() throws(ProviderError) -> LogonManager {
        do { return try restarted() } catch {
            throw error as? ProviderError ?? ProviderError(.internal, "\(error)")
        }
    }

    private static func manager(
        _ settings: [String: String?], _ variables: [String: String], _ directory: TemporaryDirectory,
        _ server: PlatformServer, _ provider: ScriptedProvider, _ keyStore: KeyStoreDescriptor,
        _ retryPolicy: RetryPolicy, _ now: @escaping @Sendable () -> Date
    ) throws -> (LogonManager, DataVault) {
        var all: [String: String?] = [
            "Host": "127.0.0.1", "Port": "\(server.port)", "SecurityConfiguration": "SSO",
            "ApplicationId": "com.example.app", "CertificateProvider": "test", "TrustAnchors": directory["anchors.pem"],
            "Passcode.lock-timeout": "0",
        ]
        all.merge(settings) { $1 }
        let pairs = all.compactMap { key, value in value.map { (key, $0) } }.sorted { $0.0 < $1.0 }
        let path = directory["\(UUID().uuidString).properties"]
        try Data(FileForm.properties.text(pairs).utf8).write(to: URL(filePath: path))
        let parameters = [Parameter.string("path", summary: "Test.").descriptor]
        let registry = try ProviderRegistry(
            [provider, ScriptedProvider(ProviderID("other"))].map { $0.descriptor(parameters) }, keyStores: [keyStore])
        let configuration = try LogonConfiguration.load(path: path, registry: registry)
        let vault = try DataVault(
            "com.example.app", in: directory.path, policy: configuration.registration.passcodePolicy,
            parameters: ScryptParameters(logarithmOfCost: 4, blockSize: 1, parallelism: 1))
        let secrets = SecretReader(environment: { variables[$0] })
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let manager = try LogonManager(
            configuration: configuration, registry: registry, vault: vault,
            transport: Transport(retryPolicy: retryPolicy), secrets: secrets, now: now
        ) { id in
            ProviderEnvironment(
                storage: vault.storage(for: id), secrets: secrets, logger: logger, executor: BlockingExecutor { $0() })
        }
        return (manager, vault)
    }

    /// The vault of another process.
    func restartedVault() throws -> DataVault {
        try Self.manager(
            settings, variables, directory, server, provider, keyStore, .retryingAtOnce, now
        ).1
    }

    /// The public keys in the key store.
    func keys() async throws -> [[UInt8]] { try await store().list().map(\.reference.publicKey.derRepresentation) }

    func destroyKeys() async throws {
        for key in try await store().list() { try await store().destroy(key.reference, NoUserInteraction()) }
    }

    private func store() throws -> any KeyStore { try manager.keyStores.store("keys:") }

    func register() async throws -> ConnectionID {
        provider.obtain(identity)
        return try await manager.register(person).id
    }

    fileprivate func end() async {
        for process in processes.withLock(\.self) + [{ self.manager }] { await process()?.shutdown() }
        await server.close()
    }
}

/// Ends the hosts of a test after it, also when it fails.
struct EndsHosts: SuiteTrait, TestTrait, TestScoping {
    fileprivate final class Hosts: Sendable {
        private let hosts = Mutex<[RegistrationHost]>([])

        func add(_ host: RegistrationHost) { hosts.withLock { $0.append(host) } }
        func end() async { for host in hosts.withLock(\.self) { await host.end() } }
    }
    @TaskLocal fileprivate static var hosts: Hosts?
    let isRecursive = true

    @concurrent func provideScope(
        for test: Test, testCase: Test.Case?, performing body: @concurrent @Sendable () async throws -> Void
    ) async throws {
        let hosts = Hosts()
        do { try await Self.$hosts.withValue(hosts) { try await body() } } catch {
            await hosts.end()
            throw error
        }
        await hosts.end()
    }
}

extension Trait where Self == EndsHosts {
    static var endsHosts: Self { EndsHosts() }
}

extension ScriptedProvider {
    /// Lets it obtain an identity, which names it as its provider.
    func obtain(_ identity: Identity) {
        get { _ throws(ProviderError) in identity }
    }
}

/// A clock that a test moves. Delays of less than a minute are none.
final class Elapsed: Sendable {
    private let start = ContinuousClock.now
    private let elapsed = Mutex(Duration.zero)

    func pass(_ time: Duration) { elapsed.withLock { $0 += time } }

    /// Passes some time, and returns how much has passed.
    func next(_ time: Duration) -> Duration {
        elapsed.withLock { elapsed in
            elapsed += time
            return elapsed
        }
    }

    /// Passes minutes until a timer, which may not have begun yet, has done its work.
    func pass(until state: LogonState, of manager: LogonManager) async throws {
        let end = ContinuousClock.now + .seconds(600)
        while try await manager.registrationState() != state, .now < end {
            pass(.seconds(61))
            try await Task.sleep(for: .milliseconds(5))
        }
        #expect(try await manager.registrationState() == state)
    }

    var policy: RetryPolicy {
        RetryPolicy(now: { [self] in start + elapsed.withLock(\.self) }) { [self] duration in
            let end = elapsed.withLock(\.self) + duration
            while duration >= .seconds(20), elapsed.withLock(\.self) < end {
                try await Task.sleep(for: .milliseconds(2))
            }
        }
    }
}

extension RetryPolicy {
    /// For retries, whose delays are short. The timer that locks a vault waits: it would go round and round.
    fileprivate static let retryingAtOnce = RetryPolicy(sleep: {
        try await Task.sleep(for: $0 < .seconds(30) ? .zero : $0)
    })
}
