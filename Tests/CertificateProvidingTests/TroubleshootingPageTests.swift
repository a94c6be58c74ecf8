import Foundation
import Testing

/// Compares `Documentation/Troubleshooting.md` with the error codes and the exit statuses of the source, which is read as
/// text: codes cannot be enumerated at run time, and the exit statuses are in a program.
struct TroubleshootingPageTests {
    @Test func eachCodeHasOneRowWithItsExitStatusAndALinkToItsSection() throws {
        let statuses = try Self.exitStatuses()
        let rows = try Self.text("Documentation/Troubleshooting.md")
            .matches(of: /(?m)^\| \[`(\w+)`\]\(#(\w+)\) \| (\d+) \|/)
        #expect(rows.map { String($0.1) }.sorted() == statuses.keys.sorted())
        for (_, code, anchor, status) in rows.map(\.output) {
            #expect(Int(status) == statuses[String(code)], "the exit status of \(code)")
            #expect(anchor == code.lowercased(), "the link of \(code)")
        }
    }

    /// The heading of such a section is the code and nothing else; that of a symptom begins with a capital letter.
    @Test func eachCodeHasOneSection() throws {
        let headings = try Self.text("Documentation/Troubleshooting.md").matches(of: /(?m)^## ([a-z]\S*)$/)
        #expect(headings.map { String($0.1) }.sorted() == (try Self.exitStatuses()).keys.sorted())
    }

    /// The exit status of each code, also of that which only the command uses.
    private static func exitStatuses() throws -> [String: Int] {
        let definition = /static let `?(\w+)`? = Self\(rawValue: "(\w+)"\)/
        let source = try text("Sources/certprov/ExitStatus.swift")
        let core = try text("Sources/CertificateProviding/CertificateProviderError.swift")
        let codes = (core + source).matches(of: definition).map(\.output)
        try #require(codes.count > 20 && codes.allSatisfy { $0.1 == $0.2 })

        let numbers = Dictionary(
            uniqueKeysWithValues: source.matches(of: /case `?(\w+)`? = (\d+)/).map { (String($0.1), Int($0.2)) })
        let names = Dictionary(
            uniqueKeysWithValues: source.matches(of: /\.(\w+): \.(\w+)/).map { (String($0.1), String($0.2)) })
        return try Dictionary(
            uniqueKeysWithValues: codes.map { code in
                let name = try #require(names[String(code.1)], "ExitStatus has no status for \(code.1)")
                return (String(code.1), try #require(numbers[name] ?? nil))
            })
    }

    private static func text(_ path: String) throws -> String {
        let root = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../..")
        return try String(contentsOf: root.appending(path: path), encoding: .utf8)
    }
}
