import CertificateProviding

/// A table of text. Each column is as wide as its widest cell.
public struct TextTable: Sendable {
    private var rows: [[String]]

    /// Makes a table with a header row.
    public init(header: [String]) { rows = [header] }

    /// Adds a row, with an escape for each character that a terminal would act on, as by `DisplayText.visible`.
    public mutating func append(_ row: [String]) { rows.append(row.map(\.withVisibleControls)) }

    /// The table as text, with two spaces between columns and none at the end of a line.
    public var text: String {
        let columns = rows.map(\.count).max() ?? 0
        let widths = (0..<columns).map { column in rows.map { $0.count > column ? $0[column].count : 0 }.max() ?? 0 }
        return rows.map { row in
            let row = row[..<(row.lastIndex { !$0.isEmpty }.map { $0 + 1 } ?? 0)]
            let cells = row.enumerated().map { index, cell in
                index == row.count - 1 ? cell : cell + String(repeating: " ", count: widths[index] - cell.count)
            }
            return cells.joined(separator: "  ") + "\n"
        }.joined()
    }
}
