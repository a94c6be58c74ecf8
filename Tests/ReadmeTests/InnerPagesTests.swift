import Foundation
import TestSupport
import Testing

/// The picture of the rooms has the arrows between them.
@Suite struct InnerPagesTests {
    private static func text(_ path: String) throws -> String {
        try String(contentsOf: GeneratedPage.root.appending(path: path), encoding: .utf8)
    }

    private static let groups = [
        ("Programs", ["certprov", "certprov-plugin-launcher"]),
        (
            "For services",
            [
                "CertprovKit", "CertprovSigning", "CertprovComposition", "Logon", "LogonSwiftConfiguration", "Renewal",
                "CertificateTLS", "IdentityStore", "NamedKeys", "Signing",
                "SigningRequests", "Terminal", "PDFUpdate",
            ]
        ),
        ("For providers", ["ProviderTransport", "Enrolment", "OAuth", "SignedData", "CertificateProviderTesting"]),
        (
            "Built-in providers",
            ["ACMEProvider", "PEMFileProvider", "PKCS12FileProvider", "PKCS11TokenProvider", "RemoteMDMProvider"]
        ),
        ("Plugins", ["PluginHost", "PluginKit", "PluginProtocol"]),
        ("Core", ["CertificateProviding"]),
        ("C libraries", ["OpenSSLSupport", "COpenSSL", "CP11Kit", "CZlib", "CLinux", "CArguments"]),
    ]

    /// Write it anew with CERTPROV_TEST_PAGES=write, then: dot -Tsvg Architecture.dot -o Architecture.svg
    @Test func thePictureHasTheArrowsOfTheSource() throws {
        var imports: [String: Set<String>] = [:]
        for line in try Self.text("Documentation/Interfaces/graph.txt").split(separator: "\n") {
            let parts = line.components(separatedBy: " -> ")
            let names = parts[1].replacing("*", with: "").components(separatedBy: ", ")
            imports[parts[0]] = names == ["nothing"] ? [] : Set(names)
        }
        #expect(Self.groups.flatMap(\.1).sorted() == imports.keys.sorted(), "Each module is in one group.")
        func reaches(_ from: String, _ to: String) -> Bool {
            imports[from, default: []].contains { $0 == to || reaches($0, to) }
        }
        var lines = [
            "// Written by InnerPagesTests: the imports of Interfaces/graph.txt without those that follow from others.",
            "digraph Architecture {", "    rankdir = TB; newrank = true",
            "    node [shape = box, fontname = \"Helvetica\", fontsize = 11, style = filled, fillcolor = white]",
            "    graph [fontname = \"Helvetica\", fontsize = 11, style = filled, color = \"#e8eef4\"]",
        ]
        for (number, (title, modules)) in Self.groups.enumerated() {
            lines.append("    subgraph cluster_\(number) {")
            lines.append("        label = \"\(title)\"")
            lines += modules.map { "        \"\($0)\"" }
            lines.append("    }")
        }
        for (module, imported) in imports.sorted(by: { $0.key < $1.key }) {
            let direct = imported.filter { one in !imported.contains { $0 != one && reaches($0, one) } }
            lines += direct.sorted().map { "    \"\(module)\" -> \"\($0)\"" }
        }
        let picture = (lines + ["}"]).joined(separator: "\n") + "\n"
        let file = GeneratedPage.root.appending(path: "Documentation/Architecture.dot")
        if ProcessInfo.processInfo.environment["CERTPROV_TEST_PAGES"] == "write" {
            try picture.write(to: file, atomically: true, encoding: .utf8)
        }
        #expect(try String(contentsOf: file, encoding: .utf8) == picture)
        // The SVG has the same arrows.
        let drawn = try Self.text("Documentation/Architecture.svg").replacing("&#45;", with: "-")
            .matches(of: /<title>(.+)-&gt;(.+)<\/title>/)
        let arrows = picture.matches(of: /"(.+)" -> "(.+)"/)
        #expect(Set(drawn.map { "\($0.1) \($0.2)" }) == Set(arrows.map { "\($0.1) \($0.2)" }))
    }
}
