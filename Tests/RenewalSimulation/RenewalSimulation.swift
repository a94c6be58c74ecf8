import FoundationEssentials

/// Draws what 100,000 hosts ask of a server that gave them their certificates in the same minute.
@main
enum RenewalSimulation {
    private static let hour = 3600.0
    private static let day = 86_400.0

    static func main() throws {
        guard CommandLine.arguments.count == 2 else {
            print("usage: RenewalSimulation FILE.svg")
            return
        }
        let path = CommandLine.arguments[1]
        try Data(Plot.page([undisturbed, outageBeforeExpiry, outageBeyondExpiry]).utf8).write(to: URL(filePath: path))
        print(path)
    }

    private static var undisturbed: Plot {
        let population = Population(lifetime: day, end: 3 * day, binWidth: 1)
        let outcome = population.run()
        let busiest = outcome.renewals.max() ?? 0
        return Plot(
            title: "Certificates for one day: 100,000 hosts that enrolled in the same minute",
            remark: "Busiest second: \(busiest) renewals. All at once would be 1,667 a second.",
            unit: "renewals a second", range: 0...72, labels: (6, "h"), shaded: nil,
            series: [
                .init(
                    name: "mean of a minute", colour: "#1f5fa8", values: outcome.renewals.summed(by: 60).map { $0 / 60 }
                )
            ])
    }

    private static var outageBeforeExpiry: Plot {
        outage(
            17 * day..<22 * day, "Certificates for 30 days: the server is down for 5 days, and back before expiry",
            to: 30)
    }

    private static var outageBeyondExpiry: Plot {
        outage(
            17 * day..<33 * day, "Certificates for 30 days: the server is down until 3 days after expiry", to: 40)
    }

    private static func outage(_ outage: Range<Double>, _ title: String, to days: Double) -> Plot {
        let population = Population(lifetime: 30 * day, outage: outage, end: days * day, binWidth: 60)
        let outcome = population.run()
        let busiest = outcome.renewals.max() ?? 0
        let expired = outcome.expired.max() ?? 0
        return Plot(
            title: title,
            remark: "Busiest minute: \(busiest) renewals. Hosts without a valid certificate: \(expired) at most.",
            unit: "per minute", range: 14...days, labels: (2, "d"),
            shaded: outage.lowerBound / day...outage.upperBound / day,
            series: [
                .init(
                    name: "attempts", colour: "#c0504d",
                    values: outcome.attempts.from(14 * day / 60).summed(by: 30).map { $0 / 30 }),
                .init(
                    name: "renewals", colour: "#1f5fa8",
                    values: outcome.renewals.from(14 * day / 60).summed(by: 30).map { $0 / 30 }),
            ])
    }
}

extension [Int] {
    fileprivate func from(_ index: Double) -> [Int] { Array(dropFirst(Int(index))) }

    fileprivate func summed(by count: Int) -> [Double] {
        stride(from: 0, to: self.count, by: count).map {
            Double(self[$0..<Swift.min($0 + count, self.count)].reduce(0, +))
        }
    }
}
