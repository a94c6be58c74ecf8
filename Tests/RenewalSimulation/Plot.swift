/// A diagram of counts over time, as SVG.
struct Plot {
    struct Series {
        var name: String
        var colour: String
        var values: [Double]
    }

    var title: String
    /// Under the title.
    var remark: String
    var unit: String
    /// Of the horizontal axis, in units of its labels.
    var range: ClosedRange<Double>
    var labels: (every: Double, unit: String)
    /// The range that is marked as an outage.
    var shaded: ClosedRange<Double>?
    /// A moment, and what it is.
    var mark: (Double, String)?
    var series: [Series]

    static let width = 900.0
    static let height = 300.0
    private let left = 80.0
    private let right = 40.0
    private let top = 62.0
    private let bottom = 40.0

    /// - Parameter offset: Where the diagram begins, from the top of the page.
    func svg(at offset: Double) -> String {
        let highest = Self.roundedUp(series.flatMap(\.values).max() ?? 1)
        func x(_ value: Double) -> Double {
            left + (value - range.lowerBound) / (range.upperBound - range.lowerBound) * (Self.width - left - right)
        }
        func y(_ value: Double) -> Double { Self.height - bottom - value / highest * (Self.height - top - bottom) }
        var lines = ["<g transform='translate(0,\(offset))'>"]
        lines.append("<text x='\(left)' y='20' class='title'>\(title)</text>")
        lines.append("<text x='\(left)' y='38'>\(remark)</text>")
        if let shaded {
            let (from, to) = (x(shaded.lowerBound), x(shaded.upperBound))
            lines.append("<rect x='\(from)' y='\(top)' width='\(to - from)' height='\(y(0) - top)' class='outage'/>")
            lines.append("<text x='\((from + to) / 2)' y='\(top - 6)' text-anchor='middle'>server down</text>")
        }
        if let (moment, name) = mark {
            lines.append("<line x1='\(x(moment))' x2='\(x(moment))' y1='\(top)' y2='\(y(0))' class='mark'/>")
            lines.append("<text x='\(x(moment))' y='\(top - 6)' text-anchor='middle'>\(name)</text>")
        }
        for step in 0...4 {
            let value = highest * Double(step) / 4
            lines.append(
                "<line x1='\(left)' x2='\(Self.width - right)' y1='\(y(value))' y2='\(y(value))' class='grid'/>")
            lines.append("<text x='\(left - 6)' y='\(y(value) + 4)' text-anchor='end'>\(Self.number(value))</text>")
        }
        lines.append(
            "<text transform='translate(16,\((top + y(0)) / 2)) rotate(-90)' text-anchor='middle'>\(unit)</text>")
        var label = (range.lowerBound / labels.every).rounded(.up) * labels.every
        while label <= range.upperBound {
            let text = "\(Self.number(label)) \(labels.unit)"
            lines.append("<line x1='\(x(label))' x2='\(x(label))' y1='\(y(0))' y2='\(y(0) + 4)' class='axis'/>")
            lines.append("<text x='\(x(label))' y='\(y(0) + 18)' text-anchor='middle'>\(text)</text>")
            label += labels.every
        }
        for (index, series) in series.enumerated() {
            let step = (range.upperBound - range.lowerBound) / Double(max(1, series.values.count))
            let points = series.values.enumerated().map { index, value in
                "\(Self.number(x(range.lowerBound + (Double(index) + 0.5) * step))),\(Self.number(y(value)))"
            }
            lines.append("<polyline points='\(points.joined(separator: " "))' stroke='\(series.colour)'/>")
            let position = Self.width - right - 130.0 * Double(self.series.count - index)
            lines.append("<rect x='\(position)' y='29' width='10' height='10' fill='\(series.colour)'/>")
            lines.append("<text x='\(position + 15)' y='38'>\(series.name)</text>")
        }
        return (lines + ["</g>"]).joined(separator: "\n")
    }

    static func page(_ plots: [Plot]) -> String {
        let height = Double(plots.count) * Self.height
        let style = """
            text { font: 12px sans-serif; fill: #333 } .title { font-size: 15px; font-weight: bold }
            polyline { fill: none; stroke-width: 1.2; stroke-linejoin: round } .grid { stroke: #ddd }
            .axis { stroke: #333 } .outage { fill: #f6e6e6 } .mark { stroke: #333; stroke-dasharray: 4 3 }
            """
        let drawings = plots.enumerated().map { $1.svg(at: Double($0) * Self.height) }
        return """
            <svg xmlns='http://www.w3.org/2000/svg' width='\(width)' height='\(height)' viewBox='0 0 \(width) \(height)'>
            <style>\(style)</style>
            <rect width='100%' height='100%' fill='white'/>
            \(drawings.joined(separator: "\n"))
            </svg>

            """
    }

    /// 1, 2 or 4 times a power of ten: what four lines divide well.
    private static func roundedUp(_ value: Double) -> Double {
        var power = 1.0
        while power * 10 < value { power *= 10 }
        return [1.0, 2, 4, 10].map { $0 * power }.first { $0 >= value } ?? value
    }

    private static func number(_ value: Double) -> String {
        let tenths = (value * 10).rounded() / 10
        return tenths == tenths.rounded() ? String(Int(tenths)) : String(tenths)
    }
}
