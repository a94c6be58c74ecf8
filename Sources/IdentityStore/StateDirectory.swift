public import CertificateProviding
import Glibc

/// Where this host keeps what must outlive a process.
public enum StateDirectory {
    /// Returns `$STATE_DIRECTORY` (systemd.exec(5), `StateDirectory=`), else `$XDG_STATE_HOME/certprov`, else for
    /// anyone but root the default that the XDG Base Directory Specification gives that variable,
    /// `~/.local/state/certprov`, else `/var/lib/certprov`.
    ///
    /// Relative values of the last two are passed over, as that specification demands. `$STATE_DIRECTORY` is returned
    /// with its symbolic links resolved: with `DynamicUser=`, systemd itself makes it a link into `/var/lib/private`.
    ///
    /// - Throws: `configurationInvalid` for a `$STATE_DIRECTORY` that is relative, and for a path that is not UTF-8: the
    ///   store would be in another directory than the one that was named.
    public static func path() throws(CertificateProviderError) -> String {
        try path(
            environment: { name throws(CertificateProviderError) in
                try getenv(name).map { value throws(CertificateProviderError) in
                    try text(value, "The variable \(name)")
                }
            }, effectiveUser: geteuid())
    }

    static func path(
        environment: (String) throws(CertificateProviderError) -> String?, effectiveUser: UInt32
    ) throws(CertificateProviderError) -> String {
        // systemd separates several directories with colons; the first one is ours.
        if let given = try environment("STATE_DIRECTORY")?.split(separator: ":").first {
            guard given.hasPrefix("/") else {
                throw CertificateProviderError(
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

    /// Returns `path` itself where it does not exist yet.
    private static func resolved(_ path: String) throws(CertificateProviderError) -> String {
        guard let real = realpath(path, nil) else { return path }
        defer { free(real) }
        return try text(real, "The directory that the variable STATE_DIRECTORY leads to")
    }

    private static func text(
        _ bytes: UnsafePointer<CChar>, _ what: String
    ) throws(CertificateProviderError) -> String {
        guard let text = String(validatingCString: bytes) else {
            throw CertificateProviderError(
                .configurationInvalid, "\(what) is not UTF-8; name a directory whose path is.")
        }
        return text
    }
}
