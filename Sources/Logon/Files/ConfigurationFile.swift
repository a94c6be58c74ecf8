import CertificateProviding

/// A configuration file, read into memory as a whole.
struct ConfigurationFile: Sendable {
    enum Form { case properties, propertyList }

    /// The maximum size in bytes. Real files have a few hundred; a wrong path must not load a disk image.
    static let maximumSize = 1 << 20

    let path: String
    let bytes: [UInt8]

    init(path: String, bytes: [UInt8]) {
        self.path = path
        self.bytes = bytes
    }

    /// Reads the file. Blocks on the file system only: other files than regular ones are not waited for and not read.
    ///
    /// - Throws: `configurationMissing` if the file does not exist; `configurationInvalid` if it cannot be read, is not
    ///   a regular file or has more than ``maximumSize`` bytes.
    init(path: String) throws(ProviderError) {
        let name = path.withVisibleControls
        self.path = path
        do throws(RegularFile.Failure) {
            bytes = try RegularFile.read(path, atMost: Self.maximumSize)
        } catch {
            guard !error.isMissing else {
                throw ProviderError(
                    .configurationMissing, "\(name): The configuration file does not exist; create it, or use another.")
            }
            throw ProviderError(
                .configurationInvalid,
                "\(name): The file cannot be used as a configuration: \(error); correct it, or use another.")
        }
    }
}

extension ConfigurationFile {
    /// The format, by the extension of the file's name, or else by the beginning of the content.
    var form: Form {
        let name = path.split(separator: "/").last ?? ""
        switch name.split(separator: ".", omittingEmptySubsequences: false).dropFirst().last?.lowercased() {
        case "plist": return .propertyList
        case "properties": return .properties
        default: return Self.beginsAsPropertyList(bytes) ? .propertyList : .properties
        }
    }

    static func beginsAsPropertyList(_ bytes: [UInt8]) -> Bool {
        let beginning = String(decoding: bytes.prefix(256), as: UTF8.self).drop { $0 == "\u{feff}" || $0.isWhitespace }
        return ["<?xml", "<!DOCTYPE plist", "<plist", "bplist"].contains { beginning.hasPrefix($0) }
    }

    /// Parses the file.
    ///
    /// - Throws: `configurationInvalid`, with file and line, and the key if there is one.
    func settings() throws(ProviderError) -> Settings {
        switch form {
        case .properties: try PropertiesParser.settings(in: bytes, file: path)
        case .propertyList: try PropertyListReader.settings(in: bytes, file: path)
        }
    }
}
