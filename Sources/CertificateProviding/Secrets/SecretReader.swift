import Glibc
import Synchronization
import SystemPackage

/// Reads secrets from their sources.
///
/// Removes one line ending at the end of a file, credential or descriptor, unless the secret has a NUL byte: text has
/// none. Returns environment variables and answers unchanged. A descriptor can be read only once, so its secret is
/// cached for the lifetime of the reader.
public final class SecretReader: Sendable {
    /// The maximum size in bytes. A wrong path must not load a disk image into locked memory.
    package static let maximumSize = 64 * 1024
    /// How long a pipe may send no data, in milliseconds.
    static let silence: Int32 = 30_000

    /// Returns the bytes of an environment variable, which need not be UTF-8.
    private let environment: @Sendable (String) -> SecretBytes?
    private let elsewhere: (@Sendable (SecretSource) throws(ProviderError) -> SecretBytes)?
    private let descriptors = Mutex<[Int32: SecretBytes]>([:])

    /// Creates a reader with the environment of this process.
    public convenience init() {
        self.init(variables: { name in
            getenv(name).map { SecretBytes(copying: UnsafeRawBufferPointer(start: $0, count: strlen($0))) }
        })
    }

    /// Creates a reader with another environment.
    ///
    /// - Parameter environment: Returns the value of an environment variable.
    package convenience init(environment: @escaping @Sendable (String) -> String?) {
        self.init(variables: { environment($0).map { SecretBytes(utf8: $0) } })
    }

    /// Creates a reader that passes every source on, such as to the host of a plugin.
    ///
    /// - Parameter read: Reads a secret; blocks for a bounded time. Throws as ``read(_:)`` does.
    public init(reading read: @escaping @Sendable (SecretSource) throws(ProviderError) -> SecretBytes) {
        environment = { _ in nil }
        elsewhere = read
    }

    private init(variables: @escaping @Sendable (String) -> SecretBytes?) {
        environment = variables
        elsewhere = nil
    }

    /// `$CREDENTIALS_DIRECTORY`, or `nil` if systemd has not passed credentials to this process.
    package var credentialsDirectory: String? {
        guard let value = environment("CREDENTIALS_DIRECTORY"), !value.isEmpty else { return nil }
        return value.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
    }

    /// Whether a file is one that systemd has passed to this process, in `$CREDENTIALS_DIRECTORY`. systemd guards the directory itself:
    /// the files' group bits only reflect its access control list.
    public func isCredential(_ path: String) -> Bool {
        guard let directory = credentialsDirectory, directory.hasPrefix("/") else { return false }
        let parent = directory.hasSuffix("/") ? directory : directory + "/"
        let name = path.utf8.dropFirst(parent.utf8.count)
        return path.utf8.starts(with: parent.utf8) && !name.isEmpty && !name.contains(UInt8(ascii: "/"))
    }

    /// Reads a secret without asking the user. Blocks as long as the source does, at most 30 seconds without data.
    /// Providers call ``ProviderEnvironment/secret(from:prompt:interaction:)`` instead.
    ///
    /// - Throws: `interactionRequired` for ``SecretSource/prompt``; `fileNotFound`; `configurationInvalid` for a source
    ///   that is unsafe, unset or too large, with the native code `ENOENT` if it does not exist; `timedOut` for a pipe
    ///   without data.
    public func read(_ source: SecretSource) throws(ProviderError) -> SecretBytes {
        if let elsewhere { return try elsewhere(source) }
        switch source.kind {
        case .prompt:
            throw ProviderError(
                .interactionRequired,
                "The secret source is prompt, and there is no user to ask here; use file:, fd: or systemd: instead.")
        case .environment(let name):
            guard let value = environment(name) else {
                throw ProviderError(
                    .configurationInvalid,
                    "The secret \(source) cannot be read: the environment variable is not set. Set it, or use another source.",
                    nativeCode: Int(ENOENT))
            }
            return value
        case .file(let path):
            return try readFile(path, source, refusingAccessByOthers: !isCredential(path))
        case .systemdCredential(let name):
            guard let directory = credentialsDirectory, directory.hasPrefix("/") else {
                throw ProviderError(
                    .configurationInvalid,
                    "The secret \(source) cannot be read: CREDENTIALS_DIRECTORY is not set to an absolute path. Run "
                        + "the process in a systemd unit with LoadCredential=\(name.withVisibleControls):….",
                    nativeCode: Int(ENOENT), reason: .outsideUnit)
            }
            // As ``isCredential(_:)`` says.
            return try readFile(directory + "/" + name, source, refusingAccessByOthers: false)
        case .fileDescriptor(let number):
            // Read under the lock: of two threads with the same descriptor each would get a part of the secret.
            return try descriptors.withLock { known throws(ProviderError) in
                if let secret = known[number] { return secret }
                try Self.requireInherited(number, source)
                let secret = try readToEnd(number, source).trimmingTextLineEnding()
                known[number] = secret
                return secret
            }
        }
    }
}

extension SecretReader {
    /// Refuses a descriptor that this process opened itself: it belongs to another part of the process, which must not
    /// lose its data. Runtimes and libraries set close-on-exec on theirs, which an inherited descriptor cannot have.
    private static func requireInherited(
        _ number: Int32, _ source: SecretSource
    ) throws(ProviderError) {
        let flags = fcntl(number, F_GETFD)
        guard flags >= 0 else {
            throw ProviderError(
                .configurationInvalid,
                "The secret \(source) cannot be read: \(errorText(errno)). Start the process with that "
                    + "descriptor open.", nativeCode: Int(ENOENT))
        }
        guard flags & FD_CLOEXEC == 0 else {
            throw ProviderError(
                .configurationInvalid,
                "The secret \(source) cannot be read: this process opened the descriptor itself. Pass one that is open "
                    + "when the process starts.")
        }
    }

    private func advice(_ code: Int32, _ source: SecretSource) -> String {
        switch (code, source.kind) {
        case (ENOENT, .systemdCredential(let name)): " Add LoadCredential=\(name.withVisibleControls):PATH to the unit."
        case (ENOENT, _), (ENOTDIR, _): " Create the file, or name another one."
        case (EACCES, _): " Give uid \(geteuid()) the right to read it."
        default: ""
        }
    }

    private func readFile(
        _ path: String, _ source: SecretSource, refusingAccessByOthers: Bool
    ) throws(ProviderError) -> SecretBytes {
        // O_NONBLOCK: opening a named pipe without a writer must not hang; readToEnd waits with a deadline.
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
        guard descriptor >= 0 else {
            let code = errno
            throw ProviderError(
                code == ENOENT ? .fileNotFound : .configurationInvalid,
                "The secret \(source) cannot be opened: \(errorText(code))." + advice(code, source))
        }
        defer { close(descriptor) }
        guard let status = try? FileDescriptor(rawValue: descriptor).stat() else {
            throw ProviderError(
                .configurationInvalid, "The file status of the secret \(source) cannot be read.")
        }
        guard status.type != .directory else {
            throw ProviderError(
                .configurationInvalid, "The secret \(source) is a directory; name a file in it.")
        }
        guard status.type == .regular || status.type == .fifo else {
            throw ProviderError(
                .configurationInvalid, "The secret \(source) is a device or a socket; name a file or a pipe.")
        }
        if refusingAccessByOthers {
            guard [geteuid(), 0].contains(status.userID.rawValue) else {
                throw ProviderError(
                    .configurationInvalid,
                    // It is most often that of a service, which would lose it.
                    "The secret \(source) belongs to another user (uid \(status.userID.rawValue)): run certprov as that user, "
                        + "or name a file that belongs to uid \(geteuid()) or to root.")
            }
            if let refusal = SecretFileAccess(of: descriptor)?.refusal("The secret \(source)", path: path) {
                throw ProviderError(.configurationInvalid, refusal)
            }
        }
        return try readToEnd(descriptor, source).trimmingTextLineEnding()
    }

    /// Returns a warning about a file that others than this user can read; `nil` for any other source. Does not read it.
    package func warning(about source: SecretSource) -> String? {
        // Opening a pipe would disturb its writer.
        guard elsewhere == nil, let path = source.filePath, !path.utf8.contains(0), !isCredential(path),
            let status = try? FilePath(path).stat(), status.type == .regular
        else { return nil }
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        guard let access = SecretFileAccess(of: descriptor), !access.isOfAnotherUser else { return nil }
        return access.warning(about: "The secret \(source)")
    }

    private func readToEnd(
        _ descriptor: Int32, _ source: SecretSource
    ) throws(ProviderError) -> SecretBytes {
        var used = 0
        // One byte more than is permitted shows that there is too much. The buffer is itself a secret.
        let whole = try SecretBytes(count: Self.maximumSize + 1) { buffer throws(ProviderError) in
            while used < buffer.count {
                var waiting = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
                let ready = poll(&waiting, 1, Self.silence)
                if ready < 0 && errno == EINTR { continue }
                guard ready > 0 else {
                    throw ProviderError(
                        .timedOut,
                        "The secret \(source) sent no data for \(Self.silence / 1000) seconds; check the program "
                            + "that writes to it.")
                }
                let count = Glibc.read(
                    descriptor, UnsafeMutableRawBufferPointer(rebasing: buffer[used...]).baseAddress,
                    buffer.count - used)
                if count < 0 && (errno == EINTR || errno == EAGAIN) { continue }
                guard count >= 0 else {
                    throw ProviderError(
                        .configurationInvalid,
                        "The secret \(source) cannot be read: \(errorText(errno)).")
                }
                if count == 0 { return }
                used += count
            }
        }
        guard used <= Self.maximumSize else {
            throw ProviderError(
                .configurationInvalid,
                "The secret \(source) is larger than \(Self.maximumSize / 1024) KiB; check that it is the right file.")
        }
        return whole.withUnsafeBytes { SecretBytes(copying: $0[0..<used]) }
    }
}

extension String {
    /// The text quoted as one word of a POSIX shell.
    package var shellQuoted: String {
        let plain = utf8.allSatisfy {
            (0x61...0x7a).contains($0) || (0x41...0x5a).contains($0) || (0x30...0x39).contains($0)
                || [0x2e, 0x2f, 0x2d, 0x5f].contains($0)
        }
        if plain && !isEmpty { return self }
        return "'" + split(separator: "'", omittingEmptySubsequences: false).joined(separator: "'\\''") + "'"
    }
}

extension SecretBytes {
    /// Returns the secret without a line ending at its end. One with a NUL byte is returned unchanged: a key in DER has
    /// one, and may end in any byte.
    fileprivate func trimmingTextLineEnding() -> SecretBytes {
        let isBinary = withUnsafeBytes { $0.contains(0) }
        return isBinary ? self : trimmingLineEnding()
    }
}
