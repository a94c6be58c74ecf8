import CertificateProviding
import Foundation
import SystemPackage

/// A file or an option that the server cannot start with.
struct ConfigurationError: Error, CustomStringConvertible {
    /// A sentence that names the file, and the next step.
    let description: String

    init(_ description: String) { self.description = description }

    /// Reads a file.
    ///
    /// - Parameter name: Names it in messages, such as `--seeds FILE`.
    static func data(ofFile path: String, _ name: String) throws -> Data {
        do {
            let file = try FileDescriptor.open(FilePath(path), .readOnly, options: .closeOnExec)
            return try file.closeAfter {
                var (data, buffer) = (Data(), [UInt8](repeating: 0, count: 65_536))
                while case let count = try buffer.withUnsafeMutableBytes({ try file.read(into: $0) }), count > 0 {
                    data += buffer[..<count]
                }
                return data
            }
        } catch {
            throw ConfigurationError("\(name) cannot be read: \(error).")
        }
    }

    /// Reads a file with one entry in each line. Empty lines, and those that begin with `#`, are none.
    ///
    /// - Parameter flaw: What is wrong with an entry, and the next step; `nil` if nothing is.
    static func lines(
        ofFile path: String, option: String, of kind: String, _ flaw: (String) -> String?
    ) throws -> [String] {
        let name = "\(option) \(DisplayText.visible(path))"
        var entries: [String] = []
        let lines = try data(ofFile: path, name).split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
        for (index, line) in lines.enumerated() {
            guard let text = String(data: line, encoding: .utf8) else {
                throw ConfigurationError("\(name), line \(index + 1), is not UTF-8. Write the file anew as text.")
            }
            let entry = text.trimmingCharacters(in: .whitespacesAndNewlines)
            guard !entry.isEmpty, !entry.hasPrefix("#") else { continue }
            if let flaw = flaw(entry) { throw ConfigurationError("\(name), line \(index + 1), \(flaw)") }
            entries.append(entry)
        }
        guard !entries.isEmpty else { throw ConfigurationError("\(name) has no entry. Write there \(kind).") }
        return entries
    }
}
