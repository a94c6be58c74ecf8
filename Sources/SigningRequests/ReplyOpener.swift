import CLinux
package import CertificateProviding
import Glibc

/// Hands a reply to the application that is registered for its scheme, or a file to that for its kind, by xdg-open(1).
package enum ReplyOpener {
    /// The longest argument of a program that the kernel takes (MAX_ARG_STRLEN, execve(2)), in bytes, without its NUL.
    package static let longestURL = 131_071

    /// Starts `xdg-open URL`, without a shell, and waits for its end. On a desktop that xdg-open does not know, this is the end of
    /// the application that it starts: one that still runs after a while has got the URL, and is left alone.
    ///
    /// - Parameters:
    ///   - url: The reply.
    ///   - time: How long to wait.
    /// - Throws: `operationNotAllowed` for a URL that is too long; `unavailable` if xdg-open cannot be started or finds no
    ///   application.
    package static func open(
        _ url: RequestURL, within time: Duration = .seconds(10)
    ) async throws(ProviderError) {
        let text = url.text
        guard text.utf8.count <= longestURL else {
            throw ProviderError(
                .operationNotAllowed,
                "The reply has \(text.utf8.count) bytes, and an argument of a program at most \(longestURL); have the application "
                    + "use the socket.")
        }
        guard let end = try await failure(of: text, within: time) else { return }
        throw ProviderError(
            .unavailable,
            "xdg-open, which hands the reply to the application, \(end); look which one is registered: xdg-mime query default "
                + "x-scheme-handler/\(url.scheme)")
    }

    /// Shows a file to the person: starts `xdg-open PATH` as ``open(_:within:)`` does.
    ///
    /// - Parameters:
    ///   - path: Absolute.
    ///   - time: How long to wait. A program that shows it may run for longer.
    /// - Throws: `unavailable`.
    package static func show(
        _ path: String, within time: Duration = .seconds(2)
    ) async throws(ProviderError) {
        guard let end = try await failure(of: path, within: time) else { return }
        throw ProviderError(
            .unavailable, "xdg-open, which shows \(path.withVisibleControls), \(end); open it with another program.")
    }

    /// - Returns: How xdg-open has ended, if that is a failure.
    private static func failure(
        of argument: String, within time: Duration
    ) async throws(ProviderError) -> String? {
        let status = try await BlockingExecutor.threads(maximum: 1).run { () throws(ProviderError) in
            try run(["xdg-open", argument], atMost: time)
        }
        guard let status, status != 0 else { return nil }
        return status & 0x7f == 0 ? "failed with status \(status >> 8 & 0xff)" : "was ended by signal \(status & 0x7f)"
    }

    /// Runs a program that is found in PATH, with the variables of this session, which this process belongs to as the application
    /// does.
    ///
    /// - Returns: Its status, as waitpid(2) gives it; `nil` if it still runs.
    private static func run(
        _ arguments: [String], atMost time: Duration
    ) throws(ProviderError) -> Int32? {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
        // Results are those of this process.
        posix_spawn_file_actions_adddup2(&actions, 2, 1)
        certprov_close_from(&actions, 3)
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var (none, all) = (sigset_t(), sigset_t())
        sigemptyset(&none)
        sigfillset(&all)
        posix_spawnattr_setsigmask(&attributes, &none)
        posix_spawnattr_setsigdefault(&attributes, &all)
        // POSIX_SPAWN_SETSID, which Swift does not see: the terminal's signals are not for the application.
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF) | 0x80)
        var words: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) } + [nil]
        defer { for word in words { free(word) } }
        var pid: pid_t = 0
        let code = posix_spawnp(&pid, arguments[0], &actions, &attributes, &words, environ)
        guard code == 0 else {
            throw ProviderError(
                .unavailable,
                "\(arguments[0]) cannot be started: \(UnixSocket.text(code)); install the package xdg-utils.")
        }
        let process = certprov_process(pid)
        defer { if process >= 0 { close(process) } }
        let end = ContinuousClock.now + time
        var waiting = pollfd(fd: process, events: Int16(POLLIN), revents: 0)
        while process >= 0, poll(&waiting, 1, milliseconds(until: end)) <= 0 { if end <= .now { return nil } }
        var status: Int32 = 0
        while waitpid(pid, &status, 0) < 0 && errno == EINTR {}
        return status
    }
}
