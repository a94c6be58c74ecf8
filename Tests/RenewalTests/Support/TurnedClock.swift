import CertificateProviding
import FoundationEssentials
import Logging
import Synchronization

@testable import Renewal

/// The clocks of one host. Time passes only when a task sleeps, and then at once.
final class TurnedClock: Sendable {
    /// An event on the host after a certain uptime.
    enum Event: Sendable {
        /// The machine is suspended: both clocks go on, and a sleep does not.
        case suspension(at: Duration, Duration)
        /// The wall clock is set.
        case step(at: Duration, Duration)

        var time: Duration {
            switch self {
            case .suspension(let time, _), .step(let time, _): time
            }
        }
    }

    private struct State {
        var uptime = Duration.zero
        /// By how much the wall clock is ahead of the truth.
        var error = Duration.zero
        var events: [Event] = []
        var sleeps: [Duration] = []
    }
    private let state: Mutex<State>
    private let end: Duration
    private let ended = AsyncStream<Void>.makeStream()
    static let start = Date(timeIntervalSince1970: 1_800_000_000)

    init(until end: Duration, _ events: [Event] = []) {
        self.end = end
        state = Mutex(State(events: events.sorted { $0.time < $1.time }))
    }

    var uptime: Duration { state.withLock { $0.uptime } }
    /// The time of authorities.
    var truth: Date { Self.start.addingTimeInterval(uptime / .seconds(1)) }
    var wall: Date { truth.addingTimeInterval(state.withLock { $0.error } / .seconds(1)) }
    var sleeps: [Duration] { state.withLock { $0.sleeps } }

    var environment: RenewalEnvironment {
        var environment = RenewalEnvironment(logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        environment.now = { self.wall }
        environment.uptime = { self.uptime }
        environment.random = { 0.5 }
        environment.sleep = { try await self.sleep($0) }
        return environment
    }

    /// Waits until the time that was given at the beginning has come.
    func untilEnd() async { for await _ in ended.stream { return } }

    private func sleep(_ duration: Duration) async throws {
        let isOver = state.withLock { state in
            state.sleeps.append(duration)
            var target = state.uptime + duration
            while let event = state.events.first, event.time <= target {
                state.events.removeFirst()
                switch event {
                case .step(_, let step): state.error += step
                case .suspension(_, let length): target += length
                }
            }
            state.uptime = target
            return state.uptime >= end
        }
        guard isOver else { return await Task.yield() }
        ended.continuation.yield()
        // No further event comes until the task is cancelled.
        for await _ in AsyncStream<Never>(unfolding: { await Self.cancellation() }) {}
        throw CancellationError()
    }

    private static func cancellation() async -> Never? {
        let stream = AsyncStream<Never>.makeStream()
        for await _ in stream.stream {}
        return nil
    }
}

extension RenewingIdentity {
    /// Runs until the clock's time is over.
    func run(on clock: TurnedClock) async {
        await withTaskGroup { group in
            group.addTask { await self.run() }
            await clock.untilEnd()
            group.cancelAll()
        }
    }
}
