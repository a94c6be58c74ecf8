import CertificateProviding
import Foundation
import SystemPackage

/// The directory of the database, the CA, and the key of codes. One server uses it at a time.
struct StateDirectory {
    let path: String
    private let lock: FileDescriptor

    /// Makes the directory if it does not exist, for this user only, and holds the lock (flock(2)) of its file `lock` until the
    /// process ends.
    init(_ path: String) throws {
        let name = "--state \(DisplayText.visible(path))"
        do {
            try FileManager.default.createDirectory(
                atPath: path, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        } catch {
            throw ConfigurationError(
                "\(name): the directory cannot be made: \(error.localizedDescription) Set another one.")
        }
        do {
            lock = try FileDescriptor.open(
                FilePath("\(path)/lock"), .readWrite, options: [.create, .closeOnExec], permissions: .ownerReadWrite)
        } catch {
            throw ConfigurationError("\(name): the file lock cannot be opened: \(error).")
        }
        self.path = path
        guard flock(lock.rawValue, LOCK_EX | LOCK_NB) == 0 else {
            let error = Errno(rawValue: errno)
            try? lock.close()
            throw ConfigurationError(
                error == .wouldBlock
                    ? "\(name) is in use by another contract-server. Stop that one, or set another directory."
                    : "\(name): the file lock cannot be locked: \(error).")
        }
    }
}
