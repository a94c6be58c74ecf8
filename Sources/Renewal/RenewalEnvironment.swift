public import CoreMetrics
package import FoundationEssentials
public import Logging

/// The clocks, randomness, metrics and log of a ``RenewingIdentity``, replaceable in tests.
public struct RenewalEnvironment: Sendable {
    /// The wall clock, which the validity of certificates depends on. It may be set at any time.
    package var now: @Sendable () -> Date
    /// The time since a fixed moment, including the time in which the machine was suspended. It cannot be set.
    package var uptime: @Sendable () -> Duration
    /// Waits for about this duration, longer if the machine is suspended. Throws if the task is cancelled.
    package var sleep: @Sendable (Duration) async throws -> Void
    /// Waits between two looks at the store. Throws if the task is cancelled.
    package var look: @Sendable (Duration) async throws -> Void = { try await Task.sleep(for: $0) }
    /// Returns a random number from 0 to 1, excluding 1.
    package var random: @Sendable () -> Double
    /// The factory of the metrics.
    public var metrics: any MetricsFactory
    /// The log of the service.
    public var logger: Logger

    /// Creates an environment with the clocks, randomness and metrics of this process.
    public init(metrics: any MetricsFactory = MetricsSystem.factory, logger: Logger = Logger(label: "certprov.renewal"))
    {
        let clock = ContinuousClock()
        let start = clock.now
        now = { Date() }
        uptime = { start.duration(to: clock.now) }
        sleep = { try await Task.sleep(for: $0, clock: clock) }
        random = { Double.random(in: 0..<1) }
        self.metrics = metrics
        self.logger = logger
    }

    var moment: Moment { Moment(wall: now(), uptime: uptime()) }
}

/// A moment on both clocks.
package struct Moment: Sendable {
    package let wall: Date
    package let uptime: Duration

    package init(wall: Date, uptime: Duration) {
        self.wall = wall
        self.uptime = uptime
    }
}
