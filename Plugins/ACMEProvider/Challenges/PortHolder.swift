import CertificateProviding
import FoundationEssentials
import Glibc

/// Finds the process that listens on a port, as far as this process may see it.
enum PortHolder {
    /// Returns the name and the number of the process, such as `nginx (process 812)`, or `another process` for one that this process may not
    /// see. `nil` if none listens there.
    static func name(ofPort port: Int) -> String? {
        let sockets = Set(["/proc/net/tcp", "/proc/net/tcp6"].flatMap { inodes(in: $0, listeningOn: port) })
        guard !sockets.isEmpty else { return nil }
        let processes = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
        for process in processes where Int(process) != nil {
            let directory = "/proc/\(process)/fd"
            guard let files = try? FileManager.default.contentsOfDirectory(atPath: directory) else { continue }
            let hasIt = files.contains { file in
                guard let target = try? FileManager.default.destinationOfSymbolicLink(atPath: "\(directory)/\(file)")
                else { return false }
                return sockets.contains(target)
            }
            guard hasIt else { continue }
            let name = FileManager.default.contents(atPath: "/proc/\(process)/comm").map {
                String(decoding: $0, as: UTF8.self).trimming
            }
            return "\(name.map { DisplayText.visible(String($0)) } ?? "a process") (process \(process))"
        }
        return "another process"
    }

    /// The sockets that listen on a port, as the links of descriptors name them (proc(5)).
    private static func inodes(in path: String, listeningOn port: Int) -> [String] {
        text(of: path).split(separator: "\n").dropFirst().compactMap { line in
            let fields = line.split(separator: " ")
            guard fields.count > 9, fields[3] == "0A", let colon = fields[1].lastIndex(of: ":"),
                Int(fields[1][fields[1].index(after: colon)...], radix: 16) == port
            else { return nil }
            return "socket:[\(fields[9])]"
        }
    }

    /// A whole file of proc(5): Foundation reads its first page alone, since its size is 0.
    private static func text(of path: String) -> String {
        guard let file = fopen(path, "re") else { return "" }
        defer { fclose(file) }
        var text: [UInt8] = []
        var part = [UInt8](repeating: 0, count: 65_536)
        while case let count = fread(&part, 1, part.count, file), count > 0 { text += part.prefix(count) }
        return String(decoding: text, as: UTF8.self)
    }
}
