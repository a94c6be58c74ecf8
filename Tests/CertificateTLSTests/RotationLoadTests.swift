import CertificateProviding
import Foundation
import Synchronization
import TestSupport
import Testing

@testable import CertificateTLS

/// A service under load while its identity, trust anchors and revocation lists change.
@Suite(.timeLimit(.minutes(60))) struct RotationLoadTests {
    private enum Age: CaseIterable { case old, new }
    private enum Client: CaseIterable {
        /// Of the old CA, the new CA, the old CA with a certificate that some lists have, and of neither.
        case old, new, revoked, stranger
    }

    /// The contents of the files of the server.
    private struct Phase {
        var trusted: [Age]
        var isRevoked: Bool
        /// The fingerprint of its identity.
        var server: String

        func permits(_ client: Client) -> Bool {
            switch client {
            case .old: trusted.contains(.old)
            case .new: trusted.contains(.new)
            case .revoked: trusted.contains(.old) && !isRevoked
            case .stranger: false
            }
        }
    }

    /// The phases, and the connections in them.
    private final class Timeline: Sendable {
        private struct State {
            var phases: [Phase]
            /// The first phase that may be in force.
            var first = 0
            /// The connections that were made while one phase was in force all the time, of each client.
            var counts: [Client: Int] = [:]
            var total = 0
            var unexpected: String?
            var isOver = false
        }
        private let state: Mutex<State>

        init(_ first: Phase) { state = Mutex(State(phases: [first])) }

        var isOver: Bool { state.withLock { $0.isOver || $0.unexpected != nil } }
        var unexpected: String? { state.withLock(\.unexpected) }
        var total: Int { state.withLock(\.total) }

        func end() { state.withLock { $0.isOver = true } }

        /// From now on, the phase before and this one may be in force.
        func change(to phase: Phase) {
            state.withLock { state in
                state.phases.append(phase)
                state.counts = [:]
            }
        }

        /// From now on, only the last phase is in force.
        func settle() {
            state.withLock { state in
                state.first = state.phases.count - 1
                state.counts = [:]
            }
        }

        /// Makes a connection of a client, and compares its result with the phases that it was made in.
        ///
        /// - Parameter connect: Returns the fingerprint of the server.
        func note(_ client: Client, _ connect: () async throws -> String) async {
            let first = state.withLock(\.first)
            let outcome: Result<String, any Error>
            do { outcome = .success(try await connect()) } catch { outcome = .failure(error) }
            state.withLock { state in
                let phases = state.phases[first...]
                let isExpected = phases.contains { phase in
                    switch outcome {
                    case .success(let server): phase.permits(client) && phases.contains { $0.server == server }
                    case .failure: !phase.permits(client)
                    }
                }
                if !isExpected {
                    state.unexpected = state.unexpected ?? "\(client) in the phases \(Array(phases)): \(outcome)"
                }
                state.total += 1
                if phases.count == 1 { state.counts[client, default: 0] += 1 }
            }
        }

        /// Waits until each client has made so many connections in this phase.
        func wait(for count: Int) async throws {
            while !isOver,
                !state.withLock({ state in Client.allCases.allSatisfy { state.counts[$0, default: 0] >= count } })
            {
                try await Task.sleep(for: .milliseconds(2))
            }
        }
    }

    @Test(
        "Through twenty rotations, no connection that the files permit is refused, and none that they forbid is accepted",
        .enabled(if: TestLength.hasSeconds, "it takes seconds"))
    func rotationsUnderLoad() async throws {
        let (old, new) = (try ListingAuthority(), try ListingAuthority())
        let servers = [try old.issue("server"), try new.issue("server")]
        let stranger = try TestAuthority()
        var identities: [(Client, Identity)] = [(.old, try old.issue("client")), (.new, try new.issue("client"))]
        identities += [(.revoked, try old.issue("revoked")), (.stranger, try stranger.issue("stranger"))]
        let others = try old.list("root") + new.list("root") + new.list("issuing")
        let clean = try old.list("issuing") + others
        try old.revoke("revoked")
        let revoking = try old.list("issuing") + others
        let both = [old.root, new.root]

        let timeline = Timeline(Phase(trusted: [.old, .new], isRevoked: false, server: servers[0].fingerprint))
        let host = try await RotatingHost(presenting: servers[0], trusting: both) { directory in
            try directory.write(clean, to: "lists.pem")
            return RevocationLists(path: directory["lists.pem"])
        }
        var clients: [(Client, RotatingHost)] = []
        for (client, identity) in identities {
            clients.append((client, try await RotatingHost(presenting: identity, trusting: both)))
        }
        let sets: [[Age]] = [[.new], [.new, .old], [.old], [.old, .new]]
        try await withEventLoops { group in
            try await host.serve(on: group) { port in
                try await withThrowingTaskGroup(of: Void.self) { tasks in
                    // Before the group waits for its tasks, also when something throws.
                    defer { timeline.end() }
                    for (client, peer) in clients {
                        tasks.addTask {
                            while !timeline.isOver {
                                await timeline.note(client) {
                                    let met = try await peer.connect(port: port, on: group)
                                    #expect(met.message == peer.tls.identity.fingerprint)
                                    return met.server
                                }
                            }
                        }
                    }
                    for round in 0..<20 {
                        let (trusted, server) = (sets[round % sets.count], servers[(round + 1) % 2])
                        let phase = Phase(
                            trusted: trusted, isRevoked: round / 4 % 2 == 0, server: server.fingerprint)
                        timeline.change(to: phase)
                        try host.directory.write(phase.isRevoked ? revoking : clean, to: "lists.pem")
                        try await host.tls.update(to: server)
                        // A server looks each three seconds: two looks are made within ten.
                        try await host.trust(trusted.map { $0 == .old ? old.root : new.root })
                        timeline.settle()
                        try await clients[round % clients.count].1.trust(round % 8 < 4 ? both.reversed() : both)
                        try await timeline.wait(for: TestLength.rounds(10, soak: 250))
                    }
                }
            }
        }
        #expect(timeline.unexpected == nil)
        #expect(timeline.total >= 20 * 4 * TestLength.rounds(10, soak: 250))
        #expect(host.refusals("untrusted") > 0 && host.refusals("revoked") > 0)
        #expect(!host.isStale)
    }
}
