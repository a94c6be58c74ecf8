import CertificateProviding
import FoundationEssentials
import Glibc
package import Logging

/// The form of a command's log on stderr.
package enum LogFormat: String, Sendable, CaseIterable {
    /// One line for people.
    case text
    /// One JSON object a line.
    case json
    /// The fields of systemd-journald, in its native protocol; text where its socket is not there.
    case journal

    /// `journal` if stderr is a stream of the journal (`$JOURNAL_STREAM`, systemd.exec(5)), else `text`.
    package static var usual: Self {
        var status = stat()
        guard let stream = getenv("JOURNAL_STREAM"), fstat(STDERR_FILENO, &status) == 0 else { return .text }
        return String(cString: stream) == "\(status.st_dev):\(status.st_ino)" ? .journal : .text
    }
}

/// A line of a command's log.
package struct LogLine: Sendable {
    /// `nil` for a warning of the command itself.
    package var level: Logger.Level?
    package var message: String
    /// Further fields, in the order in which they are shown.
    package var fields: [(name: String, value: String)] = []

    /// The line for people, without the name of the program.
    var text: String { (level.map { "\($0): " } ?? "") + plain }

    private var plain: String { message + fields.map { " \($0.name)=\($0.value)" }.joined() }

    /// Writes it to stderr, or to the journal.
    func write(of program: String, as format: LogFormat) {
        if format == .json, let json { return Console.note(json) }
        if format == .journal, Self.send(journalEntry(of: program)) { return }
        Console.note("\(program): \(text)")
    }

    private var json: String? {
        var object = [String: String](fields.map { ($0.name, $0.value) }) { first, _ in first }
        object["level"] = (level ?? .warning).rawValue
        object["message"] = message
        object["time"] = Date().formatted(.iso8601)
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return (try? encoder.encode(object)).map { String(decoding: $0, as: UTF8.self).withEscapedControls }
    }

    // MARK: - The journal

    private static let socketPath = "/run/systemd/journal/socket"

    /// In systemd's native protocol: each value with its length before it, so that none can begin another field.
    func journalEntry(of program: String) -> [UInt8] {
        let own = fields.map { field in
            let letters = field.name.uppercased().utf8.map { $0.isNameByte ? $0 : UInt8(ascii: "_") }
            return ("CERTPROV_" + String(decoding: letters, as: UTF8.self), field.value)
        }
        let priority = String((level ?? .warning).priority)
        let common = [("MESSAGE", plain), ("PRIORITY", priority), ("SYSLOG_IDENTIFIER", program)]
        return (common + own).flatMap { name, value in
            let size = withUnsafeBytes(of: UInt64(value.utf8.count).littleEndian, Array.init)
            return Array((name + "\n").utf8) + size + Array((value + "\n").utf8)
        }
    }

    /// Returns whether the journal has taken an entry. Does not wait for it.
    private static func send(_ entry: [UInt8]) -> Bool {
        let descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { return false }
        defer { close(descriptor) }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: socketPath.utf8) }
        return withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                sendto(
                    descriptor, entry, entry.count, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT), $0,
                    socklen_t(MemoryLayout<sockaddr_un>.size)) == entry.count
            }
        }
    }
}

extension UInt8 {
    fileprivate var isNameByte: Bool {
        (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(self) || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(self)
    }
}

extension Logger.Level {
    /// Of syslog(3).
    fileprivate var priority: Int {
        switch self {
        case .trace, .debug: 7
        case .info: 6
        case .notice: 5
        case .warning: 4
        case .error: 3
        case .critical: 2
        }
    }
}
