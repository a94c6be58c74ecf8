public import CertificateProviding
import Glibc

/// A file that the user has named for input, or stdin.
public struct InputFile: Sendable {
    private let path: String?
    /// Its name, for messages.
    package let name: String

    /// Names a file. Nothing is read yet.
    ///
    /// - Parameters:
    ///   - path: `nil` and `-` are stdin.
    ///   - argument: The argument that names it, for messages.
    public init(_ path: String?, named argument: String? = nil) {
        self.path = path == "-" ? nil : path
        name = (self.path?.withVisibleControls ?? "stdin") + (argument.map { " (\($0))" } ?? "")
    }

    /// Reads the file. Blocks until its end.
    ///
    /// - Throws: `fileNotFound`, `storeReadFailed`, `malformedData` for more than `limit` bytes.
    public func read(atMost limit: Int) throws(ProviderError) -> [UInt8] {
        let bytes = try prefix(limit + 1)
        guard bytes.count <= limit else {
            throw ProviderError(.malformedData, "\(name) has more than \(limit) bytes; name another file.")
        }
        return bytes
    }

    /// Reads the first `count` bytes, or fewer of a shorter file. Blocks.
    ///
    /// - Throws: `fileNotFound`, `storeReadFailed`.
    package func prefix(_ count: Int) throws(ProviderError) -> [UInt8] {
        let descriptor = try open()
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 16, alignment: 16)
        defer { buffer.deallocate() }
        while bytes.count < count {
            let size = Glibc.read(descriptor, buffer.baseAddress, min(buffer.count, count - bytes.count))
            if size < 0, errno == EINTR { continue }
            guard size >= 0 else { throw failure(errno) }
            if size == 0 { break }
            bytes.append(contentsOf: buffer[..<size])
        }
        return bytes
    }

    /// Opens the file. The caller closes the descriptor.
    ///
    /// - Throws: `fileNotFound`, `storeReadFailed`.
    package func open() throws(ProviderError) -> Int32 {
        let descriptor =
            path.map { Glibc.open($0, O_RDONLY | O_CLOEXEC | O_NOCTTY) } ?? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
        guard descriptor >= 0 else { throw failure(errno) }
        return descriptor
    }

    private func failure(_ code: Int32) -> ProviderError {
        ProviderError(
            code == ENOENT ? .fileNotFound : .storeReadFailed,
            "\(name) cannot be read: \(errorText(code)).")
    }
}
