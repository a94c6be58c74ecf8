import CertificateProviding
import Glibc
import TestSupport
import Testing

@testable import Logon

@Suite struct ConfigurationFileTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    @Test func readsAFile() throws {
        let path = try directory.write(0...255, to: "file")
        #expect(try ConfigurationFile(path: path).bytes == Array(0...255))
    }

    @Test func followsLinks() throws {
        let path = try directory.write("a=1".utf8, to: "file")
        try #require(symlink(path, directory.path + "/link") == 0)
        #expect(try ConfigurationFile(path: directory.path + "/link").bytes == Array("a=1".utf8))
    }

    @Test(
        "A configuration file larger than 1 MiB is refused",
        arguments: [(ConfigurationFile.maximumSize, true), (ConfigurationFile.maximumSize + 1, false)])
    func boundsTheSize(size: Int, isAccepted: Bool) throws {
        let path = try directory.write(repeatElement(0x0a, count: size), to: "file")
        if isAccepted {
            #expect(try ConfigurationFile(path: path).bytes.count == size)
        } else {
            let error = failure { try ConfigurationFile(path: path) }
            #expect(error?.code == .configurationInvalid)
            #expect(error?.message.hasPrefix(path) == true)
        }
    }

    /// A path that cannot be used, made in a directory.
    struct BadPath: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var code: ProviderError.Code = .configurationInvalid
        var part: String
        var make: @Sendable (TemporaryDirectory) throws -> String
    }

    @Test(
        "A path that does not lead to a readable regular file is refused",
        arguments: [
            BadPath(testDescription: "missing", code: .configurationMissing, part: "does not exist") {
                $0.path + "/file"
            },
            BadPath(testDescription: "empty path", code: .configurationMissing, part: "does not exist") { _ in "" },
            BadPath(testDescription: "NUL in path", part: "Invalid argument") { $0.path + "\0" },
            BadPath(testDescription: "directory", part: "a directory") { $0.path },
            BadPath(testDescription: "device", part: "a device") { _ in "/dev/zero" },
            BadPath(testDescription: "path through a file", part: String(cString: strerror(ENOTDIR))) {
                try $0.write([], to: "file") + "/clienthub.properties"
            },
            BadPath(testDescription: "name too long", part: String(cString: strerror(ENAMETOOLONG))) {
                $0.path + "/" + String(repeating: "x", count: 300)
            },
            BadPath(testDescription: "pipe without a writer", part: "a named pipe") {
                let path = $0.path + "/pipe"
                try #require(mkfifo(path, 0o600) == 0)
                return path
            },
            BadPath(testDescription: "link to itself", part: String(cString: strerror(ELOOP))) {
                let path = $0.path + "/link"
                try #require(symlink(path, path) == 0)
                return path
            },
            BadPath(testDescription: "sparse gigabyte", part: "the limit is 1048576 bytes") {
                let path = try $0.write([], to: "sparse")
                try #require(truncate(path, 1 << 30) == 0)
                return path
            },
            BadPath(testDescription: "unreadable", part: String(cString: strerror(EIO))) { _ in "/proc/self/mem" },
        ])
    func refuses(bad: BadPath) throws {
        let path = try bad.make(directory)
        let error = failure { try ConfigurationFile(path: path) }
        #expect(error?.code == bad.code)
        #expect(error?.message.hasPrefix(path.withVisibleControls) == true, "\(error?.message ?? "")")
        #expect(error?.message.contains(bad.part) == true, "\(error?.message ?? "")")
    }

    @Test(
        "The name and the first bytes decide between property file and property list",
        arguments: [
            ("/etc/clienthub.properties", "<?xml", .properties),
            ("/etc/clienthub.plist", "a=1", .propertyList),
            ("clienthub.PLIST", "", .propertyList),
            ("clienthub", "a=1", .properties),
            ("clienthub", "", .properties),
            ("clienthub", "<?xml version='1.0'?>", .propertyList),
            ("/etc.plist/clienthub", "\u{feff}\n <plist>", .propertyList),
            ("/etc.plist/clienthub", "a=1", .properties),
            ("clienthub.conf", "<!DOCTYPE plist", .propertyList),
            ("clienthub.conf", "bplist00", .propertyList),
            ("plist", "a=1", .properties),
            ("/", "", .properties),
        ] as [(String, String, ConfigurationFile.Form)])
    func choosesTheForm(path: String, content: String, form: ConfigurationFile.Form) {
        #expect(ConfigurationFile(path: path, bytes: Array(content.utf8)).form == form)
    }
}
