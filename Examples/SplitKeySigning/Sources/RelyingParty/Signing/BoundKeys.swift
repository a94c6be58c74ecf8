import CertificateProviding
import Crypto
import Foundation

/// The public key that each user has signed with at first: one file a user, which is there whole or not at all. Files of other
/// processes count at once.
struct BoundKeys: Sendable {
    let directory: String

    private struct Record: Codable {
        let userID: String
        let publicKey: String
    }

    /// - Throws: `storeWriteFailed` if the directory cannot be made.
    init(directory: String) throws(ProviderError) {
        self.directory = directory + "/users"
        do {
            try FileManager.default.createDirectory(
                atPath: self.directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        } catch {
            throw failure(.storeWriteFailed, self.directory, "cannot be made", errno)
        }
    }

    /// Returns the key of a user; `nil` if the user has signed with none.
    ///
    /// - Throws: `storeReadFailed`, also for a file that is damaged: then no key is taken for the user.
    func key(of user: String) throws(ProviderError) -> String? {
        let path = path(of: user)
        guard let data = FileManager.default.contents(atPath: path) else {
            guard access(path, F_OK) != 0, errno == ENOENT else {
                throw failure(.storeReadFailed, path, "cannot be read", errno)
            }
            return nil
        }
        guard let record = try? JSONDecoder().decode(Record.self, from: data), record.userID == user else {
            throw ProviderError(
                .storeReadFailed,
                "\(path) is damaged; look for the user's key in a backup, or run: relying-party forget-user --config FILE \(DisplayText.shellQuoted(user))"
            )
        }
        return record.publicKey
    }

    /// A key that is on disk, and not the user's yet.
    struct Draft: Sendable {
        fileprivate let key: String
        fileprivate let user: String
        fileprivate let path: String
    }

    /// Writes the key of a user who has none. ``bind(_:)`` makes it the user's, ``discard(_:)`` removes the draft in any case.
    ///
    /// - Throws: `storeWriteFailed`.
    func draft(_ key: String, of user: String) throws(ProviderError) -> Draft {
        let draft = Draft(key: key, user: user, path: directory + "/.\(UUID().uuidString)")
        do throws(ProviderError) { try write(draft) } catch {
            discard(draft)
            throw error
        }
        return draft
    }

    func discard(_ draft: Draft) { unlink(draft.path) }

    private func write(_ draft: Draft) throws(ProviderError) {
        let temporary = draft.path
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys]
        do {
            let data = try encoder.encode(Record(userID: draft.user, publicKey: draft.key))
            guard
                FileManager.default.createFile(
                    atPath: temporary, contents: nil, attributes: [.posixPermissions: 0o600]),
                let file = FileHandle(forWritingAtPath: temporary)
            else { throw failure(.storeWriteFailed, temporary, "cannot be made", errno) }
            defer { try? file.close() }
            try file.write(contentsOf: data)
            try file.synchronize()
        } catch let error as ProviderError { throw error } catch {
            throw failure(.storeWriteFailed, temporary, "cannot be written", errno)
        }
    }

    /// Records the key of a user who has none.
    ///
    /// - Returns: Whether the user's key is this one now: another one may have been faster.
    /// - Throws: `storeWriteFailed`.
    func bind(_ draft: Draft) throws(ProviderError) -> Bool {
        let path = path(of: draft.user)
        // Fails where the user has a key: the first one stays.
        guard link(draft.path, path) == 0 else {
            guard errno == EEXIST else { throw failure(.storeWriteFailed, path, "cannot be made", errno) }
            return try key(of: draft.user) == draft.key
        }
        try synchronizeDirectory()
        return true
    }

    /// Forgets the key of a user.
    ///
    /// - Returns: Whether there was one.
    /// - Throws: `deleteFailed`.
    func forget(_ user: String) throws(ProviderError) -> Bool {
        let path = path(of: user)
        guard unlink(path) == 0 else {
            guard errno == ENOENT else { throw failure(.deleteFailed, path, "cannot be deleted", errno) }
            return false
        }
        try synchronizeDirectory()
        return true
    }

    private func synchronizeDirectory() throws(ProviderError) {
        let descriptor = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        defer { close(descriptor) }
        guard descriptor >= 0, fsync(descriptor) == 0 else {
            throw failure(.storeWriteFailed, directory, "cannot be written", errno)
        }
    }

    /// Names may have any characters, and any length.
    private func path(of user: String) -> String {
        "\(directory)/\(DisplayText.hexadecimal(SHA256.hash(data: Data(user.utf8)))).json"
    }

    private func failure(
        _ code: ProviderError.Code, _ path: String, _ reason: String, _ number: Int32
    ) -> ProviderError {
        ProviderError(
            code, "\(path) \(reason): \(String(cString: strerror(number))). Check 'RelyingParty.state'.",
            nativeCode: Int(number))
    }
}
