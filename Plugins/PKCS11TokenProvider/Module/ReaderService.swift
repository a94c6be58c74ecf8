import CertificateProviding
import Glibc

/// pcscd, through which modules for smart cards find their readers. Without it they show the same as without a reader.
enum ReaderService {
    private static let usualSocket = "/run/pcscd/pcscd.comm"

    /// The path of the service's socket and the reason why it does not answer, if a module of this process has loaded the
    /// service's library. `nil` if the service runs or that cannot be told.
    static var missing: String? {
        guard let library = dlopen("libpcsclite.so.1", RTLD_LAZY | RTLD_NOLOAD) else { return nil }
        dlclose(library)
        let path = getenv("PCSCLITE_CSOCK_NAME").map { String(cString: $0) } ?? usualSocket
        let failure = connect(to: path)
        guard [ENOENT, ECONNREFUSED].contains(failure) else { return nil }
        return "\(DisplayText.visible(path)): \(String(cString: strerror(failure)))"
    }

    /// - Returns: The error's number; 0 where the service listens.
    private static func connect(to path: String) -> Int32 {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let bytes = Array(path.utf8)
        guard bytes.count < MemoryLayout.size(ofValue: address.sun_path) else { return ENAMETOOLONG }
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: bytes) }
        let kind = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
        let descriptor = socket(AF_UNIX, kind, 0)
        guard descriptor >= 0 else { return errno }
        defer { close(descriptor) }
        return withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
                Glibc.connect(descriptor, pointer, socklen_t(MemoryLayout<sockaddr_un>.size)) == 0 ? 0 : errno
            }
        }
    }
}
