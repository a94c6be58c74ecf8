import CertificateProviding
import Logging
import TestSupport
import Testing

@testable import Logon

@Suite struct LogonManagerTests {
    private static let ids = [ProviderID("one"), ProviderID("two"), ProviderID("three")]
    private let authority: TestAuthority
    private let clock = ManualClock()

    init() throws { authority = try TestAuthority() }

    private func manager(_ providers: [ScriptedProvider]) throws -> LogonManager {
        try LogonManager(
            configuration: LogonConfiguration(providers: providers.map { ConfiguredProvider(id: $0.id) }),
            registry: try ProviderRegistry(providers.map { $0.descriptor() }), clock: clock,
            environment: { _ in environment() })
    }

    private func providers(_ count: Int) -> [ScriptedProvider] { Self.ids.prefix(count).map { ScriptedProvider($0) } }

    /// The answers of a provider in a row of the table below.
    enum Script: Sendable {
        case has
        case nothing
        case fails(ProviderError.Code)

        func result(_ identity: Identity?) -> Result<Identity?, ProviderError> {
            switch self {
            case .has: .success(identity)
            case .nothing: .success(nil)
            case .fails(let code): .failure(ProviderError(code, "said \(code)"))
            }
        }
    }

    struct Row: Sendable {
        var stored: [Script]
        var get: [Script] = []
        /// The index of the provider whose identity comes back, or the code of the error.
        var outcome: Result<Int, ProviderError>
        var calls: [[String]]

        static func takes(_ index: Int, stored: [Script], get: [Script] = [], calls: [[String]]) -> Row {
            Row(stored: stored, get: get, outcome: .success(index), calls: calls)
        }
        static func fails(
            _ code: ProviderError.Code, stored: [Script], get: [Script] = [], calls: [[String]]
        ) -> Row {
            Row(stored: stored, get: get, outcome: .failure(ProviderError(code, "")), calls: calls)
        }
    }

    private static let movable: [ProviderError.Code] = [.notFound, .tokenNotPresent, .unavailable]
    private static let final: [ProviderError.Code] = [
        .wrongPassword, .pinIncorrect, .pinFinalTry, .pinLocked, .userCancelled, .interactionRequired, .rejected,
        .malformedData, .keyMismatch, .unsupportedAlgorithm, .fileNotFound, .configurationInvalid, .timedOut,
        .pending, .protocolError, .storeReadFailed, .internal, .init(rawValue: "ownCode"),
    ]

    private static let rows: [Row] =
        [
            .takes(0, stored: [.has, .has], calls: [["stored"], []]),
            .takes(1, stored: [.nothing, .has], calls: [["stored"], ["stored"]]),
            .fails(.storeReadFailed, stored: [.fails(.storeReadFailed), .has], calls: [["stored"], []]),
            .fails(.notFound, stored: [.fails(.notFound), .has], calls: [["stored"], []]),
            .takes(0, stored: [.nothing], get: [.has], calls: [["stored", "get"]]),
            .takes(0, stored: [.nothing, .nothing], get: [.has, .has], calls: [["stored", "get"], ["stored"]]),
            .fails(.notFound, stored: [.nothing], get: [.fails(.notFound)], calls: [["stored", "get"]]),
            .fails(
                .tokenNotPresent, stored: [.nothing, .nothing], get: [.fails(.tokenNotPresent), .fails(.unavailable)],
                calls: [["stored", "get"], ["stored", "get"]]),
        ]
        + movable.map {
            .takes(
                1, stored: [.nothing, .nothing, .nothing], get: [.fails($0), .has, .has],
                calls: [["stored", "get"], ["stored", "get"], ["stored"]])
        }
        + final.map {
            .fails(
                $0, stored: [.nothing, .nothing], get: [.fails($0), .has], calls: [["stored", "get"], ["stored"]])
        }

    @Test("The providers are asked in order until one has an identity or fails for good", arguments: rows)
    func chooses(row: Row) async throws {
        let providers = providers(row.stored.count)
        let identities = try providers.map { try authority.issue($0.id.rawValue, provider: $0.id) }
        for (index, provider) in providers.enumerated() {
            provider.stored(row.stored[index].result(identities[index]))
            guard index < row.get.count else { continue }
            let result = row.get[index].result(identities[index])
            provider.get { _ throws(ProviderError) in
                guard let identity = try result.get() else { throw ProviderError(.internal, "") }
                return identity
            }
        }
        let manager = try manager(providers)
        switch row.outcome {
        case .success(let index):
            let identity = try await manager.identity(NoUserInteraction())
            #expect(identity.certificate == identities[index].certificate)
            #expect(manager.decisions.last { $0.outcome == .identity }?.provider == Self.ids[index])
        case .failure(let expected):
            let error = await failure { try await manager.identity(NoUserInteraction()) }
            #expect(error?.code == expected.code)
            if providers.count == 1 || !Self.movable.contains(expected.code) {
                #expect(error?.provider == Self.ids[0])
                #expect(error?.message == "said \(expected.code)")
            }
        }
        #expect(providers.map { $0.calls.filter { !$0.hasPrefix("set") } } == row.calls)
        #expect(Set(manager.decisions.map(\.provider)) == Set(providers.map(\.id)))
    }

    @Test("A provider is checked before it is asked for an identity, and not for one that it has stored")
    func checks() async throws {
        let providers = providers(3)
        providers[1].stored(.success(try authority.issue("two", provider: Self.ids[1])))
        let manager = try manager(providers)
        let refusal = ProviderError(.certificateNotUsable, "Not usable.")
        _ = try await manager.identity(NoUserInteraction()) { _ throws(ProviderError) in throw refusal }
        providers[1].stored(.success(nil))
        let error = await failure {
            try await manager.identity(NoUserInteraction()) { provider throws(ProviderError) in
                if provider.id == Self.ids[1] { throw refusal }
            }
        }
        #expect(error?.code == .certificateNotUsable && error?.provider == Self.ids[1])
        #expect(providers.map { $0.calls.contains("get") } == [true, false, false])
    }

    @Test("If no provider has an identity, the error lists the reason of each")
    func listsWhatEveryProviderSaid() async throws {
        let providers = providers(2)
        providers[0].get { _ throws(ProviderError) in
            throw ProviderError(.unavailable, "No server.")
        }
        let error = await failure { try await manager(providers).obtainIdentity(NoUserInteraction()) }
        #expect(error?.code == .unavailable)
        #expect(
            error?.message
                == "No provider has an identity. one: No server. [unavailable] two: There is nothing. [notFound]"
        )
    }

    @Test("The manager records the decision and duration of each provider")
    func keepsEveryDecision() async throws {
        let providers = providers(3)
        let identity = try authority.issue("two")
        providers[1].get { [clock] _ in
            clock.advance(by: .milliseconds(20))
            return identity
        }
        let manager = try manager(providers)
        #expect(manager.decisions.isEmpty)
        _ = try await manager.identity(NoUserInteraction())
        #expect(
            manager.decisions.map(\.description) == [
                "one: stored: none", "two: stored: none", "three: stored: none",
                "one: get: movedOn: There is nothing. [notFound]", "two: get: identity",
                "three: get: notAsked: 'two' was chosen before",
            ])
        #expect(manager.decisions.map(\.duration) == [.zero, .zero, .zero, .zero, .milliseconds(20), .zero])
        #expect(try await manager.storedIdentity() == nil)
        #expect(manager.decisions.map(\.step) == [.stored, .stored, .stored])
    }

    @Test("Obtaining an identity neither reads nor deletes the stored one")
    func obtainsWithoutLookingAtOrDeletingWhatIsStored() async throws {
        let providers = providers(1)
        let identity = try authority.issue("one")
        providers[0].stored(.success(identity))
        let manager = try manager(providers)
        #expect(await failure { try await manager.obtainIdentity(NoUserInteraction()) }?.code == .notFound)
        #expect(providers[0].calls == ["get"])
        #expect(try await manager.storedIdentity()?.certificate == identity.certificate)
    }

    @Test func passesTheInteractionOn() async throws {
        let providers = providers(1)
        providers[0].get { interaction throws(ProviderError) in
            _ = try await interaction.requestSecret("PIN?")
            throw ProviderError(.internal, "")
        }
        let error = await failure { try await manager(providers).identity(NoUserInteraction()) }
        #expect(error?.code == .interactionRequired)
    }
}

// MARK: - Updating and deleting

extension LogonManagerTests {
    @Test func updatesByDeletingThenGetting() async throws {
        let providers = providers(1)
        let identity = try authority.issue("one")
        providers[0].get { _ in identity }
        #expect(try await manager(providers).updateCertificate(NoUserInteraction()).certificate == identity.certificate)
        #expect(providers[0].calls == ["delete", "get"])
    }

    @Test func stopsAnUpdateWhenDeletingFails() async throws {
        let providers = providers(3)
        let identity = try authority.issue("one")
        for provider in providers { provider.stored(.success(identity)) }
        providers[1].deletion(.failure(ProviderError(.deleteFailed, "Disk.")))
        let manager = try manager(providers)
        let error = await failure { try await manager.updateCertificate(NoUserInteraction()) }
        #expect(error?.code == .deleteFailed)
        #expect(error?.provider == Self.ids[1])
        #expect(
            manager.decisions.map(\.description) == [
                "three: delete: deleted", "two: delete: stopped: Disk. [deleteFailed]",
                "one: delete: notAsked: 'two' failed to delete",
            ])
        #expect(try await manager.storedIdentity()?.certificate == identity.certificate)
    }

    @Test("After an update that obtains no certificate, no identity is stored")
    func hasNoIdentityAfterAnUpdateThatCouldNotGetOne() async throws {
        let providers = providers(1)
        providers[0].stored(.success(try authority.issue("one")))
        let manager = try manager(providers)
        #expect(await failure { try await manager.updateCertificate(NoUserInteraction()) }?.code == .notFound)
        #expect(providers[0].calls == ["delete", "get"])
        #expect(try await manager.storedIdentity() == nil)
    }

    @Test("A failed deletion does not prevent the deletion at the other providers")
    func deletesEverythingItCan() async throws {
        let providers = providers(3)
        providers[0].deletion(.failure(ProviderError(.deleteFailed, "First.")))
        providers[2].deletion(.failure(ProviderError(.storeReadFailed, "Second.")))
        #expect(await failure { try await manager(providers).deleteStoredCertificates() }?.message == "First.")
        #expect(providers.map(\.calls) == Array(repeating: ["delete"], count: 3))
        for provider in providers { provider.deletion(.success(())) }
        try await manager(providers).deleteStoredCertificates()
    }
}

// MARK: - One operation at a time

extension LogonManagerTests {
    @Test(.timeLimit(.minutes(20))) func refusesASecondOperation() async throws {
        let providers = providers(1)
        let (started, start) = AsyncStream.makeStream(of: Void.self)
        let (released, release) = AsyncStream.makeStream(of: Void.self)
        let identity = try authority.issue("one")
        providers[0].get { _ in
            start.yield()
            for await _ in released { break }
            return identity
        }
        let manager = try manager(providers)
        async let first = manager.identity(NoUserInteraction())
        for await _ in started { break }

        let codes = [
            await failure { try await manager.identity(NoUserInteraction()) }?.code,
            await failure { try await manager.obtainIdentity(NoUserInteraction()) }?.code,
            await failure { try await manager.updateCertificate(NoUserInteraction()) }?.code,
            await failure { try await manager.deleteStoredCertificates() }?.code,
            await failure { try await manager.explain() }?.code,
        ]
        #expect(codes == Array(repeating: .operationNotAllowed, count: 5))
        #expect(try await manager.storedIdentity() == nil)

        release.yield()
        #expect(try await first.certificate == identity.certificate)
        release.yield()
        _ = try await manager.obtainIdentity(NoUserInteraction())
    }

    @Test("After a cancelled operation, the manager accepts the next one", .timeLimit(.minutes(20)))
    func isFreeAgainAfterACancellation() async throws {
        let providers = providers(2)
        let (started, start) = AsyncStream.makeStream(of: Void.self)
        providers[0].get { _ throws(ProviderError) in
            start.yield()
            // Ends when the task is cancelled, and then says what a failed request would.
            for await _ in AsyncStream<Void>.makeStream().stream { break }
            throw ProviderError(.unavailable, "No answer.")
        }
        let manager = try manager(providers)
        let task = Task { await failure { try await manager.obtainIdentity(NoUserInteraction()) } }
        for await _ in started { break }
        task.cancel()
        let error = await task.value
        #expect(error?.code == .unavailable)
        #expect(error?.message == "No answer.")
        #expect(providers[1].calls == [])
        #expect(manager.decisions.map(\.outcome) == [.stopped, .notAsked])
        try await manager.deleteStoredCertificates()
    }

    @Test("A cancelled task obtains no identity from any provider")
    func asksNobodyForACancelledTask() async throws {
        let providers = providers(2)
        let manager = try manager(providers)
        let task = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            return await failure { try await manager.identity(NoUserInteraction()) }
        }
        #expect(await task.value?.code == .userCancelled)
        #expect(providers.map(\.calls) == [["stored"], ["stored"]])
    }

    @Test("After a failed operation, the manager accepts the next one")
    func isFreeAgainAfterAFailure() async throws {
        let manager = try manager(providers(1))
        for _ in 0..<2 {
            #expect(await failure { try await manager.identity(NoUserInteraction()) }?.code == .notFound)
        }
    }
}
