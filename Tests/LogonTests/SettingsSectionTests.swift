import CertificateProviding
import Logon
import TestSupport
import Testing

/// A room that declares its own section of the property file.
@Suite struct SettingsSectionTests {
    private static let directory = Parameter<String?>.string("Export.directory", .path, summary: "Where it writes.")
    private static let names = Parameter<[String]>("Export.names", .list, absent: [], summary: "For whom.") { text, _ in
        text.split(separator: ",").map { $0.trimmingPrefix(" ") }.map(String.init)
    }
    private static let delay = Parameter.seconds(
        "Export.delay", default: 5, in: 1...60, summary: "How long it waits.")
    private static let log = Parameter.flag(
        "Export.log", needs: [.given("Export.directory")], summary: "Whether it logs.")
    private static let section = SettingsSection(
        title: "Export", namespaces: ["Export."],
        [directory.descriptor, names.descriptor, delay.descriptor, log.descriptor])
    private static let clientName = Parameter<String>(
        "Desk.client.<number>.name", .string, absent: nil, summary: "Its name."
    ) {
        text, _ in text
    }
    private static let clientLog = Parameter.flag(
        "Desk.client.<number>.log", needs: [.given("Desk.client.<number>.path")], summary: "Whether it is logged.")
    private static let clientPath = Parameter<String?>.string("Desk.client.<number>.path", .path, summary: "Its path.")
    private static let desk = SettingsSection(
        title: "Desk", namespaces: ["Desk."], [clientName.descriptor, clientLog.descriptor, clientPath.descriptor])

    private let folder: TemporaryDirectory

    init() throws { folder = try TemporaryDirectory() }

    private func load(_ settings: [(String, String)], _ form: FileForm = .properties) throws -> LogonConfiguration {
        let path = try folder.write(form.text(settings).utf8, to: form.fileName)
        return try LogonConfiguration.load(path: path, registry: ProviderRegistry(sections: [Self.section, Self.desk]))
    }

    @Test(arguments: FileForm.allCases) func itsValuesAreTyped(form: FileForm) throws {
        let given = try load(
            [
                ("Export.directory", "/srv/tls"), ("Export.names", "a, b"), ("Export.delay", "7"),
                ("Export.log", "TRUE"),
            ], form)
        #expect(given.settings[Self.directory] == "/srv/tls" && given.settings[Self.names] == ["a", "b"])
        #expect(given.settings[Self.delay] == .seconds(7) && given.settings[Self.log])
        #expect(given.warnings.isEmpty)
        let absent = try load([], form)
        #expect(absent.settings[Self.directory] == nil && absent.settings[Self.names].isEmpty)
        #expect(absent.settings[Self.delay] == .seconds(5) && !absent.settings[Self.log])
    }

    @Test func aListMayHaveNumberedKeys() throws {
        let configuration = try load([("Export.names.10", "c"), ("Export.names.2", "b"), ("Export.names.1", "a, x")])
        #expect(configuration.settings[Self.names] == ["a", "x", "b", "c"])
    }

    @Test func aGroupHasMembersByNumber() throws {
        let settings = try load([
            ("Desk.client.10.name", "ten"), ("Desk.client.2.path", "/two"), ("Desk.client.2.log", "true"),
            ("Desk.client.2.name", "two"),
        ]).settings
        #expect(settings.members(of: Self.clientName) == [2, 10])
        #expect(settings[Self.clientName.of(10)] == "ten" && settings[Self.clientName.of(2)] == "two")
        #expect(settings[Self.clientLog.of(2)] && !settings[Self.clientLog.of(10)])
        #expect(try load([]).settings.members(of: Self.clientName) == [])
    }

    @Test func aChangeIsAChangeOfTheConfiguration() throws {
        let one = try load([("Export.delay", "7")])
        #expect(try one == load([("Export.delay", "7")]))
        #expect(try one != load([("Export.delay", "8")]))
    }

    @Test(
        "A mistake names file, line and key, and not the value",
        arguments: [
            ([("Export.delay", "s3cret")], "The key 'Export.delay' must be a number of seconds from 1 to 60."),
            ([("Export.delay", "")], "The key 'Export.delay' must be a number of seconds from 1 to 60."),
            ([("Export.log", "true")], "The key 'Export.log' needs a 'Export.directory'."),
            (
                [("export.delay", "s3cret")],
                "The key 'export.delay' is unknown; there are Export.directory, Export.names, Export.delay, Export.log."
            ),
            (
                [("Export.names.x", "s3cret")],
                "The key 'Export.names.x' is unknown; there are Export.directory, Export.names, Export.delay, Export.log."
            ),
            (
                [("Desk.client.1.log", "true"), ("Desk.client.1.name", "a")],
                "The key 'Desk.client.1.log' needs a 'Desk.client.1.path'."
            ),
            (
                [("Desk.client.01.name", "s3cret")],
                "The key 'Desk.client.01.name' is unknown; there are Desk.client.<number>.name, Desk.client.<number>.log, Desk.client.<number>.path."
            ),
            (
                [("Desk.client.1.nam", "s3cret")],
                "The key 'Desk.client.1.nam' is unknown; there are Desk.client.<number>.name, Desk.client.<number>.log, Desk.client.<number>.path."
            ),
            (
                [("Export.names.1", "s3cret"), ("Export.names", "b")],
                "The key 'Export.names.1' and 'Export.names' exclude each other."
            ),
        ])
    func mistakes(settings: [(String, String)], message: String) throws {
        #expect {
            _ = try load(settings)
        } throws: {
            guard let error = $0 as? ProviderError else { return false }
            return error.code == .configurationInvalid && error.message.hasSuffix("properties:1: " + message)
                && error.provider == nil
        }
    }

    @Test("The keys of a section of another program are accepted, unless they are misspelt")
    func aSectionWithoutKeysIsOfAnotherProgram() throws {
        let registry = try ProviderRegistry(sections: [SettingsSection(title: "Other", namespaces: ["Other."], [])])
        func load(_ line: String) throws -> LogonConfiguration {
            let path = try folder.write(line.utf8, to: "other.properties")
            return try LogonConfiguration.load(path: path, registry: registry)
        }
        let configuration = try load("Other.client.1.name = \n")
        #expect(configuration.warnings.isEmpty && configuration.settings.declared.isEmpty)
        for (key, phrase) in [("other.name", "must be spelled Other.…"), ("Othre.name", "looks like 'Other.…'")] {
            let error = try #require(throws: ProviderError.self) { try load("\(key) = s3cret\n") }
            #expect(error.code == .configurationInvalid && error.message.contains(phrase), "\(error)")
            #expect(error.message.contains("properties:1: ") && !error.message.contains("s3cret"))
        }
    }

    @Test func withoutTheRoomItsKeysAreUnknown() throws {
        let path = try folder.write("Export.delay = 7\n".utf8, to: "plain.properties")
        let configuration = try LogonConfiguration.load(path: path, registry: ProviderRegistry())
        #expect(configuration.warnings == ["\(path):1: The key 'Export.delay' is unknown and has no effect."])
    }
}
