import CertificateProviding
import Glibc
import TestSupport
import Testing

@testable import IdentityStore

@Suite struct StateDirectoryTests {
    struct Row: Sendable {
        var variables: [String: String]
        var user: UInt32
        var path: String
        init(_ variables: [String: String], _ user: UInt32, _ path: String) {
            (self.variables, self.user, self.path) = (variables, user, path)
        }
    }

    static let rows = [
        Row([:], 0, "/var/lib/certprov"),
        Row([:], 1000, "/var/lib/certprov"),
        Row(["HOME": "/root"], 0, "/var/lib/certprov"),
        Row(["HOME": "/home/u"], 1000, "/home/u/.local/state/certprov"),
        Row(["HOME": "home/u"], 1000, "/var/lib/certprov"),
        Row(["HOME": ""], 1000, "/var/lib/certprov"),
        Row(["XDG_STATE_HOME": "/x", "HOME": "/home/u"], 1000, "/x/certprov"),
        Row(["XDG_STATE_HOME": "/x"], 0, "/x/certprov"),
        Row(["XDG_STATE_HOME": "x", "HOME": "/home/u"], 1000, "/home/u/.local/state/certprov"),
        Row(["XDG_STATE_HOME": "", "HOME": "/home/u"], 1000, "/home/u/.local/state/certprov"),
        Row(["STATE_DIRECTORY": "/s", "XDG_STATE_HOME": "/x", "HOME": "/home/u"], 1000, "/s"),
        Row(["STATE_DIRECTORY": "/s:/t"], 0, "/s"),
        Row(["STATE_DIRECTORY": ""], 0, "/var/lib/certprov"),
        Row(["STATE_DIRECTORY": ":"], 0, "/var/lib/certprov"),
    ]

    @Test("The state directory is chosen by STATE_DIRECTORY, XDG_STATE_HOME and user", arguments: rows)
    func hasItsPrecedence(row: Row) throws {
        let path = try StateDirectory.path(environment: { row.variables[$0] }, effectiveUser: row.user)
        #expect(path == row.path)
    }

    @Test(arguments: ["s", "./s", "s:/t"]) func aRelativeStateDirectoryIsRefused(value: String) {
        let error = #expect(throws: ProviderError.self) {
            try StateDirectory.path(
                environment: { ["STATE_DIRECTORY": value, "XDG_STATE_HOME": "/x"][$0] }, effectiveUser: 0)
        }
        #expect(error?.code == .configurationInvalid && error?.message.contains("STATE_DIRECTORY") == true)
    }

    /// The directories that systemd makes for a service with `DynamicUser=` and `StateDirectory=`.
    @Test func aLinkOfSystemdsIsUsed() throws {
        let directory = try TemporaryDirectory()
        for name in ["private", "private/service"] { mkdir(directory[name], 0o700) }
        symlink("private/service", directory["service"])
        let path = try StateDirectory.path(
            environment: { ["STATE_DIRECTORY": directory["service"] + ":/other"][$0] }, effectiveUser: 0)
        let identity = try Samples.stored("x")
        let storage = IdentityStore(path: path).storage(for: ProviderID("test"))
        try storage.setEntry(identity, named: "entry")
        #expect(try storage.entry(named: "entry") == identity)
        #expect(directory.contents().contains("private/service/store.key"))
    }
}
