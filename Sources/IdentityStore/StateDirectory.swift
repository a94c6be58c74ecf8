import CertificateProviding
import Glibc

/// Where this host keeps what must outlive a process.
public enum StateDirectory {
    /// Returns `$STATE_DIRECTORY` (systemd.exec(5), `StateDirectory=`), else `$XDG_STATE_HOME/certprov`, else for
    /// anyone but root the default that the XDG Base Directory Specification gives that variable,
    /// `~/.local/state/certprov`, else `/var/lib/certprov`.
    ///
    /// Relative values are passed over, as that specification demands. `$STATE_DIRECTORY` is returned with its symbolic
    /// links resolved: with `DynamicUser=`, systemd itself makes it a link into `/var/lib/private`.
    public static func path() -> String {
        path(environment: { name in getenv(name).map { String(cString: $0) } }, effectiveUser: geteuid())
    }

    static func path(environment: (String) -> String?, effectiveUser: UInt32) -> String {
        // systemd separates several directories with colons; the first one is ours.
        if let given = environment("STATE_DIRECTORY")?.split(separator: ":").first, given.hasPrefix("/") {
            return resolved(String(given))
        }
        if let home = environment("XDG_STATE_HOME"), home.hasPrefix("/") { return home + "/certprov" }
        if effectiveUser != 0, let home = environment("HOME"), home.hasPrefix("/") {
            return home + "/.local/state/certprov"
        }
        return "/var/lib/certprov"
    }

    /// Returns `path` itself where it does not exist yet.
    private static func resolved(_ path: String) -> String {
        guard let real = realpath(path, nil) else { return path }
        defer { free(real) }
        return String(cString: real)
    }
}
