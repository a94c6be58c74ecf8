import Foundation
import TestSupport
import Testing

/// The pages about the inside of certprov have what the source has.
@Suite struct InnerPagesTests {
    private static func text(_ path: String) throws -> String {
        try String(contentsOf: GeneratedPage.root.appending(path: path), encoding: .utf8)
    }

    // MARK: - Formats.md

    /// Each kind of stored data, with the declaration of its format version.
    private static let formats = [
        "sealed entries and records": ("Sources/IdentityStore/Sealing/SealedEnvelope.swift", "version: UInt8 = "),
        "key of the vault": ("Sources/IdentityStore/Vault/VaultKeyFile.swift", "version: UInt8 = "),
        "counter of passcode attempts": ("Sources/IdentityStore/Vault/VaultAttempts.swift", "version = \""),
        "rejected passcodes": ("Sources/IdentityStore/Vault/RejectedPasscodes.swift", "version: UInt8 = "),
        "rejected passwords": (
            "Sources/CertificateProviding/Secrets/RejectedSecrets.swift", "version = "
        ),
        "passwords without an answer": ("Sources/Logon/Registration/UnansweredPasswords.swift", "currentVersion = "),
        "record of a registration": ("Sources/Logon/Registration/ConnectionRecord.swift", "currentVersion = "),
        "record of a provider's keys": ("Sources/CertificateProviding/KeyStores/OwnedKeys.swift", "version = "),
        "keys of `store:`": ("Sources/IdentityStore/SealedKeyStore.swift", "format: UInt8 = "),
        "record of PINs": ("Plugins/PKCS11TokenProvider/Token/PINRecord.swift", "format = "),
        "key pairs in the making": (
            "Plugins/PKCS11TokenProvider/Writing/PendingKeys.swift", "format = "
        ),
        "a pending enrolment": ("Plugins/RemoteMDMProvider/PendingEnrolment.swift", "format: UInt8 = "),
        "the authorities of an enrolment server": (
            "Plugins/RemoteMDMProvider/Trust/KnownAuthorities.swift", "format: UInt8 = "
        ),
        "descriptions of plugins": ("Sources/PluginHost/PluginDescription.swift", "static let version = "),
    ]

    @Test func theFormatVersionsAreThoseOfTheSource() throws {
        let section = try #require(
            try Self.text("Documentation/Formats.md").components(separatedBy: "\n## ").first {
                $0.hasPrefix("Versions\n")
            })
        let rows = section.matches(of: #/(?m)^\| ([^|]+) \| (\d+) \|/#).map { (String($0.1), String($0.2)) }
        #expect(rows.map(\.0).sorted() == Self.formats.keys.sorted())
        for (data, version) in rows {
            guard let (file, declaration) = Self.formats[data] else { continue }
            let source = try Self.text(file)
            let found = try #require(source.range(of: "let " + declaration) ?? source.range(of: declaration), "\(file)")
            #expect(source[found.upperBound...].prefix { $0.isNumber } == version, "\(data)")
        }
    }

    // MARK: - Concurrency.md

    /// `Module.logins` is a property `logins` in the source of a type `Module`.
    @Test func theLocksExist() throws {
        let page = try Self.text("Documentation/Concurrency.md")
        let section = try #require(page.components(separatedBy: "\n## ").first { $0.hasPrefix("Lock order\n") })
        let names = Set(section.matches(of: /`([A-Z]\w+)\.([a-z]\w+)`/).map { "\($0.1) \($0.2)" })
        #expect(names.count > 5)
        var found: Set<String> = []
        for folder in ["Sources", "Plugins"] {
            let files = FileManager.default.enumerator(atPath: GeneratedPage.root.appending(path: folder).path)
            for case let file as String in files?.allObjects ?? [] where file.hasSuffix(".swift") {
                let source = try Self.text("\(folder)/\(file)")
                for name in names {
                    let parts = name.split(separator: " ")
                    let declarations = ["class \(parts[0])", "struct \(parts[0])", "enum \(parts[0])"]
                    if declarations.contains(where: { source.contains($0) }), source.contains("let \(parts[1])") {
                        found.insert(name)
                    }
                }
            }
        }
        #expect(found == names)
    }

    // MARK: - Architecture.dot

    private static let groups = [
        ("Programs", ["certprov", "certprov-plugin-launcher"]),
        (
            "For services",
            [
                "CertprovKit", "Logon", "LogonSwiftConfiguration", "Renewal", "CertificateTLS",
                "CertificateTLSAsyncHTTPClient", "IdentityStore",
            ]
        ),
        ("For providers", ["ProviderTransport", "OAuth", "CertificateProviderTesting"]),
        ("Built-in providers", ["PKCS12FileProvider", "PKCS11TokenProvider", "RemoteMDMProvider"]),
        ("Plugins", ["PluginHost", "PluginKit", "PluginProtocol"]),
        ("Core", ["CertificateProviding"]),
        ("C libraries", ["OpenSSLSupport", "COpenSSL", "CP11Kit", "CLinux", "CArguments"]),
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
