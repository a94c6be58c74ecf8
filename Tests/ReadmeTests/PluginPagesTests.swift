import CertificateProviderTesting
import CertificateProviding
import Foundation
import Glibc
import IdentityStore
import Logon
import PEMFileProvider
import PluginHost
import PluginKit
import RemoteMDMProvider
import TestSupport
import Testing

/// Every code block of HandlingSecrets.md and KeyStores.md compiles, or is run with the command that is built beside the tests.
@Suite(.timeLimit(.minutes(20))) struct PluginPagesTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    // MARK: - The pages

    @Test(arguments: [
        ("HandlingSecrets.md", ["properties", "swift", "python", "console"]),
        ("KeyStores.md", ["swift", "properties", "console"]),
    ]) func eachBlockIsCompiledOrRun(page: String, languages: [String]) throws {
        let blocks = try Page(page).blocks
        #expect(blocks.map(\.language) == languages, "Test the new block, too.")
        let source = try String(contentsOf: Page.root.appending(path: Page.examples), encoding: .utf8)
        for block in blocks where block.language == "swift" {
            let imports = block.text.split(separator: "\n").filter { $0.hasPrefix("import ") }
            for line in imports { #expect(source.contains("\(line)\n")) }
            let code = block.text.drop { $0 != "/" }
            #expect(!code.isEmpty && source.contains(code), "\(page) and \(Page.examples) differ.")
        }
    }

    // MARK: - Secrets

    @Test func anAccountHasAPasswordFromAFileOrTheUser() async throws {
        let file = try directory.write(Array("hunter2\n".utf8), to: "password")
        func account(_ source: String) throws -> Account {
            let texts = ProviderParameters([Account.passwordSource.name: .init(source)])
            return Account(
                .testing(),
                try Parameters(
                    texts, of: [Account.passwordSource.descriptor], owner: ProviderID("account"), keyStores: .none))
        }
        let (stored, asked) = (try account("file:\(file)"), try account("prompt"))
        #expect(try await stored.password(NoUserInteraction()) == SecretBytes(utf8: "hunter2"))
        #expect(try stored.storedPassword() == SecretBytes(utf8: "hunter2"))
        let user = Person("hunter3")
        #expect(try await asked.password(user) == SecretBytes(utf8: "hunter3"))
        #expect(user.questions == ["Password of the account"])
        #expect(await code { _ = try await asked.password(NoUserInteraction()) } == .interactionRequired)
        #expect(await code { _ = try asked.storedPassword() } == .interactionRequired)
        var shown = "\(try stored.storedPassword())"
        dump(try stored.storedPassword(), to: &shown)
        #expect(shown.contains("<secret>") && !shown.contains("hunter2"))
    }

    /// Installs the plugin as the page says, with the identity and the property file for it.
    ///
    /// - Parameter change: Of its program.
    private func installLockedPlugin(_ change: (String) -> String = { $0 }) throws {
        let blocks = try Page("HandlingSecrets.md").blocks
        try run("plugin", "new", "locked", "--language", "python")
        let template = String(decoding: try directory.read("locked/certprov-plugin-locked"), as: UTF8.self)
        let start = try #require(template.range(of: "\nDESCRIPTION = ")).lowerBound
        let end = try #require(template.range(of: "\ndef documents(")).lowerBound
        let program = template[..<start] + "\n" + blocks[2].text + "\n" + template[end...]
        try directory.install("certprov-plugin-locked", change(program).utf8)
        let authority = try TestAuthority()
        let identity = try authority.issue("locked")
        let key = try #require(identity.key.exporter).pkcs8Representation()
        try directory.write(key.withUnsafeBytes { Array($0) }, to: "key.der")
        try directory.write(Array("open sesame\n".utf8), to: "password")
        try Subprocess.openssl(
            "pkcs8", "-topk8", "-in", "key.der", "-inform", "DER", "-passout", "file:password", "-out", "key.pem",
            in: directory.path)
        let certificates = identity.certificateChain.map {
            "-----BEGIN CERTIFICATE-----\n\(Data($0.derRepresentation).base64EncodedString())\n-----END CERTIFICATE-----\n"
        }
        try directory.write(Array(certificates.joined().utf8), to: "cert.pem")
        let properties = blocks[0].text.replacing("/etc/myservice/tls", with: directory.path)
            .replacing("/etc/myservice/password", with: directory["password"])
        try directory.write(Array("PluginDirectory = \(directory.path)\n\(properties)".utf8), to: "locked.properties")
        try directory.write(Data(), to: "output")
    }

    @Test(.enabled(if: TestLength.hasSeconds)) func thePythonPluginIsTracedWithoutSecrets() throws {
        try installLockedPlugin()
        let page = try Page("HandlingSecrets.md").blocks[3].text.split(separator: "\n").map(String.init)
        #expect(page.first == "$ certprov plugin trace fetch")
        let shown = try run("plugin", "trace", "fetch", "--config", directory["locked.properties"])
        // The time and the paths are others, and a certificate is longer.
        let lines = page.dropFirst().map { line in
            line.drop { $0 != " " }.replacing("/etc/myservice/password", with: directory["password"])
                .split(separator: "…\"", omittingEmptySubsequences: false)
        }
        #expect(lines.count == 3)
        for parts in lines {
            #expect(
                shown.split(separator: "\n").contains { line in
                    parts.allSatisfy { line.contains($0.replacing("MIIBmzCC", with: "MII")) }
                }, "\(parts) is not among \(shown)")
        }
        let key = Data(try directory.read("key.der")).base64EncodedString()
        let password = Data("open sesame".utf8).base64EncodedString()
        for secret in [key, password, "sesame"] { #expect(!shown.contains(secret)) }
        // It is in the host's sealed store.
        let store = directory.contents().filter { $0.hasPrefix("state/identities/locked/") }
        #expect(store.count == 1, "\(directory.contents())")
        for file in store { #expect(!(try directory.read(file)).contains(sequence: Array(key.utf8))) }
        #expect(try run("check", "--config", directory["locked.properties"]).contains("password can be read"))
    }

    @Test(.enabled(if: TestLength.hasSeconds)) func thePythonPluginConforms() throws {
        try installLockedPlugin()
        let report = try run(
            "plugin", "verify", "--verbose", "certprov-plugin-locked", "--set", "directory=.", "--set",
            "password-source=file:\(directory["password"])")
        #expect(report.contains("21 passed, 0 failed, 0 skipped."), "\(report)")
        #expect(report.contains("{\"value\":{\"secret\":…}}") && !report.contains("sesame"))
    }

    @Test(.enabled(if: TestLength.hasSeconds)) func thePythonPluginAsksTheUser() async throws {
        try installLockedPlugin()
        let host = host()
        let provider = try lockedProvider(host)
        let user = Person("open sesame")
        try await provider.getCertificate(user).verifyPossession()
        #expect(user.questions == ["The plugin 'locked' asks: Password of key.pem"])
        #expect(try provider.getStoredCertificate() != nil)
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .interactionRequired)
        #expect(await code { _ = try await provider.getCertificate(Person("wrong")) } == .wrongPassword)
        await provider.shutdown()
        await host.shutdown()
    }

    @Test(.enabled(if: TestLength.hasSeconds)) func theHostReadsNoPromptAndNoOtherSource() async throws {
        for (source, code) in [
            ("prompt", ProviderError.Code.interactionRequired), ("env:PATH", .operationNotAllowed),
        ] {
            try? FileManager.default.removeItem(atPath: directory["locked"])
            try installLockedPlugin { program in
                program.replacing("source == \"prompt\"", with: "False").replacing(
                    "{\"source\": source}", with: "{\"source\": \"\(source)\"}")
            }
            let host = host()
            let provider = try lockedProvider(host)
            #expect(await failure { try await provider.getCertificate(Person("open sesame")) }?.code == code)
            await provider.shutdown()
            await host.shutdown()
        }
    }

    private func lockedProvider(_ host: PluginHost) throws -> any CertificateProvider {
        let parameters = ProviderParameters(["directory": .init(directory.path), "password-source": .init("prompt")])
        let descriptor = try #require(try host.provider(ProviderID("locked"), parameters))
        return try descriptor.makeProvider(.testing(storage: InMemoryStorage()), parameters)
    }

    // MARK: - Key stores

    /// The key store as a service has it, configured by the page's block.
    private func keyStores() throws -> KeyStores {
        let registry = try ProviderRegistry(
            [RemoteMDMProvider.descriptor], keyStores: [SealedKeyStore.descriptor, DirectoryKeyStore.descriptor])
        let properties = try Page("KeyStores.md").blocks[1].text.replacing("/media/keys", with: directory["keys"])
        let file = try directory.write(
            Array(
                """
                CertificateProvider = mdm
                CertificateProvider.mdm.protocol = est
                CertificateProvider.mdm.url = https://est.example.com
                CertificateProvider.mdm.subject = CN=host17,O=Example
                \(properties)
                """.utf8), to: "keys.properties")
        let configuration = try LogonConfiguration.load(path: file, registry: registry)
        #expect(configuration.warnings.isEmpty)
        return try LogonManager(configuration: configuration, registry: registry) { _ in .testing() }.keyStores
    }

    private func makeDirectory() throws { #expect(mkdir(directory["keys"], 0o700) == 0) }

    @Test func theKeyStoreConforms() async throws {
        try makeDirectory()
        let stores = try keyStores()
        let report = await KeyStoreConformance { try stores.store("directory:") }.run()
        #expect(report.isPassed && report.results.count == 7, "\(report)")
        #expect(directory.contents().filter { $0.hasPrefix("keys/") }.isEmpty)
    }

    /// The parameter `key` of 'pem' names the place of the key, and not the key.
    @Test func aCertificateInAFileHasItsKeyThere() async throws {
        try makeDirectory()
        var environment = ProviderEnvironment.testing()
        environment.keyStores = try keyStores()
        let store = try environment.keyStores.store("directory:")
        let key = try await store.make(NewKey(.p256, label: "web"), NoUserInteraction()) { _ in }
        let leaf = try TestAuthority().certify(key.publicKey.derRepresentation, as: "web")
        let file = try directory.write(Array(leaf.pemRepresentation.utf8), to: "web.pem")
        let provider = try PEMFileProvider(
            environment: environment,
            parameters: ProviderParameters(["certificate": .init(file), "key": .init("directory:")]))
        #expect(try await provider.getCertificate(NoUserInteraction()).key.publicKey == key.publicKey)
        #expect(try provider.getStoredCertificate()?.certificate == leaf)
    }

    @Test func anAbsentDirectoryIsAnError() async throws {
        try makeDirectory()
        let store = try keyStores().store("directory:")
        let key = try await store.make(NewKey(.p256, label: "test"), NoUserInteraction()) { _ in }
        let reference = store.reference(to: key)
        #expect(rename(directory["keys"], directory["unplugged"]) == 0)
        #expect(await code { _ = try store.storedKey(for: reference) } == .unavailable)
        #expect(await code { try store.destroyStored(reference) } == .unavailable)
        #expect(await code { _ = try await store.list() } == .unavailable)
        #expect(rename(directory["unplugged"], directory["keys"]) == 0)
        #expect(try store.storedKey(for: reference) != nil)
    }

    /// A process that is killed after `remember` leaves the beginning of a file.
    @Test func destroyRemovesTheLeftoversOfAKill() async throws {
        try makeDirectory()
        let store = try keyStores().store("directory:")
        let killed = KeyReference(
            publicKey: try TestAuthority().issue("any").key.publicKey, uri: "directory:\(UUID().uuidString)")
        let name = "keys/\(killed.uri.dropFirst("directory:".count))"
        try directory.write([0x30], to: name + ".new")
        #expect(try store.storedKey(for: killed) == nil)
        #expect(try await store.list().isEmpty)
        for _ in 0..<2 { try await store.destroy(killed, NoUserInteraction()) }
        #expect(directory.contents() == ["keys", "keys.properties"])
    }

    @Test func wrongPlacesAndUsesAreRefused() async throws {
        try makeDirectory()
        let store = try keyStores().store("directory:")
        for uri in ["directory:", "directory:../keys", "store:\(UUID().uuidString)"] {
            #expect(!store.holds(keyURI: uri))
        }
        for (type, use) in [(KeyType.rsa2048, KeyUse.signing), (.p256, [.signing, .pkcs1Decryption])] {
            #expect(
                await code {
                    _ = try await store.make(NewKey(type, label: "test", use: use), NoUserInteraction()) { _ in }
                }
                    == .unsupportedAlgorithm)
        }
        #expect(await code { _ = try keyStores().store("directory:", pinSource: .prompt) } == .configurationInvalid)
    }

    /// This program itself is the plugin.
    @Test(.enabled(if: TestLength.hasSeconds)) func theKeyStoreConformsAsAPlugin() throws {
        let page = try Page("KeyStores.md").blocks[2].text.split(separator: "\n").map(String.init)
        try makeDirectory()
        try directory.install(
            "certprov-plugin-directory",
            """
            #!/bin/sh
            CERTPROV_TEST_PLUGIN=1 exec \(Command.program) --testing-library swift-testing \
            --filter 'PluginPagesTests/servesAsAPlugin'

            """.utf8)
        let command = try #require(page.first).replacing("/media/test", with: directory["keys"])
        // All tests are in it: on a busy machine it takes long to start.
        let report = try run(
            command.split(separator: " ").dropFirst(2).map(String.init) + ["--set", "timeout=200"])
        #expect(page.count == 5 && page[1] == "…")
        for line in page.dropFirst(2) { #expect(report.contains(line + "\n"), "\(report)") }
    }

    @Test(.enabled(if: Command.isPlugin)) func servesAsAPlugin() async {
        await Plugin(id: ProviderID("directory"), keyStores: [DirectoryKeyStore.descriptor]).run()
        // The runner would write to standard error, which the host has closed.
        exit(0)
    }

    // MARK: - Helpers

    private func host() -> PluginHost {
        PluginHost(PluginDirectories([directory.path]), logger: ProviderEnvironment.testing().logger)
    }

    /// Runs the command in the directory, and returns both its outputs.
    @discardableResult private func run(_ arguments: String...) throws -> String { try run(arguments) }

    private func run(_ arguments: [String]) throws -> String {
        mkdir(directory["state"], 0o700)
        let shell = ["sh", "-c", "exec \"$@\" 2>&1", "sh", Command.certprov]
        return String(
            decoding: try Subprocess.run(
                ["STATE_DIRECTORY=\(directory["state"])"] + shell + arguments, in: directory.path), as: UTF8.self)
    }
}

/// A page of the documentation.
private struct Page {
    struct Block {
        let language: String
        let text: String
    }

    static let root = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../..")
    static let examples = "Tests/ReadmeTests/PluginPagesExamples.swift"
    let blocks: [Block]

    init(_ name: String) throws {
        let text = try String(contentsOf: Self.root.appending(path: "Documentation/\(name)"), encoding: .utf8)
        let parts = text.components(separatedBy: "```")
        blocks = stride(from: 1, to: parts.count, by: 2).map { index in
            let language = parts[index].prefix { $0 != "\n" }
            return Block(language: String(language), text: String(parts[index].dropFirst(language.count + 1)))
        }
    }
}

/// The programs of this build.
private enum Command {
    static let program =
        (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? CommandLine.arguments[0]
    static let certprov = URL(filePath: program).deletingLastPathComponent().appending(path: "certprov").path
    static let isPlugin = getenv("CERTPROV_TEST_PLUGIN") != nil
}

extension [UInt8] {
    fileprivate func contains(sequence: [UInt8]) -> Bool { Data(self).range(of: Data(sequence)) != nil }
}
