package import CertificateProviding
import Crypto
import FoundationEssentials
import Glibc

/// The directories in which plugins are installed, most preferred first.
public struct PluginDirectories: Sendable {
    /// Absolute paths. Those that do not exist are left out when they are read.
    package var paths: [String]

    /// A program that goes before those of its id in the directories, whatever its owner and mode.
    private var program: String?

    /// Creates a list of absolute paths.
    public init(_ paths: [String]) { self.paths = paths }

    /// For a program that the user names, as in a shell. Its owner and mode are not checked.
    package init(program path: String, beside directories: PluginDirectories) {
        (paths, program) = (directories.paths, path)
    }

    /// The directories of this host and user: `/usr/local/lib/certprov/plugins`, `/usr/lib/certprov/plugins`, `/etc/certprov/plugins`,
    /// and for a user other than root `$XDG_DATA_HOME/certprov/plugins`, by default `~/.local/share/certprov/plugins`.
    public static var standard: PluginDirectories {
        standard(user: geteuid()) { getenv($0).map { String(cString: $0) } }
    }

    static func standard(user: uid_t, environment: (String) -> String?) -> PluginDirectories {
        var paths = ["/usr/local/lib/certprov/plugins", "/usr/lib/certprov/plugins", "/etc/certprov/plugins"]
        guard user != 0 else { return PluginDirectories(paths) }
        if let data = environment("XDG_DATA_HOME"), data.hasPrefix("/") {
            paths.append(data + "/certprov/plugins")
        } else if let home = environment("HOME"), home.hasPrefix("/") {
            paths.append(home + "/.local/share/certprov/plugins")
        }
        return PluginDirectories(paths)
    }
}

/// A plugin in one of the directories.
package struct InstalledPlugin: Sendable {
    /// The name behind `certprov-plugin-`.
    package let id: ProviderID
    /// The executable file.
    package let path: String
    /// Why it is not used, with the next step; `nil` for a plugin that is.
    package let refusal: String?
    /// Whether its owner and mode are checked at each start.
    var isChecked = true

    /// Returns why a program could not be installed where it is; `nil` if it could.
    package static func refusal(ofProgram path: String) -> String? {
        do throws(TrustedPath.Refusal) {
            return try TrustedPath.check(path, .program) ? nil : "\(path.withVisibleControls) does not exist"
        } catch { return error.reason }
    }
}

extension PluginDirectories {
    package static let prefix = "certprov-plugin-"
    /// The greatest number of plugins that are looked at.
    private static let maximum = 256

    /// The paths without those of a directory that an earlier one names: with another spelling, or by a symbolic link.
    private var distinct: [String] {
        var seen: Set<[UInt64]> = []
        return paths.filter { path in
            var status = stat()
            guard stat(path, &status) == 0 else { return true }
            return seen.insert([UInt64(status.st_dev), UInt64(status.st_ino)]).inserted
        }
    }

    /// The directories of plugins: a clause.
    var whereabouts: String {
        let shown = distinct.map { path in
            path.withVisibleControls
                + (access(path, F_OK) == 0 ? "" : errno == EACCES ? " (not readable)" : " (missing)")
        }
        return "plugins are the files \(Self.prefix)ID in \(shown.joined(separator: ", "))"
    }

    /// The names of a directory that begin as those of plugins. The launcher of plugins is not one.
    private static func names(in directory: String) -> [String] {
        ((try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []).sorted().filter {
            $0.hasPrefix(prefix) && $0 != PluginLauncher.name
        }
    }

    /// Files whose names cannot be those of plugins, with the reason.
    var misnamed: [(path: String, reason: String)] {
        distinct.flatMap { directory in
            let names = Self.names(in: directory).filter {
                ProviderID(rawValue: String($0.dropFirst(Self.prefix.count))) == nil
            }
            return names.prefix(Self.maximum).map { name in
                (
                    "\(directory)/\(name)",
                    "an id has lower-case letters, digits, '-' and '_' only; rename \(directory)/\(name)"
                        .withVisibleControls
                )
            }
        }
    }

    /// Returns the plugins, in alphabetical order. Reads the directories, and starts nothing.
    ///
    /// - Parameter builtIn: Names that plugins must not have.
    func scan(builtIn: Set<ProviderID>) -> [InstalledPlugin] {
        if let program {
            guard let name = program.split(separator: "/").last, name.hasPrefix(Self.prefix),
                let id = ProviderID(rawValue: String(name.dropFirst(Self.prefix.count)))
            else { return [] }
            let refusal =
                builtIn.contains(id) || id.rawValue.hasSuffix("_")
                ? Self.refusal(of: id, [program], builtIn: builtIn) : nil
            let others = PluginDirectories(paths).scan(builtIn: builtIn).filter { $0.id != id }
            return [InstalledPlugin(id: id, path: program, refusal: refusal, isChecked: false)] + others
        }
        var found: [ProviderID: [String]] = [:]
        var refusals: [String: String] = [:]
        for directory in distinct {
            let names = Self.names(in: directory)
            guard !names.isEmpty else { continue }
            var refusal: String?
            do throws(TrustedPath.Refusal) { _ = try TrustedPath.check(directory, .directory) } catch {
                refusal = error.reason
            }
            for name in names.prefix(Self.maximum) {
                guard let id = ProviderID(rawValue: String(name.dropFirst(Self.prefix.count))) else { continue }
                let path = directory + "/" + name
                found[id, default: []].append(path)
                refusals[path] = refusal
            }
        }
        return found.map { id, paths in
            InstalledPlugin(
                id: id, path: paths[0], refusal: refusals[paths[0]] ?? Self.refusal(of: id, paths, builtIn: builtIn))
        }.sorted { $0.id < $1.id }
    }

    private static func refusal(of id: ProviderID, _ paths: [String], builtIn: Set<ProviderID>) -> String? {
        // A program has parts of the identity store for itself.
        if id.rawValue.hasSuffix("_") {
            return "names that end in '_' are reserved; rename \(paths[0].withVisibleControls)"
        }
        if builtIn.contains(id) { return "'\(id)' is built in; rename \(paths[0].withVisibleControls)" }
        if paths.count > 1 {
            return
                "two plugins are called '\(id)': remove \(paths.map(\.withVisibleControls).joined(separator: " or "))"
        }
        return InstalledPlugin.refusal(ofProgram: paths[0])
    }
}

/// The program of a plugin, as it was when it was looked at.
struct PluginProgram: Sendable {
    let id: ProviderID
    let path: String
    /// SHA-256 of the file, in hexadecimal digits.
    let digest: String

    /// The greatest size of a program in bytes.
    private static let maximumSize = 512 << 20

    /// Checks owner, mode and digest. Blocks on the file system.
    ///
    /// - Parameter expected: The digest in the configuration.
    /// - Throws: `configurationInvalid`.
    init(_ plugin: InstalledPlugin, expected: String?) throws(ProviderError) {
        (id, path) = (plugin.id, plugin.path)
        if plugin.isChecked, let refusal = InstalledPlugin.refusal(ofProgram: path) {
            throw ProviderError(
                .configurationInvalid, "The plugin '\(id)' is not used: \(refusal).", provider: id)
        }
        do throws(RegularFile.Failure) {
            digest = Array(SHA256.hash(data: try RegularFile.read(path, atMost: Self.maximumSize))).hexEncoded
        } catch {
            throw ProviderError(
                .configurationInvalid,
                "The plugin '\(id)' is not used: \(path.withVisibleControls) cannot be read: \(error).",
                provider: id)
        }
        if let expected, expected.lowercased() != digest {
            throw ProviderError(
                .configurationInvalid,
                "The plugin '\(id)' is not used: \(path.withVisibleControls) has the SHA-256 \(digest), and not the configured "
                    + "one. If the file is the right one, set CertificateProvider.\(id).sha256 to that.", provider: id)
        }
    }
}
