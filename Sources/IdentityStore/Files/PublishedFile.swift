public import CertificateProviding
import Glibc

/// A file that every user of the host may read, in a directory that may be another user's: the answer to a challenge below the document
/// root of a web server, say.
///
/// No link is followed that another user may have put on the way, so that a process of root changes no file elsewhere. All calls block on
/// the file system.
public struct PublishedFile: Sendable {
    /// Absolute, or relative to the current directory.
    public let path: String
    private let directory: String
    private let name: String

    /// Creates the description of a file, and touches nothing.
    ///
    /// - Parameters:
    ///   - directory: The path of the directory.
    ///   - name: The name in it, without a slash.
    public init(in directory: String, named name: String) {
        (self.directory, self.name) = (directory, name)
        path = "\(directory)/\(name)"
    }

    /// Creates the description of a file from its ``path``; `nil` for one without a slash.
    public init?(path: String) {
        guard let slash = path.lastIndex(of: "/") else { return nil }
        self.init(in: String(path[..<slash]), named: String(path[path.index(after: slash)...]))
    }

    /// Writes the file with the mode 0644, in place of one of that name: readers find either one whole, and a full disk leaves the old one.
    /// It is not flushed to disk.
    ///
    /// - Parameter root: A directory that must exist. Missing directories below it are created with the mode 0755.
    /// - Throws: `storeWriteFailed`.
    public func write(_ content: [UInt8], below root: String) throws(ProviderError) {
        do throws(SafeDirectory.Refusal) {
            try makeDirectories(below: root)
            try replace(content)
        } catch {
            throw ProviderError(.storeWriteFailed, "\(DisplayText.visible(error.reason)).")
        }
    }

    /// Removes the file, if it is there.
    ///
    /// - Throws: `storeWriteFailed`.
    public func remove() throws(ProviderError) {
        do throws(SafeDirectory.Refusal) {
            guard let place = try ReachedDirectory.open(directory) else { return }
            guard unlinkat(place.descriptor, name, 0) == 0 || errno == ENOENT else { throw failed("removed") }
        } catch {
            throw ProviderError(.storeWriteFailed, "\(DisplayText.visible(error.reason)).")
        }
    }

    private func makeDirectories(below root: String) throws(SafeDirectory.Refusal) {
        guard directory.hasPrefix(root + "/") else { return }
        var partial = root
        for component in directory.dropFirst(root.count).split(separator: "/") {
            partial += "/" + component
            try SafeDirectory.make(partial, mode: 0o755, .system)
        }
    }

    private func replace(_ content: [UInt8]) throws(SafeDirectory.Refusal) {
        guard let place = try ReachedDirectory.open(directory) else {
            throw SafeDirectory.Refusal(reason: "\(directory) does not exist; create it")
        }
        // A link there leads elsewhere; a file is of a run that was killed.
        let new = ".\(name).new"
        unlinkat(place.descriptor, new, 0)
        let descriptor = openat(place.descriptor, new, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0o644)
        guard descriptor >= 0 else { throw failed("created") }
        var isDone = false
        defer {
            close(descriptor)
            if !isDone { unlinkat(place.descriptor, new, 0) }
        }
        // Other users read it, whatever the file mode creation mask of this process.
        guard fchmod(descriptor, 0o644) == 0 else { throw failed("given its mode") }
        var bytes = content[...]
        while !bytes.isEmpty {
            let count = bytes.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count < 0 && errno == EINTR { continue }
            guard count > 0 else { throw failed("written") }
            bytes = bytes.dropFirst(count)
        }
        guard renameat(place.descriptor, new, place.descriptor, name) == 0 else { throw failed("replaced") }
        isDone = true
    }

    private func failed(_ what: String) -> SafeDirectory.Refusal {
        SafeDirectory.Refusal(reason: "\(path) cannot be \(what): \(errorText(errno))")
    }
}
