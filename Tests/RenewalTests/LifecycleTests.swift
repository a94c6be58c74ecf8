import CertificateProviding
import FoundationEssentials
import Logon
import ServiceLifecycle
import ServiceLifecycleTestKit
import TestSupport
import Testing

@testable import Renewal

/// The beginning and the end of the service, among others.
@Suite struct LifecycleTests {
    @Test func aShutdownEndsAPauseAtOnce() async throws {
        let clock = TurnedClock(until: .minutes(1))
        let provider = try IssuingProvider(clock, lifetime: .days(1))
        let service = RenewingIdentity(try provider.issue(), of: provider, clock.environment)
        let updates = service.updates
        await testGracefulShutdown { trigger in
            await withTaskGroup { group in
                group.addTask { await service.run() }
                await clock.untilEnd()
                trigger.triggerGracefulShutdown()
            }
        }
        var iterator = updates.makeAsyncIterator()
        _ = await iterator.next()
        #expect(await iterator.next() == nil, "the updates have ended")
    }

    @Test("A graceful shutdown lets a renewal that is under way finish")
    func aRenewalThatIsUnderWayComesToItsEnd() async throws {
        let clock = TurnedClock(until: .days(2))
        let provider = try IssuingProvider(clock, lifetime: .days(1))
        let asked = AsyncStream<Void>.makeStream()
        let answer = AsyncStream<Void>.makeStream()
        provider.answer { issued, _ in
            asked.continuation.yield()
            for await _ in answer.stream { break }
            return issued
        }
        let first = try provider.issue()
        let service = RenewingIdentity(first, of: provider, clock.environment)
        await testGracefulShutdown { trigger in
            await withTaskGroup { group in
                group.addTask { await service.run() }
                for await _ in asked.stream { break }
                #expect(await failure { try await service.renew() }?.code == .operationNotAllowed)
                trigger.triggerGracefulShutdown()
                answer.continuation.yield()
            }
        }
        #expect(service.current.certificate != first.certificate && provider.renewals.count == 1)
    }

    @Test("The service renews the identity of a LogonManager and shuts its provider down")
    func keepsTheIdentityOfAManager() async throws {
        let clock = TurnedClock(until: .days(2))
        let provider = try IssuingProvider(clock, lifetime: .days(1))
        let descriptor = ProviderDescriptor(id: provider.id, displayName: "", summary: "", parameters: []) { _, _ in
            provider
        }
        var parameters = ProviderParameters()
        parameters["renew-at"] = .init("50%")
        let manager = try LogonManager(
            configuration: LogonConfiguration(providers: [.init(id: provider.id, parameters: parameters)]),
            registry: try ProviderRegistry([descriptor]), now: { clock.wall }
        ) { _ in .testing() }
        let service = RenewingIdentity(
            try await manager.identity(NoUserInteraction()), of: manager, environment: clock.environment)
        #expect(provider.shutdowns == 0)
        await service.run(on: clock)
        // And lets go of what the manager's providers hold open.
        #expect(provider.shutdowns == 1)
        // The first was obtained, and then one each 10.8 to 12 hours.
        #expect((5...6).contains(provider.renewals.count), "\(provider.renewals)")
        #expect(provider.renewals.intervals.allSatisfy { (.hours(10.7)...(.hours(12.1))).contains($0) })
        #expect(try await manager.storedIdentity()?.certificate == service.current.certificate)
    }

    @Test("The service renews in a ServiceGroup and ends with the group's shutdown")
    func runsInAServiceGroup() async throws {
        let clock = TurnedClock(until: .days(1))
        let provider = try IssuingProvider(clock, lifetime: .days(1))
        let service = RenewingIdentity(try provider.issue(), of: provider, clock.environment)
        let group = ServiceGroup(services: [service], logger: clock.environment.logger)
        try await withThrowingTaskGroup { tasks in
            tasks.addTask { try await group.run() }
            await clock.untilEnd()
            #expect(provider.shutdowns == 0)
            await group.triggerGracefulShutdown()
            try await tasks.waitForAll()
        }
        #expect(provider.renewals.count == 1 && provider.shutdowns == 1)
    }
}
