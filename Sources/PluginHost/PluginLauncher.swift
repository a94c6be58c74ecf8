import CLinux
import CertificateProviding
import FoundationEssentials
import Glibc

/// Finds the launcher of plugins.
enum PluginLauncher {
    static let name = "certprov-plugin-launcher"

    /// The variables of a plugin: the usual ones, and those of this process with these names.
    static func environment(with names: [String]) -> [String: String] {
        var environment = ["PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"]
        for name in names { environment[name] = getenv(name).map { String(cString: $0) } }
        return environment
    }

    /// Returns its path: beside the running program, or in `libexec/certprov` of the program's prefix, of `/usr/local` or of
    /// `/usr`, or in `/usr/lib/certprov`.
    ///
    /// - Throws: `unavailable` with the places; `configurationInvalid` for one that others may change.
    static func find() throws(ProviderError) -> String {
        var places: [String] = []
        if let program = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe") {
            let directory = URL(filePath: program).deletingLastPathComponent()
            let beside = directory.appending(path: name).path
            // Another user who may change the directory may replace the program too.
            if access(beside, X_OK) == 0 {
                return try checked(beside) { path throws(TrustedPath.Refusal) in try TrustedPath.checkFile(path) }
            }
            places.append(directory.path)
            places.append(directory.deletingLastPathComponent().appending(path: "libexec/certprov").path)
        }
        places += ["/usr/local/libexec/certprov", "/usr/libexec/certprov", "/usr/lib/certprov"]
        for place in places where access("\(place)/\(name)", X_OK) == 0 { return try checked("\(place)/\(name)") }
        throw ProviderError(
            .unavailable,
            "The program '\(name)', which starts plugins, is not installed; it is searched in "
                + places.map(\.withVisibleControls).joined(separator: ", ") + ".")
    }

    /// Returns a path where owner and mode are as those of a plugin must be.
    ///
    /// - Throws: `configurationInvalid`.
    static func checked(
        _ path: String,
        _ check: (String) throws(TrustedPath.Refusal) -> Void = { path throws(TrustedPath.Refusal) in
            _ = try TrustedPath.check(path, .program)
        }
    ) throws(ProviderError) -> String {
        do throws(TrustedPath.Refusal) { try check(path) } catch {
            throw ProviderError(
                .configurationInvalid, "The program '\(name)', which starts plugins, is not used: \(error.reason).")
        }
        return path
    }
}

/// A running plugin: the launcher's process, and the pipes to the plugin.
///
/// ``reap()`` is the last call.
struct LaunchedPlugin: Sendable {
    /// Written to by this side.
    let input: Int32
    /// Read by this side.
    let output: Int32
    let errors: Int32
    /// The socket to the launcher.
    private let control: Int32
    private let pid: pid_t
    /// The plugin's working directory. The launcher makes and removes it, so that nothing is left where this side is killed;
    /// this side removes it where the launcher was.
    private let directory: String

    /// The limits of a plugin: bytes of memory, and open files.
    private static let limits = (memory: 2 << 30, files: 256)

    /// Starts a program. Blocks until the launcher runs.
    ///
    /// - Parameter environment: The variables of the plugin, and no others.
    /// - Throws: `unavailable`.
    init(_ program: PluginProgram, launcher: String, environment: [String: String]) throws(ProviderError) {
        // The plugin gets it as its HOME, which must be absolute.
        let temporary = getenv("TMPDIR").map { String(cString: $0) } ?? ""
        let name = (0..<4).map { _ in String(UInt32.random(in: 0...UInt32.max), radix: 36) }.joined()
        directory = "\(temporary.hasPrefix("/") ? temporary : "/tmp")/certprov-plugin-\(name)"
        var open: [Int32] = []
        func pipe() -> (read: Int32, write: Int32) {
            var ends: [Int32] = [-1, -1]
            guard certprov_pipe(&ends) == 0 else { return (-1, -1) }
            ends = ends.map(certprov_move_up)
            open += ends
            return (ends[0], ends[1])
        }
        let (toPlugin, fromPlugin, fromErrors) = (pipe(), pipe(), pipe())
        var sockets: [Int32] = [-1, -1]
        if socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &sockets) == 0 {
            sockets = sockets.map(certprov_move_up)
            open += sockets
        }
        let pid = Self.spawn(
            launcher, directory, program.path, environment,
            [toPlugin.read, fromPlugin.write, fromErrors.write, sockets[1]])
        guard open.count == 8, open.allSatisfy({ $0 >= 0 }), let pid else {
            let code = errno
            for descriptor in open where descriptor >= 0 { close(descriptor) }
            if let pid {
                Glibc.kill(pid, SIGKILL)
                waitpid(pid, nil, 0)
            }
            throw ProviderError(
                .unavailable, "The plugin '\(program.id)' cannot be started: \(errorText(code)).",
                provider: program.id)
        }
        for descriptor in [toPlugin.read, fromPlugin.write, fromErrors.write, sockets[1]] { close(descriptor) }
        (input, output, errors, control) = (toPlugin.write, fromPlugin.read, fromErrors.read, sockets[0])
        self.pid = pid
    }

    /// - Parameter streams: The launcher's descriptors 0 to 3.
    /// - Returns: The launcher's process; nil with `errno` set.
    private static func spawn(
        _ launcher: String, _ directory: String, _ program: String, _ environment: [String: String], _ streams: [Int32]
    ) -> pid_t? {
        guard streams.allSatisfy({ $0 >= 0 }) else { return nil }
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        for (target, stream) in streams.enumerated() {
            posix_spawn_file_actions_adddup2(&actions, stream, Int32(target))
        }
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        // Threads of this process may hold signals back.
        var signals = sigset_t()
        sigemptyset(&signals)
        posix_spawnattr_setsigmask(&attributes, &signals)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK))
        let arguments = [launcher, directory, String(limits.memory), String(limits.files), program]
        var words: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) }
        var variables: [UnsafeMutablePointer<CChar>?] = environment.map { strdup("\($0.key)=\($0.value)") }
        words.append(nil)
        variables.append(nil)
        defer {
            for text in words { free(text) }
            for text in variables { free(text) }
        }
        var pid: pid_t = 0
        let status = posix_spawn(&pid, launcher, &actions, &attributes, words, variables)
        errno = status
        return status == 0 ? pid : nil
    }

    /// How a plugin has ended.
    enum End: Sendable {
        case exit(Int32), signal(Int32)
        /// With `errno`: the program was not started.
        case noStart(Int32), noDirectory(Int32)
    }

    /// Waits for the launcher to say how the plugin has ended; nil when the time is over, or the launcher is gone.
    func wait(atMost milliseconds: Int32) -> End? {
        let line = line(atMost: milliseconds)?.split(separator: " ") ?? []
        guard line.count == 2, let value = Int32(line[1]) else { return nil }
        switch line[0] {
        case "exit": return .exit(value)
        case "signal": return .signal(value)
        case "start": return .noStart(value)
        case "directory": return .noDirectory(value)
        default: return nil
        }
    }

    private func line(atMost milliseconds: Int32) -> String? {
        var line: [UInt8] = []
        while line.count < 64 {
            var waiting = pollfd(fd: control, events: Int16(POLLIN), revents: 0)
            let ready = poll(&waiting, 1, milliseconds)
            if ready < 0 && errno == EINTR { continue }
            var byte: UInt8 = 0
            guard ready > 0, recv(control, &byte, 1, 0) == 1 else { return nil }
            if byte == 0x0a { return String(decoding: line, as: UTF8.self) }
            line.append(byte)
        }
        return nil
    }

    /// Asks the plugin to end (SIGTERM).
    func terminate() { _ = send(control, "T", 1, Int32(MSG_NOSIGNAL)) }

    /// Ends the plugin and everything that it has started.
    ///
    /// - Returns: Whether no process is left within that time. The kernel can delay that, for a process that waits for a device,
    ///   and a plugin that stops the launcher.
    func kill(atMost milliseconds: Int32) -> Bool {
        Glibc.shutdown(control, Int32(SHUT_WR))
        let end = ContinuousClock.now + .milliseconds(milliseconds)
        while true {
            let left = Int32(clamping: Int64((end - .now) / .milliseconds(1)))
            // Looks for a launcher that was stopped during the wait.
            if isStopped || left <= 0 { return false }
            if hasEnded(atMost: min(left, 100)) { return true }
        }
    }

    /// Ends the plugin, everything that it has started and the launcher, which does not do it itself within that time.
    func killAll(atMost milliseconds: Int32) {
        Glibc.shutdown(control, Int32(SHUT_WR))
        let end = ContinuousClock.now + .milliseconds(milliseconds)
        while isOwn {
            // The launcher, also one that is stopped, is the parent of those whose own parent has gone.
            for process in Descendants.of(pid) { Glibc.kill(process, SIGKILL) }
            guard .now < end else { break }
            Glibc.kill(pid, SIGCONT)
            if hasEnded(atMost: 10) { return }
        }
        if isOwn { Glibc.kill(pid, SIGKILL) }
    }

    /// Whether the launcher has closed its socket within that time.
    private func hasEnded(atMost milliseconds: Int32) -> Bool {
        while true {
            var waiting = pollfd(fd: control, events: Int16(POLLIN), revents: 0)
            let ready = poll(&waiting, 1, milliseconds)
            if ready < 0 && errno == EINTR { continue }
            guard ready > 0 else { return false }
            // The launcher's last bytes about the end.
            var byte: UInt8 = 0
            guard recv(control, &byte, 1, 0) == 1 else { return true }
        }
    }

    /// Whether the launcher is stopped: by the plugin, since it has a session of its own.
    var isStopped: Bool {
        var info = siginfo_t()
        return waitid(P_PID, id_t(pid), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 && info.si_signo != 0
    }

    /// Whether the number of the launcher's process is not another one's by now.
    private var isOwn: Bool {
        var info = siginfo_t()
        return waitid(P_PID, id_t(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0
    }

    /// Waits for the launcher's end. The last call.
    func reap() {
        close(control)
        while waitpid(pid, nil, 0) < 0 && errno == EINTR {}
        // One of another user is none of the launcher's.
        var status = stat()
        guard lstat(directory, &status) == 0, status.st_uid == geteuid() else { return }
        try? FileManager.default.removeItem(atPath: directory)
    }
}

/// The processes that a process has started, and those that these have.
enum Descendants {
    /// Those that `/proc` shows now, without those that have ended and that their parent has not noticed.
    static func of(_ root: pid_t) -> [pid_t] {
        guard let all = opendir("/proc") else { return [] }
        defer { closedir(all) }
        var parents: [pid_t: pid_t] = [:]
        var ended: Set<pid_t> = []
        while let entry = readdir(all) {
            let name = withUnsafeBytes(of: &entry.pointee.d_name) {
                String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
            }
            guard let process = pid_t(name), let (state, parent) = status(of: process) else { continue }
            parents[process] = parent
            if state == "Z" || state == "X" { ended.insert(process) }
        }
        return parents.keys.filter { process in
            var next = process
            while let parent = parents[next], parent != root, parent != next { next = parent }
            return parents[next] == root && !ended.contains(process)
        }
    }

    /// The state and the parent: the first two fields of `/proc/PID/stat` behind the last parenthesis of the name.
    private static func status(of process: pid_t) -> (state: Substring, parent: pid_t)? {
        // Not by Foundation, which keeps memory for each file of `/proc` that it reads.
        let file = open("/proc/\(process)/stat", O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { return nil }
        defer { close(file) }
        var line = [UInt8](repeating: 0, count: 512)
        let count = read(file, &line, line.count)
        guard count > 0, let end = line[..<count].lastIndex(of: UInt8(ascii: ")")) else { return nil }
        let fields = String(decoding: line[(end + 1)..<count], as: UTF8.self).split(separator: " ")
        guard fields.count > 1, let parent = pid_t(fields[1]) else { return nil }
        return (fields[0], parent)
    }
}
