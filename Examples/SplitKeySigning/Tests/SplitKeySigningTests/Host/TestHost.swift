import CertificateProviding
import Foundation
import IdentityStore
import ProviderTransport
import Synchronization
import Testing

@testable import SplitKeySigning

/// A host of a test: a store on disk, servers in this process, and a person who types PINs.
final class TestHost: Sendable {
    let directory: URL
    let pairing = FakePairing()
    let servers: FakeServers
    let person: Person
    let store: SplitKeyStore

    static let loginPIN = "73918264"
    static let signingPIN = "5806"
    static let user = "alice@example.com"

    init() throws {
        directory = FileManager.default.temporaryDirectory.appending(path: "splitkey-\(UUID().uuidString)")
        try FileManager.default.createDirectory(
            at: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        servers = try FakeServers(pairing)
        person = Person([.login: Self.loginPIN, .signing: Self.signingPIN])
        store = SplitKeyStore(IdentityStore(path: directory.path + "/store").storage(for: ProviderID("splitkey_")))
    }

    deinit { try? FileManager.default.removeItem(at: directory) }

    var storage: any IdentityStorage { store.storage }

    /// The host as a process that has just started.
    ///
    /// - Parameter asking: `nil` for a service, where there is no person.
    func host(
        _ sources: [MPinID.Scope: SecretSource] = [:], isService: Bool = false, companyID: String? = nil,
        storage: (any IdentityStorage)? = nil
    ) -> SplitKeyHost {
        SplitKeyHost(
            storage.map { SplitKeyStore($0) } ?? store, Authority(servers.authority, servers),
            RelyingParty(servers.relyingParty, servers), pairing: pairing, companyID: companyID,
            PINDesk(sources, asking: isService ? NoUserInteraction() : person))
    }

    /// A host with both keys.
    static func enrolled() async throws -> TestHost {
        let test = try TestHost()
        let host = test.host()
        try await host.enrolLoginKey(code: SecretBytes(utf8: "code"))
        try await host.enrolSigningKey(of: user)
        test.servers.state.withLock { $0.recorded = [] }
        test.person.state.withLock { $0.questions = [] }
        return test
    }

    /// Overwrites a record's file, so that it cannot be unsealed.
    func damage(_ name: String) throws {
        let files = try #require(FileManager.default.enumerator(at: directory, includingPropertiesForKeys: nil))
        let file = try #require(files.lazy.compactMap { $0 as? URL }.first { $0.lastPathComponent == name })
        try Data("damaged".utf8).write(to: file)
    }

    func file(_ name: String, _ text: String) throws -> SecretSource {
        let path = directory.path + "/" + name
        try Data(text.utf8).write(to: URL(filePath: path))
        try #require(chmod(path, 0o600) == 0)
        return .file(path)
    }
}

/// Types PINs.
final class Person: UserInteraction {
    struct State {
        var pins: [MPinID.Scope: String]
        var questions: [String] = []
    }

    let state: Mutex<State>

    init(_ pins: [MPinID.Scope: String]) { state = Mutex(State(pins: pins)) }

    var questions: [String] { state.withLock(\.questions) }

    func types(_ pin: String, as scope: MPinID.Scope) { state.withLock { $0.pins[scope] = pin } }

    func requestSecret(_ prompt: String) async throws(ProviderError) -> SecretBytes {
        state.withLock { state in
            state.questions.append(prompt)
            return SecretBytes(utf8: state.pins[prompt.contains("login") ? .login : .signing] ?? "")
        }
    }

    func confirm(_ question: String) async throws(ProviderError) -> Bool { true }
}

extension ProviderError {
    /// The error of a call; `nil` if it has none.
    static func of(
        _ body: () async throws(ProviderError) -> some Any
    ) async -> ProviderError? {
        do throws(ProviderError) {
            _ = try await body()
            return nil
        } catch {
            return error
        }
    }
}
