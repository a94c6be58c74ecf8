package import CertificateProviding
import Crypto
import Glibc
import IdentityStore
import Synchronization

/// A request of this process that waits for a person. Its folder goes with ``remove()``, or the last reference.
package final class PendingRequest: Sendable {
    /// With the id and the paths of the folder.
    package let question: SigningQuestion

    private let directory: SafeDirectory
    private let folder: SafeDirectory
    private let lock: Int32
    private let pipe: Int32
    private let files: FileSystem
    private let isRemoved = Mutex(false)

    init(
        _ question: SigningQuestion, _ directory: SafeDirectory, _ folder: SafeDirectory, lock: Int32, pipe: Int32,
        _ files: FileSystem
    ) {
        (self.question, self.directory, self.folder) = (question, directory, folder)
        (self.lock, self.pipe, self.files) = (lock, pipe, files)
    }

    deinit {
        remove()
        if pipe >= 0 { close(pipe) }
        close(lock)
    }

    /// Reads the data back. Blocks on the disk.
    ///
    /// - Throws: `storeReadFailed` if it is not the data that was asked about.
    package func data() throws(ProviderError) -> [UInt8] {
        let reason: String
        do throws(SafeDirectory.Refusal) {
            let data = try folder.read(question.operation.fileName, atMost: question.size)
            if let data, Array(SHA256.hash(data: data)).hexEncoded == question.digest { return data }
            reason = data == nil ? "it was removed" : "it was changed"
        } catch {
            reason = error.reason.withVisibleControls
        }
        throw ProviderError(
            .storeReadFailed,
            "Nothing is signed: the copy of the data that was shown cannot be used: \(reason). Ask for the signature again."
        )
    }

    /// Removes the request from those that wait, with its files. Blocks on the disk. A second call does nothing.
    package func remove() {
        let isFirst = isRemoved.withLock { isRemoved in
            defer { isRemoved = true }
            return !isRemoved
        }
        guard isFirst else { return }
        let gone = PendingRequests.gonePrefix + question.id
        _ = files.rename(directory.descriptor, question.id, gone)
        // The next process that looks removes the rest.
        try? directory.removeTree(gone, files)
    }
}
