public import CertificateProviding
import FoundationEssentials

/// The keys of this host, and its access tokens: sealed records.
public struct SplitKeyStore: Sendable {
    let storage: any IdentityStorage

    /// - Parameter storage: A part of the identity store that is this program's alone.
    public init(_ storage: any IdentityStorage) { self.storage = storage }

    /// A key as it is stored. Nothing else is.
    private struct KeyRecord: Codable {
        let curve: String
        let authority: String
        let userId: String
        let mpinId: String
        let publicKey: String
        let dtas: String
        let token: String
        let pinLength: Int
    }

    private static let prefix = "key-"
    /// Of keys that the authority has not confirmed, or whose confirmation was lost.
    private static let unconfirmedPrefix = "new-"

    /// The name of a key's record: it is the same for another key of that user.
    static func name(
        _ authority: String, _ userID: String, _ scope: MPinID.Scope, isConfirmed: Bool = true
    ) -> String {
        (isConfirmed ? prefix : unconfirmedPrefix)
            + StoredIdentity.name(distinguishedBy: [authority, userID, scope.rawValue])
    }

    // MARK: - Keys

    /// Returns all keys, by user, and why one cannot be read.
    public func keys() throws(ProviderError) -> [Result<SplitKey, ProviderError>] {
        try keys(Self.prefix)
    }

    /// Returns the keys whose enrolment has not come to its end.
    func unconfirmed(
        _ scope: MPinID.Scope, at authority: String
    ) throws(ProviderError) -> [SplitKey] {
        try keys(Self.unconfirmedPrefix).compactMap { try? $0.get() }.filter {
            $0.scope == scope && $0.authority == authority
        }
    }

    private func keys(
        _ prefix: String
    ) throws(ProviderError) -> [Result<SplitKey, ProviderError>] {
        var keys: [Result<SplitKey, ProviderError>] = []
        for name in try storage.recordNames() where name.hasPrefix(prefix) {
            do throws(ProviderError) {
                if let key = try key(named: name) { keys.append(.success(key)) }
            } catch { keys.append(.failure(error)) }
        }
        return keys.sorted { Self.order($0) < Self.order($1) }
    }

    private static func order(_ key: Result<SplitKey, ProviderError>) -> String {
        (try? key.get()).map { "\($0.userID)\u{0}\($0.scope.rawValue)" } ?? "\u{10FFFF}"
    }

    /// Returns the key of a user; `nil` if there is none.
    public func key(
        of userID: String, _ scope: MPinID.Scope, at authority: String
    ) throws(ProviderError) -> SplitKey? {
        guard let key = try key(named: Self.name(authority, userID, scope)) else { return nil }
        guard key.userID == userID, key.scope == scope, key.authority == authority else {
            throw Self.damaged("it is of another user or for another use")
        }
        return key
    }

    private func key(named name: String) throws(ProviderError) -> SplitKey? {
        try storage.record(named: name).map { record throws(ProviderError) in try key(record, named: name) }
    }

    private func key(_ record: SecretBytes, named name: String) throws(ProviderError) -> SplitKey {
        let stored = try VersionedRecord<KeyRecord>(named: name).content(of: record)
        guard stored.curve == G1Curve.bls12381.name else {
            throw ProviderError(unsupportedCurve: stored.curve)
        }
        guard let publicKey = ByteText.bytes(hexadecimal: stored.publicKey),
            let token = ByteText.bytes(hexadecimal: stored.token),
            PIN.lengths.contains(stored.pinLength)
        else { throw Self.damaged("a member is not what it must be") }
        return try SplitKey(
            authority: stored.authority, identity: try MPinID(hexadecimal: stored.mpinId), publicKey: publicKey,
            dtas: stored.dtas, token: SecretBytes(copying: token), pinLength: stored.pinLength)
    }

    private static func damaged(_ why: String) -> ProviderError {
        ProviderError(
            .storeReadFailed, "A stored key is damaged: \(why). Enrol it again: dvs enrol", reason: .damaged)
    }

    /// Stores a key instead of the one of the same user for the same use.
    ///
    /// - Parameters:
    ///   - isConfirmed: Whether the authority has verified a signature with it. Otherwise it is stored beside the other one.
    ///   - old: What is replaced; `nil` for any.
    /// - Throws: `operationNotAllowed` if another key than `old` is stored; `storeReadFailed` for one that a newer version has written.
    func save(
        _ key: SplitKey, isConfirmed: Bool = true, insteadOf old: SplitKey? = nil
    ) throws(ProviderError) {
        let name = Self.name(key.authority, key.userID, key.scope, isConfirmed: isConfirmed)
        let record = try VersionedRecord(named: name).record(
            of: KeyRecord(
                curve: G1Curve.bls12381.name, authority: key.authority, userId: key.userID,
                mpinId: key.identity.hexadecimal, publicKey: DisplayText.hexadecimal(key.publicKey), dtas: key.dtas,
                token: key.token.withUnsafeBytes { DisplayText.hexadecimal($0) }, pinLength: key.pinLength))
        if !isConfirmed { try requireReplaceable(Self.name(key.authority, key.userID, key.scope)) }
        try write(record, name) { stored throws(ProviderError) in
            guard let old else { return }
            let current = try stored.map { stored throws(ProviderError) in try self.key(stored, named: name)
            }
            guard current?.token != old.token else { return }
            throw ProviderError(
                .operationNotAllowed,
                "Another process has replaced the key of \(DisplayText.visible(key.userID)); its PIN is not changed. Try again.",
                reason: .busy)
        }
        // What became of the PIN of the former key says nothing about this one's.
        if old == nil { try PINUses(storage).forget(name) }
        if isConfirmed { try removeUnconfirmed(key) }
    }

    /// Before an activation code is used up for a key that could not be stored.
    private func requireReplaceable(_ name: String) throws(ProviderError) {
        do throws(ProviderError) {
            guard let stored = try storage.record(named: name) else { return }
            _ = try VersionedRecord<AnyRecord>(named: name).undamagedContent(of: stored)
        } catch { if error.reason != .damaged { throw error } }
    }

    /// Writes a record, also in the place of one that is damaged.
    private func write(
        _ record: SecretBytes, _ name: String,
        _ check: (SecretBytes?) throws(ProviderError) -> Void = { _ in }
    ) throws(ProviderError) {
        func change(_ stored: SecretBytes?) throws(ProviderError) -> SecretBytes? {
            if let stored { _ = try VersionedRecord<AnyRecord>(named: name).undamagedContent(of: stored) }
            try check(stored)
            return record
        }
        do throws(ProviderError) { try storage.updateRecord(named: name, change) } catch {
            guard error.reason == .damaged else { throw error }
            try storage.removeRecord(named: name)
            try storage.updateRecord(named: name, change)
        }
    }

    /// Removes a key that the authority has not enrolled.
    func abandon(_ key: SplitKey) throws(ProviderError) {
        try storage.removeRecord(named: BegunEnrolment.name(of: key))
        try removeUnconfirmed(key)
    }

    private func removeUnconfirmed(_ key: SplitKey) throws(ProviderError) {
        let name = Self.name(key.authority, key.userID, key.scope, isConfirmed: false)
        try storage.removeRecord(named: name)
        try PINUses(storage).forget(name)
    }

    /// Removes what there is of a user, also what cannot be read.
    ///
    /// - Throws: `notFound` if there is no key.
    public func forget(_ userID: String, at authority: String) throws(ProviderError) {
        let stored = Set(try storage.recordNames())
        var isFound = false
        for scope in MPinID.Scope.allCases {
            for isConfirmed in [true, false] {
                let name = Self.name(authority, userID, scope, isConfirmed: isConfirmed)
                isFound = isFound || stored.contains(name)
                try storage.removeRecord(named: name)
                try PINUses(storage).forget(name)
            }
        }
        guard isFound else {
            throw ProviderError(
                .notFound,
                "\(DisplayText.visible(userID)) has no key of \(DisplayText.visible(authority)) here; see: dvs list")
        }
        try endEnrolments(of: userID, at: authority)
        let access = AccessToken.prefix
        for name in try storage.recordNames() where name.hasPrefix(access) {
            // One that cannot be read may be this user's, and is had again by a login.
            guard let access = try? self.access(named: name), access.userID != userID else {
                try storage.removeRecord(named: name)
                continue
            }
        }
    }

    // MARK: - Enrolments

    /// An enrolment whose login key is made, and whose signing key is not enrolled yet.
    struct BegunEnrolment: Codable {
        static let prefix = "enrolment-"

        let authority: String
        let userID: String
        /// The login key's.
        let mpinId: String
        /// SHA-256 of the activation code: hexadecimal.
        let code: String

        static func name(of key: SplitKey) -> String {
            prefix + StoredIdentity.name(distinguishedBy: [key.authority, key.identity.hexadecimal])
        }
    }

    /// Writes down that an enrolment has begun.
    ///
    /// - Parameter code: SHA-256 of the activation code: hexadecimal.
    func beginEnrolment(_ key: SplitKey, code: String) throws(ProviderError) {
        let begun = BegunEnrolment(
            authority: key.authority, userID: key.userID, mpinId: key.identity.hexadecimal, code: code)
        let name = BegunEnrolment.name(of: key)
        try write(try VersionedRecord(named: name).record(of: begun), name)
    }

    /// Returns the enrolments that have begun. One that cannot be read is left out.
    func begunEnrolments(at authority: String) throws(ProviderError) -> [BegunEnrolment] {
        try namedEnrolments(at: authority).map(\.begun)
    }

    /// Forgets that enrolments of a user have begun.
    func endEnrolments(of userID: String, at authority: String) throws(ProviderError) {
        for (name, begun) in try namedEnrolments(at: authority) where begun.userID == userID {
            try storage.removeRecord(named: name)
        }
    }

    private func namedEnrolments(
        at authority: String
    ) throws(ProviderError) -> [(name: String, begun: BegunEnrolment)] {
        var found: [(name: String, begun: BegunEnrolment)] = []
        for name in try storage.recordNames().sorted() where name.hasPrefix(BegunEnrolment.prefix) {
            guard let record = try? storage.record(named: name),
                let begun = try? VersionedRecord<BegunEnrolment>(named: name).content(of: record),
                begun.authority == authority
            else { continue }
            found.append((name, begun))
        }
        return found
    }

    // MARK: - Access tokens

    /// The access token that a relying party has given for a login.
    struct AccessToken: Codable {
        static let prefix = "access-"

        let relyingParty: String
        let userID: String
        let token: String
        let expires: Date

        var name: String { Self.name(relyingParty, userID) }

        static func name(_ relyingParty: String, _ userID: String) -> String {
            prefix + StoredIdentity.name(distinguishedBy: [relyingParty, userID])
        }
    }

    func access(of userID: String, at relyingParty: String) throws(ProviderError) -> AccessToken? {
        try access(named: AccessToken.name(relyingParty, userID))
    }

    private func access(named name: String) throws(ProviderError) -> AccessToken? {
        try storage.record(named: name).map { record throws(ProviderError) in
            try VersionedRecord<AccessToken>(named: name).content(of: record)
        }
    }

    func save(_ access: AccessToken) throws(ProviderError) {
        try write(try VersionedRecord(named: access.name).record(of: access), access.name)
    }

    func removeAccess(of userID: String, at relyingParty: String) throws(ProviderError) {
        try storage.removeRecord(named: AccessToken.name(relyingParty, userID))
    }
}

extension ProviderError {
    /// A curve that this version has not.
    init(unsupportedCurve name: String) {
        self.init(
            .unsupportedAlgorithm,
            "The curve \(DisplayText.visible(name)) is not supported; the authority must use \(G1Curve.bls12381.name).")
    }
}
