public import CertificateProviding
import Glibc

/// The place of the property file.
public enum PropertyFile {
    /// Returns the path of the property file: `name` (the value of an option `--config`), else `$CERTPROV_CONFIG`, else the first that
    /// exists of `certprov/clienthub.properties` and `.plist` in `$XDG_CONFIG_HOME` (or `~/.config`), then in `/etc`. Blocks on the file
    /// system.
    ///
    /// - Throws: `configurationMissing`, with the paths that were searched.
    public static func path(named name: String?) throws(ProviderError) -> String {
        if let path = existing(named: name, variable) { return path }
        throw ProviderError(
            .configurationMissing,
            "No property file was found. Looked for \(searched(variable)). Name one with --config.")
    }

    /// As ``path(named:)``; `nil` if there is none.
    package static func existing(named name: String?, _ environment: (String) -> String?) -> String? {
        name ?? environment("CERTPROV_CONFIG").flatMap { $0.isEmpty ? nil : $0 }
            ?? standardPaths(environment).first { access($0, F_OK) == 0 }
    }

    /// The standard paths, for messages.
    package static func searched(_ environment: (String) -> String?) -> String {
        standardPaths(environment).joined(separator: ", ").withVisibleControls
    }

    /// Returns an environment variable of the process.
    package static func variable(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }

    private static func standardPaths(_ environment: (String) -> String?) -> [String] {
        var directories: [String] = []
        if let home = environment("XDG_CONFIG_HOME"), home.hasPrefix("/") {
            directories.append(home + "/certprov")
        } else if let home = environment("HOME"), home.hasPrefix("/") {
            // The default of the XDG Base Directory Specification.
            directories.append(home + "/.config/certprov")
        }
        directories.append("/etc/certprov")
        return directories.flatMap { ["\($0)/clienthub.properties", "\($0)/clienthub.plist"] }
    }
}
