import CertificateProviding
import FoundationEssentials
import Glibc

/// The process that holds the lock (flock(2)) of a file, as the kernel shows it in `/proc/locks`.
struct LockHolder: CustomStringConvertible {
    private let pid: pid_t

    /// - Returns: `nil` if no lock is held, and where the kernel does not tell: without `/proc`, or from another container.
    init?(of descriptor: Int32) {
        var status = stat()
        guard fstat(descriptor, &status) == 0,
            // Foundation reads one page of such a file: some seventy locks.
            let locks = try? RegularFile.read("/proc/locks", atMost: 1 << 24)
        else { return nil }
        // As in makedev(3).
        let device = UInt64(status.st_dev)
        let major = (device >> 8) & 0xfff | (device >> 32) & ~0xfff
        let minor = device & 0xff | (device >> 12) & ~0xff
        for line in String(decoding: locks, as: UTF8.self).split(separator: "\n") {
            // 1: FLOCK  ADVISORY  WRITE 1234 08:02:5678 0 EOF; with an arrow for one that waits.
            let words = line.split(separator: " ")
            guard words.count >= 6, words[1] == "FLOCK", let pid = pid_t(words[4]), pid > 0 else { continue }
            let file = words[5].split(separator: ":")
            guard file.count == 3, UInt64(file[0], radix: 16) == major, UInt64(file[1], radix: 16) == minor,
                UInt64(file[2]) == UInt64(status.st_ino)
            else { continue }
            self.pid = pid
            return
        }
        return nil
    }

    /// Such as `the process 1234 (certprov)`.
    var description: String {
        if pid == getpid() { return "another operation of this process" }
        let name = (try? String(contentsOfFile: "/proc/\(pid)/comm", encoding: .utf8))?.split(separator: "\n").first
        return "the process \(pid)" + (name.map { " (\(String($0).withVisibleControls))" } ?? "")
    }
}
