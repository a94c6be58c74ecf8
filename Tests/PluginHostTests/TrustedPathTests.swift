import CertificateProviding
import Foundation
import Glibc
import IdentityStore
import TestSupport
import Testing

@testable import PluginHost

/// Which files and directories are used.
@Suite struct TrustedPathTests {
    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
        try directory.write(Array("#!/bin/sh\n".utf8), to: "certprov-plugin-a", mode: 0o755)
    }

    private func refusal(user: uid_t = geteuid()) -> String? {
        let plugins = PluginDirectories([directory.path]).scan(builtIn: [ProviderID("pkcs12")])
        return plugins.first { $0.id == ProviderID("a") }?.refusal
    }

    @Test func aFileThatOnlyItsOwnerCanChangeIsUsed() { #expect(refusal() == nil) }

    @Test(arguments: [
        (mode_t(0o775), "other users may write"), (0o757, "other users may write"), (0o644, "is not executable"),
        (0o4755, "runs as another user"),
    ]) func theModeOfTheFileCounts(mode: mode_t, text: String) {
        // Root may execute a file that any user may.
        chmod(directory["certprov-plugin-a"], mode)
        #expect(refusal()?.contains(text) == true, "\(String(describing: refusal()))")
    }

    @Test(arguments: [mode_t(0o777), 0o1777, 0o770]) func theModeOfItsDirectoryCounts(mode: mode_t) {
        chmod(directory.path, mode)
        let refusal = refusal()
        #expect(refusal?.contains("other users may write to \(directory.path)") == true)
        // A directory for all users, such as /tmp, stays one.
        #expect(refusal?.contains("chmod") == (mode & 0o1000 == 0), "\(String(describing: refusal))")
    }

    /// Another user who may change that directory may replace the program too.
    @Test func besideTheProgramTheFileAloneCounts() throws {
        let program = directory["certprov-plugin-a"]
        chmod(directory.path, 0o777)
        #expect(throws: Never.self) { try TrustedPath.checkFile(program) }
        #expect(throws: TrustedPath.Refusal.self) { try TrustedPath.check(program, .program) }
        chmod(program, 0o757)
        #expect(throws: TrustedPath.Refusal.self) { try TrustedPath.checkFile(program) }
    }

    @Test("A directory that is named twice has each plugin once")
    func aDirectoryIsReadOnce() throws {
        try directory.write(Array("#!/bin/sh\n".utf8), to: "certprov-plugin-Upper", mode: 0o755)
        let outer = try TemporaryDirectory()
        symlink(directory.path, outer["link"])
        for other in [directory.path, directory.path + "/", outer["link"]] {
            let plugins = PluginDirectories([directory.path, other])
            #expect(plugins.scan(builtIn: []).map(\.refusal) == [nil], "\(other)")
            #expect(plugins.misnamed.map(\.path) == [directory["certprov-plugin-Upper"]], "\(other)")
        }
        // Another file of the name is another plugin.
        try outer.write(Array("#!/bin/sh\n".utf8), to: "certprov-plugin-a", mode: 0o755)
        let refusals = PluginDirectories([directory.path, outer.path]).scan(builtIn: []).map(\.refusal)
        #expect(refusals.count == 1 && refusals[0]?.contains("two plugins are called 'a'") == true, "\(refusals)")
    }

    @Test func allDirectoriesAboveCount() throws {
        let inner = directory["inner/plugins"]
        try FileManager.default.createDirectory(atPath: inner, withIntermediateDirectories: true)
        try FileManager.default.copyItem(atPath: directory["certprov-plugin-a"], toPath: inner + "/certprov-plugin-a")
        let plugins = PluginDirectories([inner])
        #expect(plugins.scan(builtIn: []).map(\.refusal) == [nil])
        chmod(directory["inner"], 0o777)
        #expect(plugins.scan(builtIn: []).first?.refusal?.contains("may write to \(directory["inner"]) ") == true)
        // If only owners can rename files in a directory, each path below it is looked at alone.
        chmod(directory["inner"], 0o1777)
        #expect(plugins.scan(builtIn: []).map(\.refusal) == [nil])
    }

    @Test func whereALinkLeadsCounts() throws {
        let target = directory["elsewhere"]
        mkdir(target, 0o700)
        rename(directory["certprov-plugin-a"], target + "/program")
        symlink("elsewhere/program", directory["certprov-plugin-a"])
        #expect(refusal() == nil)
        chmod(target, 0o777)
        #expect(refusal()?.contains("may write to \(target) ") == true)
        unlink(target + "/program")
        chmod(target, 0o700)
        #expect(refusal()?.contains("does not exist") == true)
        symlink("loop", target + "/loop")
        unlink(directory["certprov-plugin-a"])
        symlink("elsewhere/loop", directory["certprov-plugin-a"])
        #expect(refusal() != nil)
    }

    @Test(.enabled(if: geteuid() == 0)) func theOwnerCounts() throws {
        #expect(chown(directory["certprov-plugin-a"], 12345, 12345) == 0)
        #expect(refusal()?.contains("belongs to another user (uid 12345)") == true)
        #expect(refusal()?.contains("chown") == false)
        // The user itself may use root's files.
        #expect(try TrustedPath.check("/bin/sh", .program, user: 12345))
    }

    @Test("A file that is not a program need not be executable, and all directories and links on the way to it count")
    func aFile() throws {
        mkdir(directory["inner"], 0o755)
        let file = try directory.write([], to: "inner/file", mode: 0o600)
        symlink("inner/file", directory["link"])
        for path in [file, directory["link"], directory["inner/../inner/./file"]] {
            chmod(directory["inner"], 0o755)
            #expect(try TrustedPath.check(path, .file))
            chmod(directory["inner"], 0o775)
            #expect(throws: TrustedPath.Refusal.self) { try TrustedPath.check(path, .file) }
        }
        chmod(directory["inner"], 0o755)
        for mode: mode_t in [0o620, 0o602] {
            chmod(file, mode)
            #expect(throws: TrustedPath.Refusal.self) { try TrustedPath.check(file, .file) }
        }
        #expect(throws: TrustedPath.Refusal.self) { try TrustedPath.check(directory.path, .file) }
        #expect(try !TrustedPath.check(directory["none"], .file))
    }

    @Test func twoOfOneNameAreRefused() throws {
        let other = try TemporaryDirectory()
        try other.write(Array("#!/bin/sh\n".utf8), to: "certprov-plugin-a", mode: 0o755)
        let plugins = PluginDirectories([directory.path, other.path]).scan(builtIn: [])
        #expect(plugins.count == 1 && plugins[0].refusal?.contains("two plugins are called 'a'") == true)
    }

    @Test func aBuiltInsNameIsRefused() throws {
        try directory.write(Array("#!/bin/sh\n".utf8), to: "certprov-plugin-pkcs12", mode: 0o755)
        let plugins = PluginDirectories([directory.path]).scan(builtIn: [ProviderID("pkcs12")])
        #expect(plugins.map(\.id.rawValue) == ["a", "pkcs12"] && plugins[1].refusal?.contains("is built in") == true)
    }

    /// A plugin called `store` would have the sealed keys of this host as its own storage.
    @Test func aPartOfTheIdentityStoreThatIsTakenIsRefused() throws {
        for name in ["store", "plugins_"] {
            try directory.write(Array("#!/bin/sh\n".utf8), to: "certprov-plugin-\(name)", mode: 0o755)
        }
        let host = PluginHost(
            PluginDirectories([directory.path]), builtIn: [], builtInKeyStores: [SealedKeyStore.descriptor],
            logger: ProviderEnvironment.testing().logger)
        #expect(host.installed.map(\.id.rawValue) == ["a", "plugins_", "store"])
        #expect(host.installed.map { $0.refusal == nil } == [true, false, false])
        #expect(throws: ProviderError.self) {
            try host.provider(ProviderID("store"), ProviderParameters())
        }
    }

    @Test func otherFilesAreNoPlugins() throws {
        for name in [
            "certprov-plugin-", "certprov-plugin-A", "certprov-plugin-launcher", "plugin", "certprov-plugin-a.bak",
        ] {
            try directory.write(Array("#!/bin/sh\n".utf8), to: name, mode: 0o755)
        }
        #expect(PluginDirectories([directory.path]).scan(builtIn: []).map(\.id.rawValue) == ["a"])
    }

    @Test func theUsersDirectoriesAreNotRoots() {
        let variables = ["HOME": "/home/me", "XDG_DATA_HOME": "data"]
        let root = PluginDirectories.standard(user: 0) { variables[$0] }
        #expect(
            root.paths == ["/usr/local/lib/certprov/plugins", "/usr/lib/certprov/plugins", "/etc/certprov/plugins"])
        let user = PluginDirectories.standard(user: 1000) { variables[$0] }
        #expect(user.paths.dropFirst(3) == ["/home/me/.local/share/certprov/plugins"])
        let data = PluginDirectories.standard(user: 1000) { $0 == "XDG_DATA_HOME" ? "/data" : nil }
        #expect(data.paths.last == "/data/certprov/plugins")
    }
}
