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
        let holders = processes.filter { Int($0) != nil && has(sockets, process: $0) }
        // The first one that was started: each child has the socket too until it runs another program.
        guard let process = holders.min(by: { start(of: $0) < start(of: $1) }) else { return "another process" }
        let name = FileManager.default.contents(atPath: "/proc/\(process)/comm").map {
            String(decoding: $0, as: UTF8.self).trimming
        }
        return "\(name.map { DisplayText.visible(String($0)) } ?? "a process") (process \(process))"
    }

    private static func has(_ sockets: Set<String>, process: String) -> Bool {
        let directory = "/proc/\(process)/fd"
        let files = (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
        return files.contains { file in
            (try? FileManager.default.destinationOfSymbolicLink(atPath: "\(directory)/\(file)"))
                .map(sockets.contains) ?? false
        }
    }

    /// When a process was started, in clock ticks; the last of all for one that has ended.
    private static func start(of process: String) -> UInt64 {
        // The name before it may have spaces and parentheses.
        let fields = text(of: "/proc/\(process)/stat").split(separator: ")").last?.split(separator: " ") ?? []
        return fields.count > 19 ? UInt64(fields[19]) ?? .max : .max
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
