package import CertificateProviding
package import Glibc

/// Calls of Unix sockets (unix(7)).
package enum UnixSocket {
    /// Makes a stream socket that no program inherits.
    package static func make() -> Int32 {
        socket(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
    }

    /// Calls `body` with the address of a path, or of an abstract name behind `@`; returns `nil` for a path that is too long.
    package static func withAddress<T>(_ path: String, _ body: (UnsafePointer<sockaddr>, socklen_t) -> T) -> T? {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        var bytes = Array(path.utf8)
        guard !bytes.isEmpty, !bytes.contains(0), bytes.count <= longestPath else { return nil }
        let isAbstract = bytes[0] == UInt8(ascii: "@")
        if isAbstract { bytes[0] = 0 }
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: bytes) }
        // An abstract name ends with its length, a path with NUL.
        let size = MemoryLayout<sockaddr_un>.size - longestPath - 1 + bytes.count + (isAbstract ? 0 : 1)
        return withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, socklen_t(size)) }
        }
    }

    /// The longest path, in bytes.
    private static let longestPath = MemoryLayout.size(ofValue: sockaddr_un().sun_path) - 1

    /// Returns the error for a path that cannot be the address of a socket. `setting` names another one.
    package static func isNoAddress(_ path: String, setting: String) -> ProviderError {
        ProviderError(
            .configurationInvalid,
            "The path of a socket has 1 to \(longestPath) bytes, and '\(path.withVisibleControls)' has \(path.utf8.count); "
                + "name another one with \(setting).")
    }

    /// The value of an option of the level SOL_SOCKET; `nil` for a descriptor without it.
    static func option(_ name: Int32, of descriptor: Int32) -> Int32? {
        var value: Int32 = 0
        var size = socklen_t(MemoryLayout<Int32>.size)
        return getsockopt(descriptor, SOL_SOCKET, name, &value, &size) == 0 ? value : nil
    }
}

/// The time that is left until an instant, for poll(2): in milliseconds, rounded up, and not below zero.
package func milliseconds(until instant: ContinuousClock.Instant) -> Int32 {
    Int32(clamping: Int(max(0, ((instant - .now) / .milliseconds(1)).rounded(.up))))
}
