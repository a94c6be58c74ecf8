public import CoreMetrics
public import FoundationEssentials
public import Logging

/// What a ``RenewingIdentity`` uses of the world around it, so that tests can turn its clocks.
public struct RenewalEnvironment: Sendable {
    /// The wall clock, which certificates are judged by. It may be set at any time.
    public var now: @Sendable () -> Date
    /// The time since some fixed moment, that in which the machine was suspended included. Nobody can set it.
    public var uptime: @Sendable () -> Duration
    /// Waits for about that long; a machine that is suspended meanwhile may add any time to it. Throws when the task is
    /// cancelled.
    public var sleep: @Sendable (Duration) async throws -> Void
    /// Returns a number from 0 to 1, without 1.
    public var random: @Sendable () -> Double
    public var metrics: any MetricsFactory
    public var logger: Logger

    /// The clocks, the randomness and the metrics of this process.
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

/// One moment on both clocks.
package struct Moment: Sendable {
    package let wall: Date
    package let uptime: Duration

    package init(wall: Date, uptime: Duration) {
        self.wall = wall
        self.uptime = uptime
    }
}
