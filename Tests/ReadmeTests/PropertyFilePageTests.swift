import ACMEProvider
import CertificateProviding
import CertprovComposition
import Foundation
import HostService
import IdentityStore
import Logon
import PEMFileProvider
import PKCS11TokenProvider
import PKCS12FileProvider
import PluginHost
import RemoteMDMProvider
import SigningRequests
import TestSupport
import Testing

/// The tables of Documentation/PropertyFile.md come from the descriptors. Write them anew: CERTPROV_TEST_PAGES=write.
@Suite struct PropertyFilePageTests {
    private static let name = "Documentation/PropertyFile.md"

    @Test func theTablesAreThoseOfTheDescriptors() throws {
        let page = try GeneratedPage(
            Self.name, tables: Dictionary(uniqueKeysWithValues: Self.tables.map { ("### " + $0.heading, $0.lines) }))
        let isCurrent = page.isCurrent
        #expect(isCurrent, "Write the tables anew: CERTPROV_TEST_PAGES=write.")
        #expect(
            page.headings.filter { $0.hasPrefix("### ") }.sorted() == Self.tables.map { "### " + $0.heading }.sorted(),
            "A section for each group, provider and key store.")
    }

    @Test("A service, which has no signing requests and tunnels, takes their keys in the same file")
    func eachNamespaceIsKnownToServices() {
        #expect(
            Set(SettingsSection.signingRequests.namespaces + ServeSection.settings.namespaces)
                .isSubset(of: BuiltIns.all.sections.flatMap(\.namespaces)))
    }

    @Test func eachKindOfValueIsExplained() throws {
        let page = try GeneratedPage(Self.name, tables: [:]).text
        let section = try #require(page.components(separatedBy: "\n## ").first { $0.hasPrefix("Kinds of values\n") })
        let explained = section.matches(of: #/(?m)^\| ([a-z-]+) \| /#).map { String($0.1) }.filter { $0 != "kind" }
        #expect(explained.sorted() == Set(Self.tables.flatMap(\.kinds)).sorted())
    }

    // MARK: - The tables

    private struct Table {
        let heading: String
        var lines: [String] = []
        var kinds: [String] = []

        init(_ heading: String, _ parameters: [ParameterDescriptor], heading column: String = "parameter") {
            self.heading = heading
            if !parameters.isEmpty { head(column) }
            for one in parameters {
                var sentences = [one.summary.hasSuffix(".") ? one.summary : one.summary + "."]
                let needs = one.needs.map { need in need.value.map { "\(need.name)=\($0)" } ?? need.name }
                if !needs.isEmpty { sentences.append("Needs \(needs.joined(separator: " and ")).") }
                if !one.excludes.isEmpty { sentences.append("Not with \(one.excludes.joined(separator: " or ")).") }
                add(
                    one.name, one.kind, one.isRequired ? "required" : one.defaultValue,
                    sentences.joined(separator: " "))
            }
        }

        private mutating func head(_ name: String) {
            lines = ["| \(name) | kind | default | meaning |", "|---|---|---|---|"]
        }

        private mutating func add(
            _ name: String, _ kind: ParameterDescriptor.Kind, _ defaultValue: String?, _ meaning: String
        ) {
            kinds.append(kind.rawValue)
            let cells = ["`\(name)`", kind.rawValue, Self.markdown(defaultValue ?? ""), Self.markdown(meaning)]
            lines.append(("| " + cells.joined(separator: " | ") + " |").replacing("|  |", with: "| |"))
        }

        /// Assignments and URLs become code.
        private static func markdown(_ text: String) -> String {
            text.replacing("|", with: "\\|").replacing(/[^\s']*(?::\/\/|[^\s]=)[^\s']*[^\s.,;:')]/) { "`\($0.output)`" }
        }
    }

    private static var tables: [Table] {
        let providers = [
            RemoteMDMProvider.descriptor, PKCS11TokenProvider.descriptor, PKCS12FileProvider.descriptor,
            PEMFileProvider.descriptor, ACMEProvider.descriptor,
        ]
        let keyStores = [SealedKeyStore.descriptor, TokenKeyStore.descriptor]
        let sections = LogonConfiguration.sections + BuiltIns.all.sections + [.signingRequests, ServeSection.settings]
        return sections.filter { !$0.settings.isEmpty }.map { Table($0.title, $0.settings, heading: "key") }
            + providers.map { Table("Provider \($0.id)", $0.configurableParameters) }
            + keyStores.map { Table("Key store \($0.scheme)", $0.parameters) }
            + [Table("Every plugin", PluginHost.parameters)]
    }
}
