import CertificateProviding
import Glibc

/// A right of root that a process may have without being root, or not have as root (capabilities(7)).
package enum Capability: UInt64 {
    /// CAP_CHOWN: gives files to any user and group.
    case changeOwner = 0
    /// CAP_NET_BIND_SERVICE: opens ports below 1024.
    case bindReservedPorts = 10
    /// CAP_SYS_PTRACE: looks at processes of other users.
    case trace = 19

    /// Whether this process has it. Root has all of them where `/proc` does not tell.
    package var isEffective: Bool {
        guard let status = try? RegularFile.read("/proc/self/status", atMost: 65_536),
            let line = String(decoding: status, as: UTF8.self).split(separator: "\n")
                .first(where: { $0.hasPrefix("CapEff:") }),
            let set = line.split(separator: "\t").last.flatMap({ UInt64($0, radix: 16) })
        else { return geteuid() == 0 }
        return set & 1 << rawValue != 0
    }
}
