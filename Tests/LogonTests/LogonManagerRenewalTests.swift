import CertificateProviding
import FoundationEssentials
import TestSupport
import Testing

@testable import Logon

@Suite struct LogonManagerRenewalTests {
    private let preferred = ScriptedProvider(ProviderID("token"))
    private let other = ScriptedProvider(ProviderID("mdm"))
    private let authority: TestAuthority
    private let now = Date(timeIntervalSince1970: 1_800_000_000)

    init() throws { authority = try TestAuthority() }

    /// A certificate of 100 days.
    private func identity(daysOld: Double, from provider: ScriptedProvider) throws -> Identity {
        let start = now.addingTimeInterval(-daysOld * 86_400)
        return try authority.issue(
            "client", notBefore: start, notAfter: start.addingTimeInterval(100 * 86_400), provider: provider.id)
    }

    private func manager(renewAt: String? = nil) throws -> LogonManager {
        let registry = try ProviderRegistry([preferred, other].map { $0.descriptor() })
        var parameters = ProviderParameters()
        parameters["renew-at"] = renewAt.map { .init($0, origin: "file:1") }
        let configuration = LogonConfiguration(
            providers: [preferred, other].map { ConfiguredProvider(id: $0.id, parameters: parameters) })
        return try LogonManager(configuration: configuration, registry: registry, now: { [now] in now }) { _ in
            environment()
        }
    }

    private func renew(_ manager: LogonManager) async throws(ProviderError) -> Identity {
        try await manager.renewIdentityIfDue(at: now, NoUserInteraction())
    }

    @Test("A stored identity that is not due for renewal stays")
    func whatIsNotDueStays() async throws {
        let stored = try identity(daysOld: 59, from: preferred)
        preferred.stored(.success(stored))
        #expect(try await renew(try manager()).certificate == stored.certificate)
        #expect(preferred.calls == ["stored"] && other.calls == [])
    }

    @Test("A renewal asks only the provider of the stored identity")
    func onlyTheProviderOfTheStoredIdentityIsAsked() async throws {
        let stored = try identity(daysOld: 67, from: other)
        let new = try identity(daysOld: 0, from: other)
        other.stored(.success(stored))
        other.get { _ in new }
        let manager = try manager()
        #expect(try await renew(manager).certificate == new.certificate)
        #expect(preferred.calls == ["stored"])
        #expect(other.calls == ["stored", "get"], "nothing is deleted")
        #expect(
            manager.decisions.map(\.description) == [
                "token: stored: none", "mdm: stored: identity",
                "mdm: get: identity: the stored identity was due for renewal",
            ])
    }

    @Test(
        "After a failed renewal, no other provider is asked",
        arguments: [ProviderError.Code.unavailable, .notFound, .tokenNotPresent, .pending, .rejected])
    func aFailureIsNoReasonToAskAnother(code: ProviderError.Code) async throws {
        preferred.stored(.success(try identity(daysOld: 67, from: preferred)))
        preferred.get { _ throws(ProviderError) in throw ProviderError(code, "No.") }
        let manager = try manager()
        let error = await failure { try await renew(manager) }
        #expect(error?.code == code && error?.provider == preferred.id)
        #expect(other.calls == [] && !preferred.calls.contains("delete"))
    }

    @Test func theSameCertificateIsNoRenewal() async throws {
        let stored = try identity(daysOld: 67, from: preferred)
        preferred.stored(.success(stored))
        preferred.get { _ in stored }
        let manager = try manager()
        #expect(await failure { try await renew(manager) }?.code == .pending)
    }

    @Test func withoutAStoredIdentityOneIsObtained() async throws {
        let new = try identity(daysOld: 0, from: other)
        other.get { _ in new }
        #expect(try await renew(try manager()).certificate == new.certificate)
        #expect(preferred.calls == ["stored", "get"])
    }

    @Test(
        "The parameter 'renew-at' decides when a renewal is due",
        arguments: [("25%", 26.0, true), ("25%", 22, false), ("10d", 91, true), ("10d", 80, false)])
    func theParameterSaysWhen(renewAt: String, daysOld: Double, isDue: Bool) async throws {
        let stored = try identity(daysOld: daysOld, from: preferred)
        let new = try identity(daysOld: 0, from: preferred)
        preferred.stored(.success(stored))
        preferred.get { _ in new }
        let manager = try manager(renewAt: renewAt)
        #expect(manager.renewalSchedule(for: stored).isDue(at: now) == isDue)
        #expect(try await renew(manager).certificate == (isDue ? new : stored).certificate)
    }

    @Test("A wrong 'renew-at' is an error with file and line")
    func aWrongParameterIsAnErrorWithItsPlace() {
        let error = failure { try manager(renewAt: "soon") }
        #expect(error?.code == .configurationInvalid && error?.message.hasPrefix("file:1: ") == true)
    }

    @Test("An expired stored identity is replaced by the one that its provider has now")
    func anExpiredIdentityIsReplaced() async throws {
        let new = try identity(daysOld: 0, from: other)
        other.stored(.success(try identity(daysOld: 101, from: other)))
        other.get { _ in new }
        let manager = try manager()
        #expect(try await manager.identity(NoUserInteraction()).certificate == new.certificate)
        #expect(preferred.calls == ["stored"] && other.calls == ["stored", "get"])
    }

    @Test(
        "An expired identity that is not replaced is an error of its own, whatever may come later",
        arguments: [nil, .pending, .timedOut, .operationNotAllowed] as [ProviderError.Code?])
    func anExpiredIdentityIsNoSuccess(code: ProviderError.Code?) async throws {
        let stored = try identity(daysOld: 101, from: preferred)
        preferred.stored(.success(stored))
        preferred.get { _ throws(ProviderError) in
            guard let code else { return stored }
            throw ProviderError(code, "Not yet.", retryAfter: .seconds(60))
        }
        let manager = try manager()
        let errors = [
            await failure { try await renew(manager) },
            await failure { try await manager.identity(NoUserInteraction()) },
        ]
        for error in errors {
            #expect(error?.code == .expired && error?.provider == preferred.id)
            #expect(error?.message.contains("expired on") == true)
            if code != nil {
                #expect(error?.message.hasSuffix("Not yet.") == true && error?.retryAfter == .seconds(60))
            }
        }
        #expect(other.calls == [])
    }

    @Test("An expired identity that nothing replaces fails with the provider's own error")
    func theProvidersErrorStays() async throws {
        preferred.stored(.success(try identity(daysOld: 101, from: preferred)))
        preferred.get { _ throws(ProviderError) in throw ProviderError(.unavailable, "Down.") }
        let manager = try manager()
        #expect(await failure { try await manager.identity(NoUserInteraction()) }?.code == .unavailable)
    }

    @Test("An expired identity is not obtained")
    func anExpiredIdentityIsNotObtained() async throws {
        let expired = try identity(daysOld: 101, from: preferred)
        preferred.get { _ in expired }
        let manager = try manager()
        #expect(await failure { try await manager.identity(NoUserInteraction()) }?.code == .expired)
    }
}
