package import CoreMetrics

/// Adds the label `identity` to each metric: several identities of one provider are apart by it.
package struct LabelledMetrics: MetricsFactory {
    private let base: any MetricsFactory
    private let identity: String

    package init(_ base: any MetricsFactory, identity: String) { (self.base, self.identity) = (base, identity) }

    private func labelled(_ dimensions: [(String, String)]) -> [(String, String)] {
        [("identity", identity)] + dimensions
    }
    package func makeCounter(label: String, dimensions: [(String, String)]) -> any CounterHandler {
        base.makeCounter(label: label, dimensions: labelled(dimensions))
    }
    package func makeFloatingPointCounter(
        label: String, dimensions: [(String, String)]
    ) -> any FloatingPointCounterHandler {
        base.makeFloatingPointCounter(label: label, dimensions: labelled(dimensions))
    }
    package func makeMeter(label: String, dimensions: [(String, String)]) -> any MeterHandler {
        base.makeMeter(label: label, dimensions: labelled(dimensions))
    }
    package func makeRecorder(label: String, dimensions: [(String, String)], aggregate: Bool) -> any RecorderHandler {
        base.makeRecorder(label: label, dimensions: labelled(dimensions), aggregate: aggregate)
    }
    package func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler {
        base.makeTimer(label: label, dimensions: labelled(dimensions))
    }
    package func destroyCounter(_ handler: any CounterHandler) { base.destroyCounter(handler) }
    package func destroyFloatingPointCounter(_ handler: any FloatingPointCounterHandler) {
        base.destroyFloatingPointCounter(handler)
    }
    package func destroyMeter(_ handler: any MeterHandler) { base.destroyMeter(handler) }
    package func destroyRecorder(_ handler: any RecorderHandler) { base.destroyRecorder(handler) }
    package func destroyTimer(_ handler: any TimerHandler) { base.destroyTimer(handler) }
}
