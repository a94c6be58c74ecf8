import CertificateProviding
import TestSupport
import Testing

@testable import Renewal

@Suite struct IdentityUpdatesTests {
    private let identities: [Identity]
    private let latest: LatestIdentity
    private var updates: IdentityUpdates { IdentityUpdates(latest: latest) }

    init() throws {
        let authority = try TestAuthority()
        identities = try (0..<4).map { try authority.issue("identity-\($0)") }
        latest = LatestIdentity(identities[0])
    }

    private func name(_ identity: Identity?) -> String? { identity?.provenance.alias }

    @Test("Every consumer of the updates gets the current identity first")
    func everyConsumerGetsTheCurrentOneFirst() async {
        var early = updates.makeAsyncIterator()
        #expect(name(await early.next()) == "identity-0")
        latest.publish(identities[1])
        var late = updates.makeAsyncIterator()
        #expect(name(await late.next()) == "identity-1")
        #expect(name(await early.next()) == "identity-1")
    }

    @Test func aSlowConsumerGetsTheNewest() async {
        var iterator = updates.makeAsyncIterator()
        _ = await iterator.next()
        for identity in identities.dropFirst() { latest.publish(identity) }
        #expect(name(await iterator.next()) == "identity-3")
    }

    @Test("All consumers that wait at the same time get the new identity")
    func manyWaitAtTheSameTime() async {
        let updates = updates
        let begun = AsyncStream<Void>.makeStream()
        let tasks = (0..<50).map { _ in
            Task {
                var names: [String] = []
                for await identity in updates {
                    names.append(identity.provenance.alias ?? "")
                    if names.count == 1 { begun.continuation.yield() }
                }
                return names
            }
        }
        var count = 0
        for await _ in begun.stream {
            count += 1
            if count == tasks.count { break }
        }
        latest.publish(identities[3])
        latest.finish()
        for task in tasks {
            let names = await task.value
            #expect(names == ["identity-0", "identity-3"])
        }
    }

    @Test func aCancelledConsumerEnds() async {
        let updates = updates
        let begun = AsyncStream<Void>.makeStream()
        let task = Task {
            for await _ in updates { begun.continuation.yield() }
            return true
        }
        for await _ in begun.stream { break }
        task.cancel()
        #expect(await task.value)
    }

    @Test("A consumer that begins after the end of the updates gets the last identity")
    func afterTheEndThereIsStillTheLast() async {
        latest.finish()
        var iterator = updates.makeAsyncIterator()
        #expect(name(await iterator.next()) == "identity-0")
        #expect(await iterator.next() == nil)
    }
}
