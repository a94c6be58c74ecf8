import CertificateProviding
import Glibc

/// A directory that is opened once for all files that are read together.
///
/// In a volume of Kubernetes, each name is a symbolic link through `..data`, which a new version replaces at any time. The
/// directory is therefore the one that `..data` leads to when it is opened.
final class Directory {
    let path: String
    private let descriptor: Int32

    /// Opens a directory that may be entered and not listed, as Debian's `/etc/ssl/private` by the group `ssl-cert`. Swift's Glibc has
    /// no `O_PATH`.
    private static let pathOnly: Int32 = 0o10_000_000

    /// `nil` if there is no such directory.
    init?(_ path: String) {
        let flags = Self.pathOnly | O_DIRECTORY | O_CLOEXEC
        let outer = open(path, flags)
        guard outer >= 0 else { return nil }
        self.path = path.hasSuffix("/") ? String(path.dropLast()) : path
        let data = openat(outer, "..data", flags)
        if data >= 0 { close(outer) }
        descriptor = data >= 0 ? data : outer
    }

    deinit { close(descriptor) }

    /// Whether there is a file of this name, which may be below the directory: also a link that leads nowhere, or where this user may
    /// not go, which reading then says.
    func has(_ name: String) -> Bool {
        var status = stat()
        return fstatat(descriptor, name, &status, AT_SYMLINK_NOFOLLOW) == 0
    }

    /// Whether there is a file of this name, or behind a link of this name as far as this user may look.
    func reaches(_ name: String) -> Bool { faccessat(descriptor, name, F_OK, 0) == 0 || errno == EACCES }

    /// Whether this user may use the names in the directory.
    var isOpen: Bool { faccessat(descriptor, ".", X_OK, AT_EACCESS) == 0 }

    /// The path of a file, for messages.
    func path(of name: String) -> String { "\(path)/\(name)" }

    /// The names in the directory, in alphabetical order; at most 4096.
    func names() -> [String] {
        let copy = openat(descriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard copy >= 0 else { return [] }
        guard let stream = fdopendir(copy) else {
            close(copy)
            return []
        }
        defer { closedir(stream) }
        var names: [String] = []
        while names.count < 4096, let entry = readdir(stream) {
            names.append(
                withUnsafeBytes(of: &entry.pointee.d_name) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) })
        }
        return names.sorted()
    }

    /// A file and who can read it.
    struct Content {
        let text: SecretBytes
        let access: SecretFileAccess
    }

    /// The maximum size of a file in bytes.
    static let maximumSize = 1 << 20

    /// Reads a file.
    ///
    /// - Throws: `fileNotFound`; `configurationInvalid` for a file that cannot be read.
    func read(_ name: String) throws(ProviderError) -> Content {
        let shown = DisplayText.visible(path(of: name))
        // O_NONBLOCK: opening a named pipe without a writer must not hang.
        let file = openat(descriptor, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
        guard file >= 0 else { throw Self.error(shown, errno) }
        defer { close(file) }
        guard let access = SecretFileAccess(of: file) else { throw Self.error(shown, errno) }
        let text: SecretBytes
        do throws(RegularFile.Failure) { text = try RegularFile.readSecret(file, atMost: Self.maximumSize) } catch {
            throw ProviderError(.configurationInvalid, "\(shown) cannot be read: \(error).")
        }
        return Content(text: text, access: access)
    }

    /// The error for a file or directory that cannot be opened.
    static func error(_ shown: String, _ code: Int32) -> ProviderError {
        let reason = String(cString: strerror(code))
        switch code {
        case ENOENT, ENOTDIR:
            return ProviderError(
                .fileNotFound, "\(shown) cannot be opened: \(reason). Put the file there, or name another one.")
        case EACCES:
            return ProviderError(
                .configurationInvalid,
                "\(shown) cannot be opened: \(reason). Give uid \(geteuid()) the right to read it.",
                reason: .accessDenied)
        default: return ProviderError(.configurationInvalid, "\(shown) cannot be opened: \(reason).")
        }
    }
}

extension ProviderError.Reason {
    /// This user may not open a file: while a volume is replaced, that passes.
    static let accessDenied = Self(rawValue: "accessDenied")
}
