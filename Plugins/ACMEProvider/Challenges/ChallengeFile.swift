import CertificateProviding
import Glibc
import IdentityStore

/// The answer to a challenge as a file below a document root. The root may be another user's, such as the web server's, and the server
/// chooses the name of the file: no link is followed that another user may have put there.
struct ChallengeFile: Sendable {
    private let root: String?
    private let directory: String
    private let name: String
    var path: String { "\(directory)/\(name)" }

    /// - Parameter token: Base64url, as ``ChallengeAnswer`` has checked.
    init(below root: String, token: String) {
        (self.root, directory, name) = (root, root + "/.well-known/acme-challenge", token)
    }

    /// A file that was written before, to be removed.
    init?(path: String) {
        guard let slash = path.lastIndex(of: "/") else { return nil }
        (root, directory, name) = (nil, String(path[..<slash]), String(path[path.index(after: slash)...]))
    }

    /// Writes the file, readable by the web server. Blocks.
    func write(_ text: String) throws(SafeDirectory.Refusal) {
        // The root itself must be there: a mistake in its name must not make another one.
        for path in [root.map { $0 + "/.well-known" }, directory].compactMap(\.self) {
            try SafeDirectory.make(path, mode: 0o755, .system)
        }
        guard let place = try ReachedDirectory.open(directory) else {
            throw SafeDirectory.Refusal(reason: "\(directory) was removed by another process")
        }
        // A link there leads elsewhere; a file is of an earlier run.
        unlinkat(place.descriptor, name, 0)
        let descriptor = openat(place.descriptor, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0o644)
        guard descriptor >= 0 else { throw failed("created") }
        defer { close(descriptor) }
        // The web server is another user, whatever the file mode creation mask of this process.
        guard fchmod(descriptor, 0o644) == 0 else { throw failed("given its mode") }
        var bytes = Array(text.utf8)[...]
        while !bytes.isEmpty {
            let count = bytes.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count < 0 && errno == EINTR { continue }
            guard count > 0 else { throw failed("written") }
            bytes = bytes.dropFirst(count)
        }
    }

    /// Removes the file, if it is there. Blocks.
    func remove() throws(SafeDirectory.Refusal) {
        guard let place = try ReachedDirectory.open(directory) else { return }
        guard unlinkat(place.descriptor, name, 0) == 0 || errno == ENOENT else { throw failed("removed") }
    }

    private func failed(_ what: String) -> SafeDirectory.Refusal {
        SafeDirectory.Refusal(reason: "\(path) cannot be \(what): \(errorText(errno))")
    }
}
