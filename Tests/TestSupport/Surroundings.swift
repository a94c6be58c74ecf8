import Glibc

/// The surroundings that this process and its children inherit beside variables.
public enum Surroundings {
    /// Makes new files readable by all and writable by their owner, and messages English, whatever the caller has set.
    public static func makeUsual() { usual }

    private static let usual: Void = {
        umask(0o022)
        // Some PKCS#11 modules call setlocale for the whole process.
        setenv("LC_ALL", "C.UTF-8", 1)
    }()
}
