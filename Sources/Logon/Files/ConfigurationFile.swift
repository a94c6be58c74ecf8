import CertificateProviding
import Glibc

/// A configuration file in memory, read once and whole.
struct ConfigurationFile: Sendable {
    enum Form { case properties, propertyList }

    /// Real ones have a few hundred bytes; a wrong path must not load a disk image.
    static let maximumSize = 1 << 20

    let path: String
    let bytes: [UInt8]

    init(path: String, bytes: [UInt8]) {
        self.path = path
        self.bytes = bytes
    }

    /// Reads the file. Blocks on the file system only: what is not a regular file is opened without waiting for its
    /// other end, and never read.
    ///
    /// - Throws: `configurationMissing` when there is none, `configurationInvalid` when it cannot be read, is not a
    ///   regular file or has more than ``maximumSize`` bytes.
    init(path: String) throws(CertificateProviderError) {
        func invalid(_ problem: String) -> CertificateProviderError {
            CertificateProviderError(.configurationInvalid, "\(path.withVisibleControls): \(problem)")
        }
        guard !path.utf8.contains(0) else { throw invalid("The path has a NUL in it.") }
        let descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY)
        guard descriptor >= 0 else {
            let code = errno
            if code == ENOENT {
                throw CertificateProviderError(
                    .configurationMissing,
                    "\(path.withVisibleControls): There is no such configuration file; create it, or name another.")
            }
            throw invalid("The file cannot be opened: \(String(cString: strerror(code))).")
        }
        defer { close(descriptor) }
        var status = stat()
        guard fstat(descriptor, &status) == 0 else {
            throw invalid("The file cannot be examined: \(String(cString: strerror(errno))).")
        }
        guard status.st_mode & S_IFMT == S_IFREG else {
            throw invalid("This is \(Self.kind(of: status.st_mode)), not a regular file.")
        }
        let tooLarge = "The file is larger than \(Self.maximumSize >> 10) KiB, so it is not a configuration file."
        guard status.st_size <= Self.maximumSize else { throw invalid(tooLarge) }
        self.path = path
        do throws(Errno) {
            bytes = try Self.readToEnd(descriptor, limit: Self.maximumSize + 1)
        } catch {
            throw invalid("The file cannot be read: \(String(cString: strerror(error.number))).")
        }
        // It may have grown since.
        guard bytes.count <= Self.maximumSize else { throw invalid(tooLarge) }
    }

    private struct Errno: Error { var number: Int32 }

    private static func readToEnd(_ descriptor: Int32, limit: Int) throws(Errno) -> [UInt8] {
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 16 * 1024)
        while bytes.count < limit {
            let count = read(descriptor, &chunk, min(chunk.count, limit - bytes.count))
            if count < 0 && errno == EINTR { continue }
            guard count >= 0 else { throw Errno(number: errno) }
            if count == 0 { break }
            bytes.append(contentsOf: chunk[0..<count])
        }
        return bytes
    }

    private static func kind(of mode: mode_t) -> String {
        switch mode & S_IFMT {
        case S_IFDIR: "a directory"
        case S_IFIFO: "a named pipe"
        case S_IFSOCK: "a socket"
        default: "a device"
        }
    }
}

extension ConfigurationFile {
    /// The file's name decides; where it says nothing, the beginning of the content does.
    var form: Form {
        let name = path.split(separator: "/").last ?? ""
        switch name.split(separator: ".", omittingEmptySubsequences: false).dropFirst().last?.lowercased() {
        case "plist": return .propertyList
        case "properties": return .properties
        default:
            let beginning = String(decoding: bytes.prefix(256), as: UTF8.self).drop {
                $0 == "\u{feff}" || $0.isWhitespace
            }
            let marks = ["<?xml", "<!DOCTYPE plist", "<plist", "bplist"]
            return marks.contains { beginning.hasPrefix($0) } ? .propertyList : .properties
        }
    }

    /// - Throws: `configurationInvalid`, with file and line, and the key where there is one.
    func settings() throws(CertificateProviderError) -> Settings {
        switch form {
        case .properties: try PropertiesParser.settings(in: bytes, file: path)
        case .propertyList: try PropertyListReader.settings(in: bytes, file: path)
        }
    }
}
