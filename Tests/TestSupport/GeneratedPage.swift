public import Foundation

/// A page of the documentation whose tables come from the code. CERTPROV_TEST_PAGES=write writes them anew.
public struct GeneratedPage {
    /// The page as it must be.
    public let text: String
    /// Whether the page is so.
    public let isCurrent: Bool
    /// The headings with their marks, such as `## Subcommands`.
    public let headings: [String]

    /// - Parameters:
    ///   - name: The path in the repository.
    ///   - tables: The lines of the first table below each of these headings.
    public init(_ name: String, tables: [String: [String]]) throws {
        let file = Self.root.appending(path: name)
        let found = try String(contentsOf: file, encoding: .utf8)
        var lines: [String] = []
        var headings: [String] = []
        var rest = tables
        var isInCode = false
        // Of the table that is being replaced.
        var isReplacing = false
        for line in found.components(separatedBy: "\n") {
            if line.hasPrefix("```") { isInCode.toggle() }
            if !isInCode, line.hasPrefix("#") { headings.append(line) }
            if !isInCode, line.hasPrefix("|") {
                if isReplacing { continue }
                if let heading = headings.last, let table = rest.removeValue(forKey: heading) {
                    lines += table
                    isReplacing = true
                    continue
                }
            } else {
                isReplacing = false
            }
            lines.append(line)
        }
        text = lines.joined(separator: "\n")
        self.headings = headings
        let writes = ProcessInfo.processInfo.environment["CERTPROV_TEST_PAGES"] == "write"
        if writes { try text.write(to: file, atomically: true, encoding: .utf8) }
        isCurrent = writes || found == text
    }

    /// The repository.
    public static let root = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../..").standardized
}
