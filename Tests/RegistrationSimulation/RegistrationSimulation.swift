import CertificateProviding
import Glibc
import TestSupport

/// Registers many hosts of this process with one server, which is killed when half of them are registered, and started again
/// when a number of the others have given up. These begin anew. In the end each host is registered once.
@main
struct RegistrationSimulation {
    private static let atOnce = 64

    private let server: ReferenceServer
    private let hosts: [SimulatedHost]
    private let clock = ContinuousClock()

    static func main() async {
        guard CommandLine.arguments.count == 3, let count = Int(CommandLine.arguments[2]), count >= 2 * atOnce else {
            print("usage: RegistrationSimulation PLATFORM-SERVER HOSTS, at least \(2 * atOnce) of them")
            exit(64)
        }
        // A connection may end while it is written to.
        signal(SIGPIPE, SIG_IGN)
        do { try await simulate(CommandLine.arguments[1], count) } catch {
            print("RegistrationSimulation: \(error)")
            exit(1)
        }
    }

    private static func simulate(_ program: String, _ count: Int) async throws {
        let directory = try TemporaryDirectory()
        let authority = try TestAuthority()
        let server = try ReferenceServer(program, authority, in: directory)
        let site = try SimulatedHost.Site(server, authority, in: directory)
        try await RegistrationSimulation(server: server, hosts: (0..<count).map { SimulatedHost($0, site) }).run()
    }

    private enum Event { case registered, failed }

    /// The outcome of the registrations.
    private struct Outcome {
        var registered = 0
        var failures = 0
        var untilKill = Duration.zero
        var outage = Duration.zero
        var whole = Duration.zero
    }

    private init(server: ReferenceServer, hosts: [SimulatedHost]) { (self.server, self.hosts) = (server, hosts) }

    private func run() async throws {
        let outcome = try await register()
        let (use, own) = (server.use, Self.processorTime)
        try await check()
        let count = hosts.count
        func number(_ value: Double) -> String { "\((value * 10).rounded() / 10)" }
        print(
            """
            \(count) hosts, \(Self.atOnce) at a time: each is registered once, with a connection of its own
              \(number(Double(count / 2) / outcome.untilKill.seconds)) registrations a second until the server was killed, \
            \(number(Double(count) / (outcome.whole - outcome.outage).seconds)) without the outage
              the outage: \(number(outcome.outage.seconds)) s, \(outcome.failures) registrations failed and were repeated
              the server: \(number(Double(use.peakMemory) / 1024)) MiB at most, \
            \(number(use.processorTime / Double(count) * 1e3)) ms of processor time for a registration; \
            the host: \(number(own / Double(count) * 1e3)) ms
            """)
    }

    private func register() async throws -> Outcome {
        let (events, sink) = AsyncStream<Event>.makeStream()
        let start = clock.now
        return try await withThrowingTaskGroup(of: Outcome?.self) { tasks in
            tasks.addTask { try await follow(events, since: start) }
            let next = SharedCounter()
            for _ in 0..<Self.atOnce {
                tasks.addTask {
                    while let number = next.take(below: hosts.count) { try await register(hosts[number], sink) }
                    return nil
                }
            }
            var outcome: Outcome?
            for try await result in tasks { if let result { outcome = result } }
            guard var outcome else { throw Failure("the simulation has no end") }
            outcome.whole = start.duration(to: clock.now)
            return outcome
        }
    }

    /// Registers a host, as often as it takes.
    private func register(_ host: SimulatedHost, _ sink: AsyncStream<Event>.Continuation) async throws {
        for _ in 0..<100 {
            do throws(CertificateProviderError) {
                try await host.register()
                sink.yield(.registered)
                return
            } catch {
                guard error.code == .unavailable else { throw error }
                sink.yield(.failed)
            }
            // Its supervisor starts it again after a while, and not all hosts at the same time.
            try await Task.sleep(for: .seconds(Double.random(in: 0.5...1.5)))
        }
        throw Failure("host \(host.number) cannot be registered")
    }

    /// Kills and starts the server in the middle.
    private func follow(_ events: AsyncStream<Event>, since start: ContinuousClock.Instant) async throws -> Outcome {
        var outcome = Outcome()
        var killed: ContinuousClock.Instant?
        for await event in events {
            switch event {
            case .registered: outcome.registered += 1
            case .failed: outcome.failures += 1
            }
            if outcome.registered == hosts.count { break }
            if killed == nil, outcome.registered == hosts.count / 2 {
                outcome.untilKill = start.duration(to: clock.now)
                server.kill()
                killed = clock.now
            }
            if let since = killed, outcome.outage == .zero, outcome.failures >= Self.atOnce / 2 {
                try server.start()
                outcome.outage = since.duration(to: clock.now)
            }
        }
        guard outcome.outage > .zero else { throw Failure("the server was not started again") }
        return outcome
    }

    /// Asks the server, as each host and as its administrator.
    private func check() async throws {
        let next = SharedCounter()
        let connections = try await withThrowingTaskGroup(of: [String].self) { tasks in
            for _ in 0..<Self.atOnce {
                tasks.addTask {
                    var connections: [String] = []
                    while let number = next.take(below: hosts.count) {
                        connections.append(try await hosts[number].greet())
                    }
                    return connections
                }
            }
            return try await tasks.reduce(into: Set<String>()) { $0.formUnion($1) }
        }
        let onServer = try await server.connections()
        guard connections.count == hosts.count, onServer == hosts.count else {
            throw Failure("\(hosts.count) hosts have \(connections.count) connections, and the server has \(onServer)")
        }
    }

    /// The processor time of this process, in seconds.
    private static var processorTime: Double {
        var usage = rusage()
        getrusage(RUSAGE_SELF.rawValue, &usage)
        return [usage.ru_utime, usage.ru_stime].reduce(0) { $0 + Double($1.tv_sec) + Double($1.tv_usec) / 1e6 }
    }
}

extension Duration {
    fileprivate var seconds: Double { self / .seconds(1) }
}
