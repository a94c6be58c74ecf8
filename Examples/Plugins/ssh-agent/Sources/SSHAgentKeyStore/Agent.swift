import CertificateProviding

/// An agent, by the path of its socket (draft-ietf-sshm-ssh-agent). All calls block for a bounded time.
struct Agent: Sendable {
    let path: String

    /// A key in the agent, of any type.
    struct Key {
        let blob: [UInt8]
        let comment: String
    }

    /// The time for a signature: a person may have to confirm it.
    static let signatureTimeout = Duration.seconds(30)

    private enum Message {
        static let failure: UInt8 = 5
        static let success: UInt8 = 6
        static let requestIdentities: UInt8 = 11
        static let identities: UInt8 = 12
        static let signRequest: UInt8 = 13
        static let signature: UInt8 = 14
        static let addIdentity: UInt8 = 17
        static let removeIdentity: UInt8 = 18
        static let addConstrained: UInt8 = 25
        static let constrainLifetime: UInt8 = 1
    }

    /// Returns all keys.
    ///
    /// - Throws: `vaultLocked` for an agent that is locked, `unavailable`, `timedOut`, `protocolError`.
    func keys() throws(ProviderError) -> [Key] {
        var (type, answer) = try exchange([Message.requestIdentities])
        guard type == Message.identities else { throw unexpected(type) }
        var keys: [Key] = []
        for _ in 0..<(try answer.uint32()) {
            let blob = [UInt8](try answer.string())
            keys.append(Key(blob: blob, comment: String(decoding: try answer.string(), as: UTF8.self)))
        }
        if keys.isEmpty, try !takesKeys() {
            throw ProviderError(
                .vaultLocked,
                "The ssh-agent at \(path) shows no keys, and takes none: it is locked. Unlock it with 'ssh-add -X'.")
        }
        return keys
    }

    /// Returns whether an agent without keys takes one, for a second at most. A locked agent shows no keys either, and its
    /// keys must not count as destroyed. The protocol has no question for that.
    private func takesKeys() throws(ProviderError) -> Bool {
        let probe = try GeneratedKey(.ed25519)
        guard try add(probe, comment: "certprov probe", seconds: 1) else { return false }
        _ = try isDone([Message.removeIdentity] + probe.publicKey.blob.sshString)
        return true
    }

    /// Returns a key; `nil` if the agent does not have it.
    func key(_ key: SSHPublicKey) throws(ProviderError) -> Key? {
        try keys().first { $0.blob == key.blob }
    }

    /// Adds a key.
    ///
    /// - Parameter seconds: The time after which the agent forgets it; `nil` for never.
    /// - Returns: Whether the agent has taken it.
    func add(_ key: GeneratedKey, comment: String, seconds: Int? = nil) throws(ProviderError) -> Bool {
        let type = key.publicKey.type
        let point = key.publicKey.info.keyBits
        // The secret string of an Ed25519 key ends in the public key.
        let repeated = type == .ed25519 ? point : []
        let secret = try key.secret()
        var head = [seconds == nil ? Message.addIdentity : Message.addConstrained]
        for text in [type.rawValue, type.curve] { head += text?.utf8.sshString ?? [] }
        head += point.sshString + (secret.count + repeated.count).sshUInt32
        var tail = repeated + comment.utf8.sshString
        if let seconds { tail += [Message.constrainLifetime] + seconds.sshUInt32 }
        return try isDone(head, secret, tail)
    }

    /// Removes a key. Succeeds if the agent does not have it.
    ///
    /// - Throws: `deleteFailed`, and as ``keys()``.
    func remove(_ key: SSHPublicKey) throws(ProviderError) -> Bool {
        if try isDone([Message.removeIdentity] + key.blob.sshString) { return true }
        guard try self.key(key) != nil else { return false }
        throw ProviderError(
            .deleteFailed, "The ssh-agent at \(path) does not remove the key \(key.uri); remove it with 'ssh-add -d'.")
    }

    /// Returns a signature as TLS has it.
    ///
    /// - Throws: `notFound` for a key that is gone, `rejected` if the agent or its user refuses, and as ``keys()``.
    func signature(for message: [UInt8], by key: SSHPublicKey) throws(ProviderError) -> [UInt8] {
        let request = [Message.signRequest] + key.blob.sshString + message.sshString + 0.sshUInt32
        var (type, answer) = try exchange(request, timeout: Self.signatureTimeout)
        switch type {
        case Message.signature:
            var signature = SSHReader(try answer.string())
            guard try signature.string().elementsEqual(key.type.rawValue.utf8) else { throw SSHReader.malformed }
            let blob = try signature.string()
            do { return try key.type.signature(blob) } catch { throw SSHReader.malformed }
        case Message.failure:
            guard try self.key(key) != nil else {
                throw ProviderError(
                    .notFound,
                    "The key \(key.uri) is not in the ssh-agent at \(path) any more: it was removed, or the agent was "
                        + "restarted. Have a new identity made: certprov fetch --force.")
            }
            throw ProviderError(
                .rejected,
                "The ssh-agent at \(path) refuses to sign with the key \(key.uri); if the key was added with 'ssh-add -c', "
                    + "confirm the signature when the agent asks.")
        default: throw unexpected(type)
        }
    }

    /// Returns whether the agent has done what a request asks for.
    private func isDone(
        _ head: [UInt8], _ secret: SecretBytes? = nil, _ tail: [UInt8] = []
    ) throws(ProviderError) -> Bool {
        let (type, _) = try exchange(head, secret, tail)
        guard type == Message.success || type == Message.failure else { throw unexpected(type) }
        return type == Message.success
    }

    /// Makes a request on a connection of its own, which costs little.
    private func exchange(
        _ head: [UInt8], _ secret: SecretBytes? = nil, _ tail: [UInt8] = [], timeout: Duration = .seconds(10)
    ) throws(ProviderError) -> (type: UInt8, fields: SSHReader) {
        let request = [SecretBytes(copying: head), secret, SecretBytes(copying: tail)].compactMap(\.self)
        return try AgentConnection(path: path, timeout: timeout).answer(to: request)
    }

    private func unexpected(_ type: UInt8) -> ProviderError {
        ProviderError(
            .protocolError,
            "The ssh-agent at \(path) answers with a message of type \(type), which does not fit the request; check that this "
                + "is the socket of an agent.")
    }
}
