import CertificateProviding
import TestSupport
import Testing

@testable import Logon

@Suite struct ExplanationTests {
    enum Sight: Sendable {
        case stored, available, nothing, unlisted
        case fails(ProviderError.Code)
        /// Sees an identity, and would fail to choose it.
        case seesButFails(ProviderError.Code)
        /// Sees an identity, and would choose it.
        case chooses
        case storeFails
    }

    struct Row: Sendable {
        var sights: [Sight]
        var chosen: ProviderID?
        var decisions: [String]
    }

    private static let rows: [Row] = [
        Row(
            sights: [.stored, .available], chosen: ProviderID("one"),
            decisions: ["one: stored: identity", "two: stored: notAsked: 'one' was chosen before"]),
        Row(
            sights: [.available, .stored], chosen: ProviderID("two"),
            decisions: ["one: stored: none", "two: stored: identity"]),
        Row(
            sights: [.storeFails, .stored], chosen: nil,
            decisions: [
                "one: stored: stopped: said storeReadFailed [storeReadFailed]",
                "two: stored: notAsked: 'one' failed before",
            ]),
        Row(
            sights: [.available, .available], chosen: ProviderID("one"),
            decisions: [
                "one: stored: none", "two: stored: none", "one: list: wouldBeAsked: it finds one identity",
                "two: list: notAsked: 'one' was chosen before",
            ]),
        Row(
            sights: [.fails(.tokenNotPresent), .available], chosen: ProviderID("two"),
            decisions: [
                "one: stored: none", "two: stored: none",
                "one: list: movedOn: said tokenNotPresent [tokenNotPresent]",
                "two: list: wouldBeAsked: it finds one identity",
            ]),
        Row(
            sights: [.fails(.malformedData), .available], chosen: nil,
            decisions: [
                "one: stored: none", "two: stored: none", "one: list: stopped: said malformedData [malformedData]",
                "two: list: notAsked: 'one' failed before",
            ]),
        Row(
            sights: [.seesButFails(.notFound), .chooses], chosen: ProviderID("two"),
            decisions: [
                "one: stored: none", "two: stored: none", "one: list: movedOn: said notFound [notFound]",
                "two: list: wouldBeAsked: it finds one identity and would use 'it'",
            ]),
        Row(
            sights: [.seesButFails(.configurationInvalid), .available], chosen: nil,
            decisions: [
                "one: stored: none", "two: stored: none",
                "one: list: stopped: said configurationInvalid [configurationInvalid]",
                "two: list: notAsked: 'one' failed before",
            ]),
        Row(
            sights: [.fails(.interactionRequired), .available], chosen: ProviderID("one"),
            decisions: [
                "one: stored: none", "two: stored: none", "one: list: wouldBeAsked: the user would be asked",
                "two: list: notAsked: 'one' was chosen before",
            ]),
        Row(
            sights: [.nothing, .unlisted], chosen: ProviderID("two"),
            decisions: [
                "one: stored: none", "two: stored: none", "one: list: none: it finds no identity",
                "two: get: wouldBeAsked: it cannot list its identities",
            ]),
        Row(
            sights: [.fails(.unavailable), .nothing], chosen: ProviderID("two"),
            decisions: [
                "one: stored: none", "two: stored: none", "one: list: movedOn: said unavailable [unavailable]",
                "two: list: none: it finds no identity",
            ]),
        Row(
            sights: [.fails(.unavailable)], chosen: nil,
            decisions: ["one: stored: none", "one: list: movedOn: said unavailable [unavailable]"]),
    ]

    @Test("The explanation names the provider that would be chosen and changes nothing", arguments: rows)
    func saysWhoWouldBeChosen(row: Row) async throws {
        let identity = try TestAuthority().issue("it")
        let ids = [ProviderID("one"), ProviderID("two")]
        let scripted = ids.prefix(row.sights.count).map { ScriptedProvider($0) }
        let descriptors = zip(scripted, row.sights).map { provider, sight in
            var list = IdentityList()
            switch sight {
            case .stored: provider.stored(.success(identity))
            case .storeFails:
                provider.stored(.failure(ProviderError(.storeReadFailed, "said storeReadFailed")))
            case .available: list.identities = [ListedIdentity(identity, isStored: false)]
            case .fails(let code): list.failures = [ProviderError(code, "said \(code)")]
            case .seesButFails(let code):
                list.identities = [ListedIdentity(identity, isStored: false)]
                list.choice = .failure(ProviderError(code, "said \(code)"))
            case .chooses:
                list.identities = [ListedIdentity(identity, isStored: false)]
                list.choice = .success(list.identities[0])
            case .nothing, .unlisted: break
            }
            if case .unlisted = sight {} else { provider.list(list) }
            return provider.descriptor()
        }
        let manager = try LogonManager(
            configuration: LogonConfiguration(providers: scripted.map { ConfiguredProvider(id: $0.id) }),
            registry: try ProviderRegistry(descriptors), environment: { _ in environment() })

        let explanation = try await manager.explain()
        #expect(explanation.chosen == row.chosen)
        #expect(explanation.decisions.map(\.description) == row.decisions)
        #expect(Set(explanation.decisions.map(\.provider)) == Set(scripted.map(\.id)))
        // Nothing was asked for or changed, and the record of the last real operation still stands.
        #expect(scripted.allSatisfy { !$0.calls.contains("get") && !$0.calls.contains("delete") })
        #expect(manager.decisions.isEmpty)
    }
}
