import Foundation

/// A file or an option that the server cannot start with.
struct ConfigurationError: Error, CustomStringConvertible {
    /// A sentence that names the file.
    let description: String

    init(_ description: String) { self.description = description }

    /// Reads a file.
    static func text(ofFile path: String) throws -> String {
        guard let data = FileManager.default.contents(atPath: path), let text = String(data: data, encoding: .utf8)
        else {
            throw ConfigurationError("\(path) cannot be read, or is not UTF-8.")
        }
        return text
    }
}
