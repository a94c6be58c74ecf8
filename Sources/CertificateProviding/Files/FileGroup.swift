import Glibc

/// One file, or the files of a directory: for settings whose content is a set.
package struct FileGroup: Sendable, Hashable {
    /// The path, as it was configured.
    package let path: String
    private static let maximumCount = 4096

    package init(_ path: String) { self.path = path }

    /// How the files were at a look. Equal stamps mean the same content.
    package struct Stamp: Sendable, Hashable {
        fileprivate let files: [File]

        fileprivate struct File: Hashable {
            /// Strings can be equal whose bytes, and files, are not.
            let path: [UInt8]
            let stamp: FileStamp?
        }
    }

    /// Looks at the files. Blocks on the file system only.
    package func stamp() -> Stamp {
        let files = (try? self.files()) ?? [path]
        return Stamp(files: files.map { Stamp.File(path: Array($0.utf8), stamp: FileStamp(of: $0)) })
    }

    /// Returns the path itself, or the regular files of the directory, sorted. Hidden ones are left out: a Kubernetes
    /// volume and many tools keep files of their own in them. Symbolic links are followed. Blocks on the file
    /// system only.
    ///
    /// - Throws: `configurationInvalid` for a directory that cannot be read, or has no file, or too many; and for a file that cannot
    ///   be looked at, such as a link that leads nowhere, or has a name that is not UTF-8: a set without it would be another one.
    package func files() throws(ProviderError) -> [String] {
        guard Self.type(of: path) == S_IFDIR else { return [path] }
        guard let directory = opendir(path) else {
            throw ProviderError(
                errno == ENOENT ? .fileNotFound : .configurationInvalid,
                "The directory \(path.shellQuoted) cannot be read: \(errorText(errno)).")
        }
        defer { closedir(directory) }
        var names: [String] = []
        while let entry = readdir(directory) {
            let bytes = withUnsafePointer(to: &entry.pointee.d_name) {
                $0.withMemoryRebound(to: UInt8.self, capacity: 256) {
                    Array(UnsafeBufferPointer(start: $0, count: strnlen($0, 256)))
                }
            }
            guard bytes.first != UInt8(ascii: ".") else { continue }
            guard let name = String(validating: bytes, as: UTF8.self) else {
                let shown = bytes.map {
                    (0x20..<0x7f).contains($0) ? String(Unicode.Scalar($0)) : "\\" + [$0].hexEncoded
                }
                throw ProviderError(
                    .configurationInvalid,
                    "The directory \(path.shellQuoted) has a file whose name is not UTF-8: '\(shown.joined())'; rename it."
                )
            }
            let file = "\(path)/\(name)"
            guard let type = Self.type(of: file) else {
                let code = errno
                // It has just been removed.
                if code == ENOENT, !Self.isLink(file) { continue }
                throw ProviderError(
                    .configurationInvalid,
                    "\(file.shellQuoted) cannot be read: \(errorText(code)); replace or remove it.")
            }
            guard type == S_IFREG else { continue }
            names.append(name)
            guard names.count <= Self.maximumCount else {
                throw ProviderError(
                    .configurationInvalid,
                    "The directory \(path.shellQuoted) has more than \(Self.maximumCount) files; remove those that do not belong there."
                )
            }
        }
        guard !names.isEmpty else {
            throw ProviderError(
                .configurationInvalid, "The directory \(path.shellQuoted) holds no file; add at least one.")
        }
        return names.sorted { $0.utf8.lexicographicallyPrecedes($1.utf8) }.map { "\(path)/\($0)" }
    }

    private static func isLink(_ path: String) -> Bool {
        var status = stat()
        return lstat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFLNK
    }

    private static func type(of path: String) -> mode_t? {
        var status = stat()
        return stat(path, &status) == 0 ? status.st_mode & S_IFMT : nil
    }
}
