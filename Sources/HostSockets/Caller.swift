import CLinux
import CertificateProviding
package import Glibc

/// A process at a socket of this host: user and groups as they were when it connected, and what `/proc` says of it.
package struct Caller: Sendable {
    package let process: pid_t
    /// The effective user and group.
    package let user: uid_t, group: gid_t
    /// The supplementary groups.
    package let groups: Set<gid_t>
    /// The control group that it runs in, or why that does not count.
    let place: Result<ControlGroup, ControlGroup.Obstacle>
    /// Why a user or a group alone says nothing of it: a clause. `nil` if it is of the PID and user namespace of this process.
    let isolation: String?

    /// Looks at the process that has connected. Blocks on `/proc`.
    package init(_ peer: SocketPeer) {
        self.init(peer.process, peer.user, peer.group, peer.groups, peer.descriptor, hasEnded: peer.hasEnded)
    }

    /// Looks at a process; `nil` if there is none. For an explanation only: the next process may have its number.
    package init?(process: pid_t) {
        guard let status = ProcessStatus(process) else { return nil }
        let descriptor = certprov_process(process)
        defer { if descriptor >= 0 { close(descriptor) } }
        self.init(process, status.user, status.group, status.groups, descriptor >= 0 ? descriptor : nil)
    }

    private init(
        _ process: pid_t, _ user: uid_t, _ group: gid_t, _ groups: Set<gid_t>, _ descriptor: Int32?,
        hasEnded: Bool = false
    ) {
        (self.process, self.user, self.group, self.groups) = (process, user, group, groups)
        let start = ProcessStatus.startTime(process)
        let isolation = Self.isolation(of: process)
        var place = Result { () throws(ControlGroup.Obstacle) in
            guard let content = ProcessStatus.read(process, "cgroup") else {
                throw ControlGroup.Obstacle(reason: "its control group cannot be read")
            }
            return try ControlGroup(content)
        }
        // All of it must be of the process that has connected, and not of a later one with its number.
        var doubt = hasEnded ? "the process has ended" : nil
        if let descriptor {
            var event = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            if process <= 0 || poll(&event, 1, 0) != 0 { doubt = "the process has ended" }
        } else {
            let status = ProcessStatus(process)
            if start == nil || start != ProcessStatus.startTime(process) || status?.user != user
                || status?.group != group
            {
                doubt = "the process has ended, or has another user now"
            }
            // A process can connect, pass the connection on and end; another one of its user gets its number.
            place = .failure(
                .init(reason: "this kernel does not bind a process to its connection, which takes Linux 6.5"))
        }
        if let doubt { place = .failure(.init(reason: doubt)) }
        (self.place, self.isolation) = (place, doubt ?? isolation)
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
}

extension Caller: CustomStringConvertible {
    /// Its process, user, groups and unit, for a log.
    package var description: String {
        let all = groups.union([group]).sorted().map(String.init).joined(separator: ",")
        let unit = (try? place.get()).map { " unit \($0.unit.withVisibleControls)" } ?? ""
        return "process \(process) user \(user) groups \(all)" + unit
    }
}

/// The content of `/proc` about a process (proc_pid_status(5)).
struct ProcessStatus {
    let user: uid_t, group: gid_t
    let groups: Set<gid_t>

    init?(_ process: pid_t) {
        guard let content = Self.read(process, "status") else { return nil }
        var fields: [Substring: [Substring]] = [:]
        for line in String(decoding: content, as: UTF8.self).split(separator: "\n") {
            let parts = line.split(separator: ":", maxSplits: 1)
            if parts.count == 2 { fields[parts[0]] = parts[1].split { $0 == "\t" || $0 == " " } }
        }
        // Real, effective, saved, and that of the file system.
        guard let users = fields["Uid"], let groups = fields["Gid"], users.count == 4, groups.count == 4,
            let user = uid_t(users[1]), let group = gid_t(groups[1])
        else { return nil }
        (self.user, self.group) = (user, group)
        self.groups = Set((fields["Groups"] ?? []).compactMap { gid_t($0) })
    }

    /// The time at which a process was started; `nil` if there is none.
    static func startTime(_ process: pid_t) -> UInt64? {
        // Its name, in parentheses, may have blanks and parentheses.
        guard let content = read(process, "stat"), let end = content.lastIndex(of: UInt8(ascii: ")")) else {
            return nil
        }
        let fields = content[(end + 1)...].split(separator: UInt8(ascii: " "))
        return fields.count > 19 ? UInt64(String(decoding: fields[19], as: UTF8.self)) : nil
    }

    /// Reads a file of a process. At most 1 MiB: the kernel permits 65536 groups.
    static func read(_ process: pid_t, _ name: String) -> [UInt8]? {
        let file = open("/proc/\(process)/\(name)", O_RDONLY | O_CLOEXEC)
        guard process > 0, file >= 0 else {
            if file >= 0 { close(file) }
            return nil
        }
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
