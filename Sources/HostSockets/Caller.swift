import CLinux
import CertificateProviding
package import Glibc

/// A process at a socket of this host, as it is at this moment: look again before each answer.
///
/// A user or a group counts only if the process has it now, and had it when it connected.
package struct Caller: Sendable {
    package let process: pid_t
    /// The effective user. `nil` if it has changed since the process connected.
    package let user: uid_t?
    /// The effective group and the supplementary ones.
    package let groups: Set<gid_t>
    /// The control group that it runs in, or why that does not count.
    let place: Result<ControlGroup, ControlGroup.Obstacle>
    /// Why a user or a group alone says nothing of it: a clause. `nil` if it is of the PID and user namespace of this process.
    let isolation: String?
    /// Why nothing of it counts: a clause. `nil` while the process runs.
    let obstacle: String?
    /// When it connected, and now.
    private let connected: Credentials, present: Credentials

    /// Looks at the process that has connected. Blocks on `/proc`.
    package init(_ peer: SocketPeer) {
        self.init(peer.process, peer.descriptor, isBound: peer.isBound, peer.credentials)
    }

    /// Looks at a process; `nil` if there is none. For an explanation only: the next process may have its number.
    package init?(process: pid_t) {
        let descriptor = certprov_process(process)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        guard let present = Credentials(of: process) else { return nil }
        self.init(process, descriptor, isBound: true, present)
    }

    private init(_ process: pid_t, _ descriptor: Int32?, isBound: Bool, _ connected: Credentials) {
        let present = Credentials(of: process)
        isolation = Self.isolation(of: process)
        place = Result { () throws(ControlGroup.Obstacle) in
            guard isBound else {
                throw .init(reason: "this kernel does not bind a process to its connection, which takes Linux 6.5")
            }
            guard let content = Self.read(process, "cgroup") else {
                throw .init(reason: "its control group cannot be read")
            }
            return try ControlGroup(content)
        }
        // After all reading: no other process has had its number so far.
        var event = pollfd(fd: descriptor ?? -1, events: Int16(POLLIN), revents: 0)
        let isRunning = descriptor != nil && poll(&event, 1, 0) == 0
        obstacle = !isRunning ? "the process has ended" : present == nil ? "the process cannot be looked at" : nil
        (self.process, self.connected, self.present) = (process, connected, present ?? connected)
        user = self.present.user == connected.user ? connected.user : nil
        groups = self.present.groups.intersection(connected.groups)
    }

    /// Returns why it is not the service manager's own process for a unit, which is root's: clauses. None if it is.
    package func mismatches(asManagerOf unit: String) -> [String] {
        if let obstacle { return [obstacle] }
        let reasons = [Selector.user(0), .unit(unit)].compactMap { $0.mismatch(self) } + [isolation].compactMap(\.self)
        return Set(reasons).sorted()
    }

    private static func isolation(of process: pid_t) -> String? {
        for kind in ["pid", "user"] {
            guard let own = namespace("/proc/self/ns/\(kind)"), let other = namespace("/proc/\(process)/ns/\(kind)")
            else {
                return "its \(kind) namespace cannot be seen, which takes CAP_SYS_PTRACE"
            }
            if own != other { return "it is in another \(kind) namespace" }
        }
        return nil
    }

    private static func namespace(_ path: String) -> [UInt8]? {
        var buffer = [UInt8](repeating: 0, count: 64)
        let count = readlink(path, &buffer, buffer.count)
        return count > 0 && count < buffer.count ? Array(buffer[..<count]) : nil
    }

    /// Reads a file of a process. At most 1 MiB: the kernel permits 65536 groups.
    fileprivate static func read(_ process: pid_t, _ name: String) -> [UInt8]? {
        let file = open("/proc/\(process)/\(name)", O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { return nil }
        defer { close(file) }
        var (content, buffer): ([UInt8], [UInt8]) = ([], Array(repeating: 0, count: 16_384))
        while content.count < 1 << 20 {
            let count = Glibc.read(file, &buffer, buffer.count)
            guard count > 0 else { return count == 0 ? content : nil }
            content += buffer[..<count]
        }
        return nil
    }
}

extension Caller: CustomStringConvertible {
    /// Its process, user, groups and place, for a log.
    package var description: String {
        let before = user == nil ? " (\(connected.user) when it connected)" : ""
        let groups = present.groups.sorted().map(String.init).joined(separator: ",")
        let place = (try? place.get()).map { " unit \($0.unit) cgroup \($0.path)".withVisibleControls } ?? ""
        return "process \(process) user \(present.user)\(before) groups \(groups)" + place
    }

    /// The effective user when it connected, who is charged for it.
    var connectedUser: uid_t { connected.user }
}

/// The effective user of a process, and its groups: the effective one and the supplementary ones.
struct Credentials: Sendable {
    let user: uid_t
    let groups: Set<gid_t>

    init(user: uid_t, groups: Set<gid_t>) { (self.user, self.groups) = (user, groups) }

    /// Those that a process has now (proc_pid_status(5)).
    init?(of process: pid_t) {
        guard let content = Caller.read(process, "status") else { return nil }
        var fields: [Substring: [Substring]] = [:]
        for line in String(decoding: content, as: UTF8.self).split(separator: "\n") {
            let parts = line.split(separator: ":", maxSplits: 1)
            if parts.count == 2 { fields[parts[0]] = parts[1].split { $0 == "\t" || $0 == " " } }
        }
        // Real, effective, saved, and that of the file system.
        guard let users = fields["Uid"], let groups = fields["Gid"], users.count == 4, groups.count == 4,
            let user = uid_t(users[1]), let group = gid_t(groups[1])
        else { return nil }
        self.init(user: user, groups: Set((fields["Groups"] ?? []).compactMap { gid_t($0) } + [group]))
    }
}
