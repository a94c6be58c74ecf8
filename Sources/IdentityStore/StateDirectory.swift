public import CertificateProviding
import Glibc

/// The directory for data that persists on this host.
public enum StateDirectory {
    /// Returns the first of these directories that is set:
    ///
    /// - `$STATE_DIRECTORY` (systemd.exec(5), `StateDirectory=`), with its symbolic links resolved: with
    ///   `DynamicUser=`, systemd makes it a link into `/var/lib/private`
    /// - `$XDG_STATE_HOME/certprov`
    /// - `~/.local/state/certprov`, the default of the XDG Base Directory Specification, except for root
    /// - `/var/lib/certprov`
    ///
    /// Relative values of `$XDG_STATE_HOME` and `$HOME` are ignored, as that specification requires.
    ///
    /// - Throws: `configurationInvalid` for a relative `$STATE_DIRECTORY`, and for a path that is not UTF-8, since the
    ///   store would be in another directory than the configured one.
    public static func path() throws(ProviderError) -> String {
        try path(
            environment: { name throws(ProviderError) in
                try getenv(name).map { value throws(ProviderError) in
                    try text(value, "The variable \(name)")
                }
            }, effectiveUser: geteuid())
    }

    static func path(
        environment: (String) throws(ProviderError) -> String?, effectiveUser: UInt32
    ) throws(ProviderError) -> String {
        // systemd separates several directories with colons; the first one is ours.
        if let given = try environment("STATE_DIRECTORY")?.split(separator: ":").first {
            guard given.hasPrefix("/") else {
                throw ProviderError(
                    .configurationInvalid,
                    "The variable STATE_DIRECTORY is '\(String(given).withVisibleControls)', which is not an absolute path; "
                        + "set it to one that begins with /, or unset it.")
            }
            return try resolved(String(given))
        }
        if let home = try environment("XDG_STATE_HOME"), home.hasPrefix("/") { return home + "/certprov" }
        if effectiveUser != 0, let home = try environment("HOME"), home.hasPrefix("/") {
            return home + "/.local/state/certprov"
        }
        return "/var/lib/certprov"
    }

    /// Resolves symbolic links. Returns `path` unchanged if it does not exist yet.
    private static func resolved(_ path: String) throws(ProviderError) -> String {
        guard let real = realpath(path, nil) else { return path }
        defer { free(real) }
        return try text(real, "The target of the variable STATE_DIRECTORY")
    }

    private static func text(
        _ bytes: UnsafePointer<CChar>, _ what: String
    ) throws(ProviderError) -> String {
        guard let text = String(validatingCString: bytes) else {
            throw ProviderError(
                .configurationInvalid, "\(what) is not UTF-8; use a directory whose path is.")
        }
        return text
    }
}
