import CertificateProviding
import Crypto
import Glibc

/// The file, or the directory of files, that the parameter `path` names.
struct PKCS12Source {
    let path: String

    /// Which files of a directory are read.
    private static let extensions = ["p12", "pfx"]

    /// Returns the files to read: the one, or those of the directory in alphabetical order. Subdirectories and hidden
    /// files are passed over.
    /// - Throws: `fileNotFound`, or `configurationInvalid` when the path cannot be used.
    func files() throws(CertificateProviderError) -> [String] {
        var status = stat()
        guard stat(path, &status) == 0 else { throw failure(path, errno) }
        guard status.st_mode & S_IFMT == S_IFDIR else { return [path] }
        guard let stream = opendir(path) else { throw failure(path, errno) }
        defer { closedir(stream) }
        var names: [String] = []
        while let entry = readdir(stream) {
            let name = withUnsafeBytes(of: &entry.pointee.d_name) {
                String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
            }
            guard !name.hasPrefix("."), let dot = name.lastIndex(of: ".") else { continue }
            if Self.extensions.contains(name[name.index(after: dot)...].lowercased()) { names.append(name) }
        }
        guard !names.isEmpty else {
            throw CertificateProviderError(
                .notFound, "The directory \(path.withVisibleControls) holds no .p12 or .pfx file.")
        }
        return names.sorted().map { path + (path.hasSuffix("/") ? "" : "/") + $0 }
    }

    /// Reads one file, which is bounded in size.
    func read(_ file: String) throws(CertificateProviderError) -> [UInt8] {
        // O_NONBLOCK: a named pipe must not hang the caller. It is refused below.
        let descriptor = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
        guard descriptor >= 0 else { throw failure(file, errno) }
        defer { close(descriptor) }
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw failure(file, errno) }
        guard status.st_mode & S_IFMT == S_IFREG else {
            throw CertificateProviderError(
                .configurationInvalid, "\(file.withVisibleControls) is neither a regular file nor a directory of them.")
        }
        guard status.st_size <= WorkBudget.maximumFileSize else {
            throw CertificateProviderError(
                .malformedData,
                "\(file.withVisibleControls) has \(status.st_size) bytes; no PKCS#12 file of more than "
                    + "\(WorkBudget.maximumFileSize >> 20) MiB is read.")
        }
        var bytes = [UInt8](repeating: 0, count: Int(status.st_size))
        var used = 0
        while used < bytes.count {
            let count = bytes.withUnsafeMutableBytes { buffer in
                Glibc.read(
                    descriptor, UnsafeMutableRawBufferPointer(rebasing: buffer[used...]).baseAddress,
                    buffer.count - used)
            }
            if count < 0 && errno == EINTR { continue }
            guard count >= 0 else { throw failure(file, errno) }
            if count == 0 { break }
            used += count
        }
        return Array(bytes[0..<used])
    }

    /// What tells whether a file has changed since.
    static func digest(of file: [UInt8]) -> String { Array(SHA256.hash(data: file)).hexEncoded }

    /// The file's name without its extension.
    static func stem(of file: String) -> String {
        let name = file.split(separator: "/").last.map(String.init) ?? file
        guard let dot = name.lastIndex(of: "."), dot != name.startIndex else { return name }
        return String(name[..<dot])
    }

    private func failure(_ file: String, _ code: Int32) -> CertificateProviderError {
        let isMissing = code == ENOENT || code == ENOTDIR
        return CertificateProviderError(
            isMissing ? .fileNotFound : .configurationInvalid,
            "\(file.withVisibleControls) cannot be opened: \(String(cString: strerror(code)))."
                + (code == EACCES ? " Give uid \(geteuid()) the right to read it." : ""))
    }
}
