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
        try tryWrite(in: place, bytes: FileSystem.trialSize)
        guard place == FilePath(path) else { return }
        // The directories of providers and applications, each with a store of its own.
        for parent in subdirectories(of: place) {
            try tryWrite(in: parent, bytes: 0)
            for directory in subdirectories(of: parent) { try tryWrite(in: directory, bytes: 0) }
        }
    }

    private func subdirectories(of directory: FilePath) -> [FilePath] {
        let names = (try? SafeDirectory.open(directory.string)?.entries()) ?? []
        return names.sorted().map { directory.appending($0) }.filter { path in
            var status = stat()
            return lstat(path.string, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
        }
    }

    private func tryWrite(in directory: FilePath, bytes count: Int) throws(ProviderError) {
        if let code = files.tryWrite(in: directory.string, bytes: count) { throw notWritable(directory, code) }
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
