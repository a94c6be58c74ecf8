import CertprovKit
import Foundation
import TestSupport
import Testing

/// The pages that list the parts of this package list all of them.
@Suite struct ListedPartsTests {
    private static func text(_ path: String) throws -> String {
        try String(contentsOf: GeneratedPage.root.appending(path: path), encoding: .utf8)
    }

    private static func code(in text: some StringProtocol) -> Set<String> {
        Set(String(text).matches(of: #/`([^`\n]+)`/#).map { String($0.1) })
    }

    @Test func stabilityNamesEachProduct() throws {
        let products = try Self.text("Package.swift").matches(
            of: #/\.(?:library|executable)\(name: "([\w-]+)", targets:/#
        )
        .map { String($0.1) }
        #expect(products.count > 20)
        let page = try Self.text("Documentation/Stability.md")
        #expect(
            Set(products).subtracting(Self.code(in: page)) == [], "Documentation/Stability.md names no such product.")
        let table = try #require(page.firstMatch(of: #/\n\| products \|.*\n((?:\|.*\n)+)/#)?.1)
        let named = table.split(separator: "\n").dropFirst().flatMap { Self.code(in: $0.split(separator: "|")[0]) }
        #expect(Set(named).subtracting(products) == [], "Package.swift has no such product.")
    }

    @Test func thePagesNameEachProviderAndKeyStore() throws {
        let words = ["pem": "PEM", "pkcs12": "PKCS#12", "pkcs11": "PKCS#11", "mdm": "EST", "acme": "ACME"]
        let architecture = Self.code(in: try Self.text("Documentation/Architecture.md"))
        let package = try Self.text("Scripts/debian/control")
        for id in CertprovLogon.providers.map(\.id.rawValue) {
            #expect(architecture.contains(id), "Documentation/Architecture.md")
            #expect(package.contains(try #require(words[id])), "Scripts/debian/control")
        }
        for scheme in CertprovLogon.keyStores.map(\.scheme) { #expect(architecture.contains(scheme + ":")) }
    }

    /// Lines of a page are rounded, and may be a tenth off.
    @Test(arguments: [
        ("`ACME`, `MDM`, `PKCS11`", []), ("`ACME`, `MDM`", ["PKCS11TokenProvider"]),
        ("`PKCS11`", ["ACMEProvider", "OAuth", "RemoteMDMProvider"]),
        ("none", ["ACMEProvider", "OAuth", "PKCS11TokenProvider", "RemoteMDMProvider"]),
    ])
    func embeddingSaysWhatTheKitCompiles(traits: String, without: [String]) throws {
        var imports: [String: [String]] = [:]
        for line in try Self.text("Documentation/Interfaces/graph.txt").split(separator: "\n") {
            let parts = line.components(separatedBy: " -> ")
            imports[parts[0]] = parts[1].replacing("*", with: "").components(separatedBy: ", ")
        }
        var found: Set<String> = [], left = ["CertprovKit"]
        while let module = left.popLast() {
            guard imports[module] != nil, !without.contains(module), found.insert(module).inserted else { continue }
            left += imports[module, default: []]
        }
        let counts = try found.map(Self.linesOfSwift).filter { $0 > 0 }
        let row = try #require(
            try Self.text("Documentation/Embedding.md").components(separatedBy: "\n").first {
                $0.hasPrefix("| \(traits) |")
            })
        let cells = row.split(separator: "|").map { Int($0.replacing(",", with: "").trimmingPrefix(" ").dropLast()) }
        let lines = counts.reduce(0, +)
        #expect(cells[2] == counts.count, "Swift targets")
        #expect(abs(try #require(cells[3]) - lines) <= lines / 10, "\(lines) lines")
    }

    private static func linesOfSwift(in module: String) throws -> Int {
        for folder in ["Sources", "Plugins"] {
            let place = GeneratedPage.root.appending(path: "\(folder)/\(module)")
            guard let files = FileManager.default.enumerator(at: place, includingPropertiesForKeys: nil) else {
                continue
            }
            let lines = try files.compactMap { $0 as? URL }.filter { $0.pathExtension == "swift" }
                .map { try Data(contentsOf: $0).count(where: { $0 == 0x0A }) }.reduce(0, +)
            if lines > 0 { return lines }
        }
        return 0
    }
}
