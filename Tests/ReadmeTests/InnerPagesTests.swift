import Foundation
import TestSupport
import Testing

/// The pictures of the rooms have the arrows between them.
@Suite struct InnerPagesTests {
    private static func text(_ path: String) throws -> String {
        try String(contentsOf: GeneratedPage.root.appending(path: path), encoding: .utf8)
    }

    /// A box of the picture: rooms that a newcomer takes for one.
    private struct Box {
        let title: String
        let says: String
        var color = "white"
        let modules: [String]
    }

    private static let (user, place) = ("#fdf3d8", "#e2f0e4")

    /// From the top to the bottom of the picture.
    private static let layers = [
        [
            Box(
                title: "A Swift service", says: "CertprovKit: mutual TLS", color: user,
                modules: ["CertprovKit", "LogonSwiftConfiguration"]),
            Box(
                title: "A Swift program that signs", says: "CertprovSigning", color: user,
                modules: ["CertprovSigning"]),
            Box(
                title: "An administrator", says: "the command certprov, and its service", color: user,
                modules: ["certprov", "HostService", "Terminal", "CArguments"]),
            Box(
                title: "An author of a plugin", says: "PluginKit, or any language", color: user,
                modules: ["PluginKit", "certprov-plugin-tpm"]),
        ],
        [
            Box(title: "Renewal", says: "keeps an identity fresh", modules: ["Renewal"]),
            Box(title: "Composition", says: "puts all parts together", modules: ["CertprovComposition"]),
            Box(
                title: "Signatures", says: "data, CMS, PDF; named keys; requests",
                modules: ["Signing", "NamedKeys", "SigningRequests", "PDFUpdate", "HostSockets"]),
        ],
        [
            Box(title: "Logon", says: "property file, choice, registration", modules: ["Logon"])
        ],
        [
            Box(
                title: "Files, tokens, TPM", says: "pem, pkcs12, pkcs11, tpm", color: place,
                modules: [
                    "PEMFileProvider", "PKCS12FileProvider", "PKCS11TokenProvider", "CP11Kit", "TPMKeyStore", "CTSS",
                ]),
            Box(
                title: "Enrolment protocols", says: "mdm: EST and SCEP; acme", color: place,
                modules: ["Enrolment", "RemoteMDMProvider", "ACMEProvider"]),
            Box(
                title: "Plugins", says: "providers and key stores by others", color: place,
                modules: ["PluginHost", "PluginProtocol", "certprov-plugin-launcher", "CertificateProviderTesting"]),
            Box(
                title: "Identity store", says: "sealed; the key store store:; files", color: place,
                modules: ["IdentityStore", "IdentityFiles", "ProgramRun"]),
        ],
        [
            Box(
                title: "TLS and HTTP", says: "rotation, peers; servers that are authenticated",
                modules: ["CertificateTLS", "ProviderTransport", "OAuth"])
        ],
        [
            Box(
                title: "Formats", says: "OpenSSL, CMS, zlib",
                modules: ["OpenSSLSupport", "COpenSSL", "CZlib", "SignedData"]
            )
        ],
        [
            Box(
                title: "CertificateProviding",
                says: "the contract: CertificateProvider, KeyStore, Identity, errors", color: "#dde8f5",
                modules: ["CertificateProviding", "CLinux"])
        ],
    ]

    /// The imports of each module.
    private static func imports() throws -> [String: Set<String>] {
        var imports: [String: Set<String>] = [:]
        for line in try text("Documentation/Interfaces/graph.txt").split(separator: "\n") {
            let parts = line.components(separatedBy: " -> ")
            let names = parts[1].replacing("*", with: "").components(separatedBy: ", ")
            imports[parts[0]] = names == ["nothing"] ? [] : Set(names)
        }
        return imports
    }

    /// The arrows that do not follow from others.
    private static func arrows(_ graph: [String: Set<String>]) -> [String] {
        func reaches(_ from: String, _ to: String) -> Bool {
            graph[from, default: []].contains { $0 == to || reaches($0, to) }
        }
        return graph.sorted { $0.key < $1.key }.flatMap { from, all in
            all.filter { one in !all.contains { $0 != one && reaches($0, one) } }.sorted().map {
                "    \"\(from)\" -> \"\($0)\""
            }
        }
    }

    private static func head(_ name: String) -> [String] {
        [
            "// Written by InnerPagesTests: the imports of Interfaces/graph.txt without those that follow from others.",
            "digraph \(name) {", "    rankdir = TB; newrank = true; nodesep = 0.3; ranksep = 0.4",
            "    node [shape = box, fontname = \"Helvetica\", fontsize = 12, style = filled, fillcolor = white]",
            "    graph [fontname = \"Helvetica\", fontsize = 12, style = filled, color = \"#e8eef4\", bgcolor = white]",
        ]
    }

    private static func overview() throws -> [String] {
        var boxes: [String: String] = [:]
        for box in layers.joined() { for module in box.modules { boxes[module] = box.title } }
        var graph: [String: Set<String>] = [:]
        for (module, imported) in try imports() {
            guard let own = boxes[module] else { continue }
            graph[own, default: []].formUnion(imported.compactMap { boxes[$0] }.filter { $0 != own })
        }
        let nodes = layers.map { layer in
            "    { rank = same\n"
                + layer.map { box in
                    "        \"\(box.title)\" [fillcolor = \"\(box.color)\", "
                        + "label = <<b>\(box.title)</b><br/><font point-size=\"10\">\(box.says)</font>>]\n"
                }.joined() + "    }"
        }
        return head("Architecture") + nodes + arrows(graph) + ["}"]
    }

    private static func modules() throws -> [String] {
        let clusters = layers.joined().enumerated().flatMap { number, box in
            ["    subgraph cluster_\(number) {", "        label = \"\(box.title)\""]
                + box.modules.map { "        \"\($0)\"" } + ["    }"]
        }
        return head("Modules") + clusters + arrows(try imports()) + ["}"]
    }

    /// Write them anew with CERTPROV_TEST_PAGES=write, then: dot -Tsvg -O Architecture.dot Modules.dot, and name each .svg as its .dot.
    @Test(arguments: ["Architecture", "Modules"]) func thePictureHasTheArrowsOfTheSource(name: String) throws {
        #expect(
            Self.layers.joined().flatMap(\.modules).sorted() == (try Self.imports()).keys.sorted(),
            "Each module is in one box.")
        let picture = try (name == "Modules" ? Self.modules() : Self.overview()).joined(separator: "\n") + "\n"
        let file = GeneratedPage.root.appending(path: "Documentation/\(name).dot")
        if ProcessInfo.processInfo.environment["CERTPROV_TEST_PAGES"] == "write" {
            try picture.write(to: file, atomically: true, encoding: .utf8)
        }
        #expect(try String(contentsOf: file, encoding: .utf8) == picture)
        // The SVG has the same arrows.
        let drawn = try Self.text("Documentation/\(name).svg").replacing("&#45;", with: "-")
            .matches(of: /<title>(.+)-&gt;(.+)<\/title>/)
        let arrows = picture.matches(of: /"(.+)" -> "(.+)"/)
        #expect(Set(drawn.map { "\($0.1) \($0.2)" }) == Set(arrows.map { "\($0.1) \($0.2)" }))
    }
}
