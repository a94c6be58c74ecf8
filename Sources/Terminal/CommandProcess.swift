import CLinux
import Glibc

/// The process of a command that has secrets in memory.
public enum CommandProcess {
    /// Prepares the process. Call it first, before any file is opened.
    ///
    /// There are no core dumps. A reader that has gone away (SIGPIPE) and a limit of the size of files (SIGXFSZ) are errors of a write.
    /// A standard stream that is closed is taken: the next file would get its number, and its output.
    public static func prepare() {
        Console.takeClosedStreams()
        // Passwords and keys live in pages that are left out of core dumps; what libraries copied does not. A program
        // that the kernel pipes dumps to gets them whatever the limit is, but none of a process like this.
        _ = certprov_set_dumpable(0)
        var none = rlimit(rlim_cur: 0, rlim_max: 0)
        setrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &none)
        signal(SIGPIPE, SIG_IGN)
        signal(SIGXFSZ, SIG_IGN)
    }
}
