package import CertificateProviding
package import CoreMetrics
package import FoundationEssentials
import Renewal
import Synchronization

/// The metrics of a process, as text for Prometheus and its kin (exposition format 0.0.4).
///
/// Counters and gauges of swift-metrics count; the other kinds do nothing.
package final class HostMetrics: MetricsFactory {
    private struct Series: Hashable {
        let name: String
        let labels: [String]
    }
    private struct Entry {
        var isCounter: Bool
        var value: Double
    }
    private let entries = Mutex<[Series: Entry]>([:])

    package init() {}

    /// Returns a factory whose metrics have the label `identity`.
    package func of(identity: String) -> any MetricsFactory {
        LabelledMetrics(self, identity: identity)
    }

    /// Records an identity, and when it is renewed, as a service that renews it does.
    package static func record(_ identity: Identity, renewedAt date: Date, to factory: any MetricsFactory) {
        let metrics = RenewalMetrics(identity.provenance.provider, factory: factory)
        metrics.presents(identity)
        metrics.plans(attemptAt: date)
    }

    /// Removes the metrics of an identity.
    package func remove(identity: String) {
        let label = Self.label(("identity", identity))
        entries.withLock { entries in entries = entries.filter { !$0.key.labels.contains(label) } }
    }

    /// One line a metric, in the order of their names.
    package var text: String {
        let all = entries.withLock(\.self).sorted {
            ($0.key.name, $0.key.labels.joined()) < ($1.key.name, $1.key.labels.joined())
        }
        var lines: [String] = []
        var last: String?
        for (series, entry) in all {
            if series.name != last { lines.append("# TYPE \(series.name) \(entry.isCounter ? "counter" : "gauge")") }
            last = series.name
            let labels = series.labels.isEmpty ? "" : "{\(series.labels.joined(separator: ","))}"
            // Seconds and counts: 1790000000, and not 1.79e+09.
            let value = Int64(exactly: entry.value).map(String.init) ?? "\(entry.value)"
            lines.append("\(series.name)\(labels) \(value)")
        }
        return lines.map { $0 + "\n" }.joined()
    }

    private static func label(_ dimension: (String, String)) -> String {
        let value = dimension.1.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"").replacing("\n", with: "\\n")
        return "\(dimension.0)=\"\(value)\""
    }

    fileprivate final class Handle: CounterHandler, FloatingPointCounterHandler, RecorderHandler, MeterHandler {
        let book: HostMetrics
        private let series: Series
        private let isCounter: Bool

        init(_ book: HostMetrics, _ name: String, _ dimensions: [(String, String)], isCounter: Bool) {
            (self.book, self.isCounter) = (book, isCounter)
            series = Series(name: name, labels: dimensions.map(HostMetrics.label))
        }

        private func change(_ body: (inout Double) -> Void) {
            book.entries.withLock { body(&$0[series, default: Entry(isCounter: isCounter, value: 0)].value) }
        }
        func increment(by amount: Int64) { change { $0 += Double(amount) } }
        func increment(by amount: Double) { change { $0 += amount } }
        func decrement(by amount: Double) { change { $0 -= amount } }
        func reset() { change { $0 = 0 } }
        func record(_ value: Int64) { change { $0 = Double(value) } }
        func record(_ value: Double) { change { $0 = value } }
        func set(_ value: Int64) { record(value) }
        func set(_ value: Double) { record(value) }
        func destroy() { _ = book.entries.withLock { $0.removeValue(forKey: series) } }
    }

    package func makeCounter(label: String, dimensions: [(String, String)]) -> any CounterHandler {
        Handle(self, label, dimensions, isCounter: true)
    }
    package func makeFloatingPointCounter(
        label: String, dimensions: [(String, String)]
    ) -> any FloatingPointCounterHandler {
        Handle(self, label, dimensions, isCounter: true)
    }
    package func makeMeter(label: String, dimensions: [(String, String)]) -> any MeterHandler {
        Handle(self, label, dimensions, isCounter: false)
    }
    package func makeRecorder(label: String, dimensions: [(String, String)], aggregate: Bool) -> any RecorderHandler {
        aggregate ? NOOPMetricsHandler.instance : Handle(self, label, dimensions, isCounter: false)
    }
    package func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler {
        NOOPMetricsHandler.instance
    }
    // A counter goes on after its handle, which is made at each event.
    package func destroyCounter(_ handler: any CounterHandler) {}
    package func destroyFloatingPointCounter(_ handler: any FloatingPointCounterHandler) {}
    package func destroyMeter(_ handler: any MeterHandler) { (handler as? Handle)?.destroy() }
    package func destroyRecorder(_ handler: any RecorderHandler) { (handler as? Handle)?.destroy() }
    package func destroyTimer(_ handler: any TimerHandler) {}
}
