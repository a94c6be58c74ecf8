import CertificateProviding
import Crypto
import Glibc
import SystemPackage

/// The file, or the directory of files, that the parameter `path` names.
struct PKCS12Source {
    let path: String

    /// The extensions of the files of a directory that are read.
    private static let extensions = ["p12", "pfx"]

    /// Returns the files to read: the one file, or those of the directory in alphabetical order. Subdirectories and
    /// hidden files are skipped. A file whose name is not UTF-8 is a failure.
    /// - Throws: `fileNotFound`, or `configurationInvalid` if the path cannot be used.
    func files() throws(ProviderError) -> (paths: [String], failures: [ProviderError]) {
        do throws(Errno) {
            guard try FilePath(path).stat().type == .directory else { return ([path], []) }
        } catch {
            throw failure(path, .systemCall(error.rawValue))
        }
        guard let stream = opendir(path) else { throw failure(path, .systemCall(errno)) }
        defer { closedir(stream) }
        let prefix = path + (path.hasSuffix("/") ? "" : "/")
        var names: [String] = []
        var failures: [ProviderError] = []
        while let entry = readdir(stream) {
            let bytes = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
            let name = String(decoding: bytes, as: UTF8.self)
            guard !name.hasPrefix("."), let dot = name.lastIndex(of: "."),
                Self.extensions.contains(name[name.index(after: dot)...].lowercased())
            else { continue }
            if name.utf8.elementsEqual(bytes) {
                names.append(name)
            } else {
                failures.append(
                    ProviderError(
                        .configurationInvalid,
                        "\(DisplayText.visible(prefix + name)): The file's name is not UTF-8; rename the file."))
            }
        }
        guard !names.isEmpty || !failures.isEmpty else {
            throw ProviderError(
                .notFound,
                "The directory \(DisplayText.visible(path)) holds no .p12 or .pfx file; put one there, or set 'path' to another "
                    + "place.")
        }
        return (names.sorted().map { prefix + $0 }, failures.sorted { $0.message < $1.message })
    }

    /// The stamps of the file, or of the directory and its first files, by `stat` only.
    func stamps() -> [FileStamp?] {
        let files = (try? files().paths) ?? []
        return [FileStamp(of: path)] + (files == [path] ? [] : files.prefix(64).map { FileStamp(of: $0) })
    }

    /// Reads one file of at most ``WorkBudget/maximumFileSize`` bytes.
    func read(_ file: String) throws(ProviderError) -> [UInt8] {
        do throws(RegularFile.Failure) {
            return try RegularFile.read(file, atMost: WorkBudget.maximumFileSize)
        } catch {
            throw failure(file, error)
        }
    }

    /// The SHA-256 hash of a file in hex, to detect changes.
    static func digest(of file: [UInt8]) -> String { DisplayText.hexadecimal(SHA256.hash(data: file)) }

    /// The file's name without its extension.
    static func stem(of file: String) -> String {
        let name = file.split(separator: "/").last.map(String.init) ?? file
        guard let dot = name.lastIndex(of: "."), dot != name.startIndex else { return name }
        return String(name[..<dot])
    }

    private func failure(_ file: String, _ failure: RegularFile.Failure) -> ProviderError {
        let code: ProviderError.Code
        var advice = ""
        switch failure {
        case .systemCall(ENOENT), .systemCall(ENOTDIR):
            code = .fileNotFound
            advice = " Copy the file there, or correct 'path'."
        case .systemCall(EACCES):
            code = .configurationInvalid
            advice = " Give uid \(geteuid()) the right to read it."
        case .systemCall, .notRegular: code = .configurationInvalid
        case .tooLarge: code = .malformedData
        }
        return ProviderError(code, "\(DisplayText.visible(file)) cannot be opened: \(failure).\(advice)")
    }
}
