import Foundation

/// Files of mode 0600, which are there whole or not at all.
enum PrivateFile {
    static func write(_ data: Data, to path: String) throws {
        let temporary = "\(path).new"
        try? FileManager.default.removeItem(atPath: temporary)
        guard
            FileManager.default.createFile(
                atPath: temporary, contents: nil, attributes: [.posixPermissions: 0o600]),
            let file = FileHandle(forWritingAtPath: temporary)
        else { throw ConfigurationError("\(path) cannot be written.") }
        do {
            try file.write(contentsOf: data)
            try file.synchronize()
            try file.close()
            if FileManager.default.fileExists(atPath: path) { try FileManager.default.removeItem(atPath: path) }
            try FileManager.default.moveItem(atPath: temporary, toPath: path)
        } catch {
            throw ConfigurationError("\(path) cannot be written: \(error.localizedDescription)")
        }
    }

    /// Reads a file, or writes it with a content that is made now.
    static func load(_ path: String, orMake make: () -> Data) throws -> Data {
        if FileManager.default.fileExists(atPath: path) {
            guard let data = FileManager.default.contents(atPath: path) else {
                throw ConfigurationError("\(path) cannot be read.")
            }
            return data
        }
        let data = make()
        try write(data, to: path)
        return data
    }
}
