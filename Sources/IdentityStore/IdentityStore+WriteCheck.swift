package import CertificateProviding
import Glibc
import SystemPackage

extension IdentityStore {
    /// Checks that the store can be written, with files that have no name and leave nothing behind: one with some content beside the
    /// entries, and an empty one in each directory of the store. If the store does not exist, the directory that it would be
    /// created in is tried.
    ///
    /// - Throws: `storeWriteFailed`.
    package func checkWritable() throws(ProviderError) {
        var place = FilePath(path)
        var status = stat()
        while stat(place.string, &status) != 0, place.removeLastComponent() {}
        try tryWrite(in: place, bytes: Self.trialSize)
        guard place == FilePath(path) else { return }
        // The directories of providers and applications, each with a store of its own.
        for parent in subdirectories(of: place) {
            try tryWrite(in: parent, bytes: 0)
            for directory in subdirectories(of: parent) { try tryWrite(in: directory, bytes: 0) }
        }
    }

    /// More than an identity takes.
    private static let trialSize = 32_768
    /// `O_TMPFILE`, which Swift does not import.
    private static let unnamed = O_DIRECTORY | 0o20_000_000

    private func subdirectories(of directory: FilePath) -> [FilePath] {
        let names = (try? SafeDirectory.open(directory.string)?.entries()) ?? []
        return names.sorted().map { directory.appending($0) }.filter { path in
            var status = stat()
            return lstat(path.string, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
        }
    }

    private func tryWrite(in directory: FilePath, bytes count: Int) throws(ProviderError) {
        let file = Glibc.open(directory.string, O_WRONLY | O_CLOEXEC | Self.unnamed, 0o600)
        guard file >= 0 else {
            // A file system that has no such files.
            if [EOPNOTSUPP, EISDIR, EINVAL].contains(errno), access(directory.string, W_OK) == 0 { return }
            throw notWritable(directory, errno)
        }
        defer { close(file) }
        guard count > 0 else { return }
        let content = [UInt8](repeating: 0, count: count)
        var rest = content[...]
        while !rest.isEmpty {
            let written = rest.withUnsafeBytes { files.write(file, $0) }
            if written < 0 && errno == EINTR { continue }
            guard written > 0 else { throw notWritable(directory, errno) }
            rest = rest.dropFirst(written)
        }
        guard files.synchronize(file) == 0 else { throw notWritable(directory, errno) }
    }

    private func notWritable(_ directory: FilePath, _ code: Int32) -> ProviderError {
        let step =
            switch code {
            case ENOSPC, EDQUOT: "free some space there"
            case EROFS: "mount it for writing, or name another place with STATE_DIRECTORY"
            default: "run certprov as the user that the directory belongs to"
            }
        return ProviderError(
            .storeWriteFailed,
            "No identity can be stored or renewed: \(directory.string.withVisibleControls) cannot be written to: "
                + "\(errorText(code)); \(step).")
    }
}
