import CertprovKit
import Foundation
import Logging
import ProviderTransport
import Synchronization
import TestSupport
import Testing

/// Time that a test lets pass.
final class PassedTime: Sendable {
    private let start = ContinuousClock.now
    private struct State {
        var elapsed = Duration.zero
        /// How often something slept for a time of this length.
        var slept: [Duration: Int] = [:]
    }
    private let state = Mutex(State())

    func pass(_ time: Duration) { state.withLock { $0.elapsed += time } }
    func sleeps(of duration: Duration) -> Int { state.withLock { $0.slept[duration, default: 0] } }

    @Sendable func sleep(_ duration: Duration) async throws {
        let end = state.withLock { state in
            state.slept[duration, default: 0] += 1
            return state.elapsed + duration
        }
        while state.withLock(\.elapsed) < end { try await Task.sleep(for: .milliseconds(2)) }
    }

    var policy: RetryPolicy {
        RetryPolicy(now: { [self] in start + state.withLock(\.elapsed) }) { [self] in try await sleep($0) }
    }
}

/// Waits for a condition; records an issue if it does not come true.
func eventually(
    sourceLocation: SourceLocation = #_sourceLocation, _ condition: () async throws -> Bool
) async throws {
    let end = ContinuousClock.now + .seconds(600)
    while ContinuousClock.now < end {
        if try await condition() { return }
        try await Task.sleep(for: .milliseconds(2))
    }
    Issue.record("the condition does not come true", sourceLocation: sourceLocation)
}

/// Makes providers whose identity depends on their parameter `path`, and records what becomes of them.
final class ProviderMaker: Sendable {
    struct State {
        /// The identities to obtain, by path.
        var identities: [String: Identity] = [:]
        var stored: Set<String> = []
        /// Such as `get a`.
        var calls: [String] = []
        var made: [String] = []
        var ended: [String] = []
        /// Lets those who obtain an identity wait.
        var gate: AsyncStream<Void>?
        var announcements: [String: AsyncStream<Void>.Continuation] = [:]
    }
    let state = Mutex(State())
    static let path = Parameter.string("path", summary: "Which identity.")

    func descriptor(_ id: ProviderID) -> ProviderDescriptor {
        ProviderDescriptor(
            id: id, displayName: "Test", summary: "Test.", parameters: [Self.path.descriptor]
        ) { [self] (_, parameters) throws(ProviderError) in
            let path = parameters.text(Self.path) ?? ""
            if path == "broken" { throw parameters.invalid(Self.path, "is broken") }
            state.withLock { $0.made.append(path) }
            return Provider(id: id, path: path, maker: self)
        }
    }

    func takeCalls() -> [String] {
        state.withLock { state in
            defer { state.calls = [] }
            return state.calls
        }
    }

    final class Provider: CertificateProvider, UpdateAnnouncing {
        let id: ProviderID
        let path: String
        let maker: ProviderMaker
        init(id: ProviderID, path: String, maker: ProviderMaker) {
            (self.id, self.path, self.maker) = (id, path, maker)
        }

        var updates: (any UpdateAnnouncing)? { self }

        func announcements() -> AsyncStream<Void> {
            let (stream, continuation) = AsyncStream<Void>.makeStream()
            maker.state.withLock { $0.announcements[path] = continuation }
            return stream
        }

        func getCertificate(_ interaction: any UserInteraction) async throws(ProviderError) -> Identity {
            let (identity, gate) = maker.state.withLock { state in
                state.calls.append("get \(path)")
                return (state.identities[path], state.gate)
            }
            if let gate { for await _ in gate { break } }
            guard let identity else { throw ProviderError(.notFound, "There is no identity here.") }
            maker.state.withLock { _ = $0.stored.insert(path) }
            return try own(identity)
        }

        func getStoredCertificate() throws(ProviderError) -> Identity? {
            let identity = maker.state.withLock { state in
                state.calls.append("stored \(path)")
                return state.stored.contains(path) ? state.identities[path] : nil
            }
            return try identity.map { identity throws(ProviderError) in try own(identity) }
        }

        private func own(_ identity: Identity) throws(ProviderError) -> Identity {
            try Identity(
                certificateChain: identity.certificateChain, key: identity.key,
                trust: identity.trust, provenance: .init(provider: id, alias: path))
        }

        func deleteStoredCertificate() throws(ProviderError) {
            maker.state.withLock { _ = $0.stored.remove(path) }
        }

        func shutdown() async { maker.state.withLock { $0.ended.append(path) } }
    }
}

/// A service with an application, whose property file changes.
final class ReloadHost: Sendable {
    static let passcode = "correct horse battery"
    let directory: TemporaryDirectory
    let authority: TestAuthority
    let server: PlatformServer
    let maker = ProviderMaker()
    let time = PassedTime()
    let log = TestLog()
    let person = Person(passcode)
    let path: String
    let logon: CertprovLogon
    private let form: FileForm

    init(_ form: FileForm = .properties, _ settings: [String: String?] = [:], passcode: String = passcode) async throws
    {
        (directory, authority, self.form) = (try TemporaryDirectory(), try TestAuthority(), form)
        server = try await PlatformServer(authority)
        try directory.write(Array(authority.root.pemRepresentation.utf8), to: "ca.pem")
        path = directory["clienthub.\(form.rawValue)"]
        let identities = ["a": try authority.issue("client"), "b": try authority.issue("another")]
        maker.state.withLock { $0.identities = identities }
        try form.text(Self.all(settings, directory, server)).write(
            toFile: path, atomically: true, encoding: .utf8)
        logon = try CertprovLogon(
            configuredBy: path, adding: [maker.descriptor(ProviderID("test")), maker.descriptor(ProviderID("other"))],
            logger: log.logger,
            secrets: SecretReader { $0 == "PASSCODE" ? passcode : nil },
            store: IdentityStore(path: directory["state"]), sleep: time.sleep,
            transport: Transport(retryPolicy: time.policy)
        ) { [directory] id, policy throws(ProviderError) in
            try DataVault(
                id, in: directory["state"], policy: policy,
                parameters: ScryptParameters(logarithmOfCost: 4, blockSize: 1, parallelism: 1))
        }
    }

    private static func all(
        _ settings: [String: String?], _ directory: TemporaryDirectory, _ server: PlatformServer
    ) -> [(String, String)] {
        var all: [String: String?] = [
            "Host": "127.0.0.1", "Port": "\(server.port)", "SecurityConfiguration": "SSO",
            "ApplicationId": "com.example.app", "CertificateProvider": "test", "CertificateProvider.test.path": "a",
            "TrustAnchors": directory["ca.pem"], "Passcode.lock-timeout": "0",
        ]
        all.merge(settings) { $1 }
        return all.compactMap { key, value in value.map { (key, $0) } }.sorted { $0.0 < $1.0 }
    }

    /// Replaces the file, or writes it in place.
    func configure(_ settings: [String: String?] = [:], inPlace: Bool = false) throws {
        try form.text(Self.all(settings, directory, server)).write(
            toFile: path, atomically: !inPlace, encoding: .utf8)
    }

    /// Returns `FILE:LINE: ` of a key.
    func place(of key: String) throws -> String {
        let lines = try String(contentsOfFile: path, encoding: .utf8).split(
            separator: "\n", omittingEmptySubsequences: false)
        let line = try #require(lines.firstIndex { $0.hasPrefix("\(key)=") || $0.hasPrefix("<key>\(key)<") })
        return "\(path):\(line + 1): "
    }

    /// The errors in the log.
    var errors: [String] { log.lines.filter { $0.level == .error }.map(\.text) }

    func end() async {
        await logon.manager.shutdown()
        await server.close()
    }
}
