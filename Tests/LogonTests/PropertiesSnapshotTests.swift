import CertificateProviding
import Configuration
import SystemPackage
import LogonSwiftConfiguration
import TestSupport
import Testing

@testable import Logon

@Suite struct PropertiesSnapshotTests {
    private func snapshot(
        _ text: String, options: PropertiesSnapshot.ParsingOptions = .default
    ) throws -> PropertiesSnapshot {
        try PropertiesSnapshot(data: Array(text.utf8).span.bytes, providerName: "test", parsingOptions: options)
    }

    @Test(
        "Values are read as the requested types",
        arguments: [
            ("text", .string, .string(" a b ")),
            ("number", .int, .int(42)),
            ("number", .double, .double(42)),
            ("fraction", .double, .double(1.5)),
            ("flag", .bool, .bool(true)),
            ("list", .stringArray, .stringArray(["a", "b c", ""])),
            ("empty", .stringArray, .stringArray([])),
            ("numbers", .intArray, .intArray([1, -2])),
            ("numbers", .doubleArray, .doubleArray([1, -2])),
            ("flags", .boolArray, .boolArray([true, false])),
            ("missing", .string, nil),
        ] as [(String, ConfigType, ConfigContent?)])
    func readsTypes(key: String, type: ConfigType, expected: ConfigContent?) throws {
        let snapshot = try snapshot(
            """
            a.text=\\ a b \n\
            a.number= 42 \n\
            a.fraction=1.5
            a.flag=TRUE
            a.list=a, b c ,
            a.empty=
            a.numbers=1, -2
            a.flags=True,false
            """)
        let result = try snapshot.value(forKey: AbsoluteConfigKey(["a", key]), type: type)
        #expect(result.encodedKey == "a.\(key)")
        #expect(result.value?.content == expected)
        #expect(result.value?.isSecret != false)
    }

    @Test(
        "A value that is not of the requested type is refused with file and line",
        arguments: [ConfigType.int, .double, .bool, .intArray, .doubleArray, .boolArray, .bytes, .byteChunkArray])
    func refusesOtherTypes(type: ConfigType) throws {
        let options = PropertiesSnapshot.ParsingOptions(fileName: "x.properties")
        let snapshot = try snapshot("\nkey=sEcReT", options: options)
        let error = failure { try snapshot.value(forKey: AbsoluteConfigKey(["key"]), type: type) }
        expectInvalid(error, at: "x.properties:2: ", "'key'")
    }

    @Test func showsNoValue() throws {
        let snapshot = try snapshot("key=sEcReT\nother=sEcReT")
        var dumped = ""
        dump(snapshot, to: &dumped)
        for text in ["\(snapshot)", String(reflecting: snapshot), dumped] { #expect(!text.contains("sEcReT")) }
        #expect(snapshot.debugDescription == "test[2 values: key=<REDACTED>, other=<REDACTED>]")
        #expect(
            try snapshot.value(forKey: AbsoluteConfigKey(["key"]), type: .string).value?.description
                == "[string: <REDACTED>]")
    }

    @Test func secretsCanBeNamed() throws {
        let options = PropertiesSnapshot.ParsingOptions(secretsSpecifier: .specific(["a"]))
        let snapshot = try snapshot("a=1\nb=2", options: options)
        #expect(try snapshot.value(forKey: AbsoluteConfigKey(["a"]), type: .string).value?.isSecret == true)
        #expect(try snapshot.value(forKey: AbsoluteConfigKey(["b"]), type: .string).value?.isSecret == false)
    }

    @Test("A changed property file is reloaded", .timeLimit(.minutes(20)))
    func reloads() async throws {
        try await reloads(PropertiesSnapshot.self) { "server.port=\($0)\n" }
    }

    /// swift-configuration's own snapshot sees in a property list what the manager sees in it: a key is one name, dots
    /// and all.
    @Test(.timeLimit(.minutes(20))) func aPropertyListReloads() async throws {
        let list = { @Sendable (port: String) in
            "<plist version=\"1.0\"><dict><key>server.port</key><string>\(port)</string></dict></plist>"
        }
        try await reloads(PropertyListSnapshot.self, list)
        let settings = try PropertyListReader.settings(in: Array(list("1").utf8), file: "file")
        #expect(settings["server.port"]?.value == "1")
    }

    /// The provider has no public way to look at the file now but its poll, whose result is awaited, not slept for.
    private func reloads<Snapshot: FileConfigSnapshot>(
        _: Snapshot.Type, _ text: @escaping @Sendable (String) -> String
    ) async throws {
        let directory = try TemporaryDirectory()
        let path = try directory.replace("file", with: text("1").utf8, modifiedAt: 1_000_000)
        let provider = try await ReloadingFileProvider<Snapshot>(
            filePath: FilePath(path), pollInterval: .milliseconds(2))
        let reader = ConfigReader(provider: provider)
        #expect(reader.string(forKey: "server.port") == "1")
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await provider.run() }
            // As text: ReloadingFileProvider tells watchers of every type the value as a string.
            try await reader.watchString(forKey: "server.port") { updates in
                for try await port in updates {
                    guard port == "1" else {
                        #expect(port == "2")
                        return
                    }
                    _ = try directory.replace("file", with: text("2").utf8, modifiedAt: 2_000_000)
                }
            }
            group.cancelAll()
        }
        #expect(reader.string(forKey: "server.port") == "2")
    }
}
