import FoundationEssentials

/// Draws what 100,000 hosts ask of a server that gave them their certificates in the same minute.
@main
enum RenewalSimulation {
    private static let day = 86_400.0
    private static let blue = "#1f5fa8"
    private static let red = "#c0504d"

    static func main() throws {
        guard CommandLine.arguments.count == 2 else {
            print("usage: RenewalSimulation FILE.svg")
            return
        }
        let path = CommandLine.arguments[1]
        let short = outage(until: 22), long = outage(until: 33)
        let plots = [undisturbed, days(of: long), recovery(of: short, 22), recovery(of: long, 33)]
        try Data(Plot.page(plots).utf8).write(to: URL(filePath: path))
        print(path)
    }

    private static var undisturbed: Plot {
        let outcome = Population(lifetime: day, end: 3 * day, binWidth: 1).run()
        let means = outcome.renewals.summed(by: 300).map { $0 / 300 }
        return Plot(
            title: "100,000 hosts that enrolled in the same minute, with certificates for one day",
            remark: "Busiest second: \(outcome.renewals.max() ?? 0) renewals. They enrolled at 1,667 a second.",
            unit: "renewals a second", range: 0...72, labels: (6, "h"),
            series: [.init(name: "mean of 5 minutes", colour: blue, values: means)])
    }

    // MARK: - Certificates for 30 days, by the minute

    private static func outage(until end: Double) -> Population.Outcome {
        Population(lifetime: 30 * day, outage: 17 * day..<end * day, end: 40 * day, binWidth: 60).run()
    }

    private static func days(of outcome: Population.Outcome) -> Plot {
        func means(_ counts: [Int]) -> [Double] {
            Array(counts[(16 * 1440)..<(36 * 1440)]).summed(by: 60).map { $0 / 60 }
        }
        return Plot(
            title: "Certificates for 30 days, and a server that is down until 3 days after expiry",
            remark: "Mean of an hour.", unit: "per minute", range: 16...36, labels: (2, "d"), shaded: 17...33,
            mark: (30, "expiry"),
            series: [
                .init(name: "attempts", colour: red, values: means(outcome.attempts)),
                .init(name: "renewals", colour: blue, values: means(outcome.renewals)),
            ])
    }

    private static func recovery(of outcome: Population.Outcome, _ end: Int) -> Plot {
        let minutes = (end * 1440 - 60)..<(end * 1440 + 120)
        let expired = outcome.expired.max() ?? 0
        return Plot(
            title: "The server is back, \(end < 30 ? "before" : "after") expiry",
            remark: "Busiest minute: \(outcome.renewals.max() ?? 0) renewals. Hosts that were without a valid "
                + "certificate: \(expired).",
            unit: "per minute", range: -60...120, labels: (20, "min"), shaded: -60...0,
            series: [
                .init(name: "attempts", colour: red, values: outcome.attempts[minutes].map(Double.init)),
                .init(name: "renewals", colour: blue, values: outcome.renewals[minutes].map(Double.init)),
            ])
    }
}

extension [Int] {
    fileprivate func summed(by count: Int) -> [Double] {
        stride(from: 0, to: self.count, by: count).map {
            Double(self[$0..<Swift.min($0 + count, self.count)].reduce(0, +))
        }
    }
}
