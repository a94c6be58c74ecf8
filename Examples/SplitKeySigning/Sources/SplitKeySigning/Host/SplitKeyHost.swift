public import CertificateProviding
import Crypto
public import FoundationEssentials
import ProviderTransport

/// A host with keys of its users: enrols, logs in and signs.
public struct SplitKeyHost: Sendable {
    public let store: SplitKeyStore
    private let authority: Authority
    private let relyingParty: RelyingParty?
    private let pairing: any PairingComputing
    private let companyID: String?
    private let desk: PINDesk
    private let now: @Sendable () -> Date

    /// - Parameters:
    ///   - relyingParty: `nil` where signatures are made offline only.
    ///   - companyID: The company that keys must be of; `nil` for any.
    public init(
        _ store: SplitKeyStore, _ authority: Authority, _ relyingParty: RelyingParty?,
        pairing: any PairingComputing, companyID: String? = nil, _ desk: PINDesk,
        now: @escaping @Sendable () -> Date = { Date() }
    ) {
        (self.store, self.authority, self.relyingParty, self.pairing) = (store, authority, relyingParty, pairing)
        (self.companyID, self.desk, self.now) = (companyID, desk, now)
    }

    private var storage: any IdentityStorage { store.storage }

    // MARK: - Keys

    /// The key of a user.
    ///
    /// - Throws: `notFound`.
    public func key(of userID: String, _ scope: MPinID.Scope) throws(ProviderError) -> SplitKey {
        guard let key = try store.key(of: userID, scope, at: authority.url) else {
            throw ProviderError(
                .notFound,
                "\(DisplayText.visible(userID)) has no \(scope == .login ? "login" : "signing") key of \(authority.server.authority) here; run: dvs enrol"
            )
        }
        return key
    }

    /// The users with a login key of this authority, and those with a signing key.
    public func users() throws(ProviderError) -> (login: Set<String>, signing: Set<String>) {
        let keys = try store.keys().compactMap { try? $0.get() }.filter { $0.authority == authority.url }
        func users(_ scope: MPinID.Scope) -> Set<String> { Set(keys.filter { $0.scope == scope }.map(\.userID)) }
        return (users(.login), users(.signing))
    }

    /// Enrols the login key of the user of an activation code. Until the authority has verified a signature with it, nothing replaces
    /// what is stored.
    @discardableResult
    public func enrolLoginKey(code: SecretBytes) async throws(ProviderError) -> SplitKey {
        try await enrol(.login, of: nil, for: code)
    }

    /// Enrols the signing key of a user, after a login.
    @discardableResult
    public func enrolSigningKey(of userID: String) async throws(ProviderError) -> SplitKey {
        let session = try await session(of: userID)
        if let key = try store.unconfirmed(.signing, at: authority.url).first(where: { $0.userID == userID }) {
            let isDone = try await finish(key) { () throws(ProviderError) in
                try await desk.use(ofKey: key, in: storage, isConfirmed: false) {
                    pin throws(ProviderError) in
                    try await probe(key, pin, session)
                }
            }
            if isDone {
                try? store.endEnrolments(of: userID, at: authority.url)
                return key
            }
        }
        let key = try await enrol(.signing, of: userID, for: session)
        try? store.endEnrolments(of: userID, at: authority.url)
        return key
    }

    /// Returns the user of an enrolment that has begun here: the login key is there, and the signing key is not enrolled yet. Finishes
    /// a login key whose confirmation was lost.
    ///
    /// - Parameter code: The activation code that it has begun with; `nil` for any enrolment.
    /// - Returns: `nil` if there is none, or the authority has not enrolled its login key: its activation code is good still.
    public func begunEnrolment(with code: SecretBytes? = nil) async throws(ProviderError) -> String? {
        let digest = code.map(Self.digest(of:))
        let begun = try store.begunEnrolments(at: authority.url).filter { digest == nil || $0.code == digest }
        for enrolment in begun {
            let key = try store.key(of: enrolment.userID, .login, at: authority.url)
            if key?.identity.hexadecimal == enrolment.mpinId { return enrolment.userID }
        }
        guard code == nil else { return try await finishedLoginKey(among: Set(begun.map(\.mpinId))) }
        let users = try users()
        if let user = users.login.subtracting(users.signing).min() { return user }
        return try await finishedLoginKey()
    }

    private static func digest(of code: SecretBytes) -> String {
        var hash = SHA256()
        code.withUnsafeBytes { hash.update(bufferPointer: $0) }
        return DisplayText.hexadecimal(Array(hash.finalize()))
    }

    /// Finishes the enrolment of a login key whose confirmation was lost, such as by the end of the process.
    ///
    /// - Parameter identities: The mpinId of the keys that are meant; `nil` for any.
    /// - Returns: The user; `nil` if there is no such key, or the authority has not enrolled it: its activation code is good still.
    func finishedLoginKey(
        among identities: Set<String>? = nil
    ) async throws(ProviderError) -> String? {
        for key in try store.unconfirmed(.login, at: authority.url)
        where identities?.contains(key.identity.hexadecimal) != false {
            let isDone = try await finish(key) { () throws(ProviderError) in
                _ = try await login(key, isConfirmed: false)
            }
            if isDone { return key.userID }
        }
        return nil
    }

    /// Stores a key, if the authority accepts it. One that it does not know is removed.
    private func finish(
        _ key: SplitKey, _ test: () async throws(ProviderError) -> Void
    ) async throws(ProviderError) -> Bool {
        do throws(ProviderError) { try await test() } catch {
            guard [.notFound, .rejected, .pinLocked].contains(error.code) else { throw error }
            try store.abandon(key)
            return false
        }
        try store.save(key)
        return true
    }

    private func enrol(
        _ scope: MPinID.Scope, of userID: String?, for token: SecretBytes
    ) async throws(ProviderError) -> SplitKey {
        // Before the PIN is asked for: the pairing helper may fail.
        let enrolment = try await Enrolment(authority, companyID: companyID, pairing)
        let pin = try await desk.enrolmentPIN(scope)
        let key = try await enrolment.key(scope, of: userID, with: pin, for: token)
        // The confirmation uses up the code, and its answer may be lost.
        try store.save(key, isConfirmed: false)
        if scope == .login { try store.beginEnrolment(key, code: Self.digest(of: token)) }
        do throws(ProviderError) { try await probe(key, pin, token) } catch {
            if ![.unavailable, .timedOut, .userCancelled].contains(error.code) { try store.abandon(key) }
            throw error
        }
        try store.save(key)
        return key
    }

    /// Has the authority verify a signature on a random number of this host: on one of its own it would get a document signed.
    private func probe(_ key: SplitKey, _ pin: PIN, _ token: SecretBytes) async throws(ProviderError) {
        let number = (0..<32).map { _ in UInt8.random(in: 0...255) }
        try await authority.confirm(try key.sign(number, at: try second(), with: pin), token)
    }

    private func second() throws(ProviderError) -> UInt32 {
        guard let second = UInt32(exactly: now().timeIntervalSince1970.rounded(.down)), second > 0 else {
            throw ProviderError(.internal, "The clock of this host is wrong; set it.")
        }
        return second
    }

    /// Changes the PIN of a key, after the authority has said that the old one is right.
    ///
    /// - Parameter source: Has the new PIN; `nil` to ask.
    /// - Returns: The configured source, if the new PIN is not there. It is not used until it changes.
    @discardableResult
    public func changePIN(
        of userID: String, _ scope: MPinID.Scope, from source: SecretSource? = nil
    ) async throws(ProviderError) -> String? {
        let key = try key(of: userID, scope)
        let old: PIN
        if scope == .signing {
            let session = try await session(of: userID)
            old = try await desk.use(ofKey: key, in: storage) { pin throws(ProviderError) in
                try await probe(key, pin, session)
                return pin
            }
        } else {
            old = try await login(key).pin
        }
        let new = try await desk.newPIN(scope, from: source)
        try store.save(try key.changing(old, to: new), insteadOf: key)
        return desk.retire(besides: new, of: key, in: storage)
    }

    // MARK: - Logins

    /// Logs in at the authority, and returns the session.
    private func session(of userID: String) async throws(ProviderError) -> SecretBytes {
        try await login(try key(of: userID, .login)).session
    }

    private func login(
        _ key: SplitKey, isConfirmed: Bool = true
    ) async throws(ProviderError) -> (session: SecretBytes, pin: PIN) {
        // A signing key would sign a document whose digest the authority has chosen.
        guard key.scope == .login else {
            throw ProviderError(.operationNotAllowed, "A key for signatures never logs in.")
        }
        return try await desk.use(ofKey: key, in: storage, isConfirmed: isConfirmed) {
            () throws(ProviderError) in
            try await authority.challenge(for: key.identity)
        } _: { pin, challenge throws(ProviderError) in
            (try await authority.login(try key.sign(challenge, at: try second(), with: pin)), pin)
        }
    }

    /// Logs in at the relying party, and stores its access token.
    public func login(_ userID: String) async throws(ProviderError) {
        _ = try await access(of: userID, at: try requireRelyingParty())
    }

    private func requireRelyingParty() throws(ProviderError) -> RelyingParty {
        guard let relyingParty else {
            throw ProviderError(
                .configurationMissing,
                "No relying party is configured; set SplitKey.relying-party in the property file.")
        }
        return relyingParty
    }

    private func access(
        of userID: String, at relyingParty: RelyingParty
    ) async throws(ProviderError) -> SecretBytes {
        let url = try await relyingParty.authorizeURL()
        let (code, state) = try await authority.authorize(
            url, try await session(of: userID), for: relyingParty)
        let token = try await relyingParty.token(code: code, state: state, of: userID)
        let expires = now().addingTimeInterval(token.expires_in ?? 0)
        try store.save(
            .init(relyingParty: relyingParty.url, userID: userID, token: token.access_token, expires: expires))
        return SecretBytes(utf8: token.access_token)
    }

    /// An access token, and whether it is of a login that was made for this signature.
    private struct Access {
        var token: SecretBytes
        var isFresh = false
    }

    /// The stored access token, or that of a login.
    private func currentAccess(
        of userID: String, at relyingParty: RelyingParty
    ) async throws(ProviderError) -> Access {
        do throws(ProviderError) {
            if let stored = try store.access(of: userID, at: relyingParty.url), stored.expires > now() {
                return Access(token: SecretBytes(utf8: stored.token))
            }
        } catch { if error.reason != .damaged { throw error } }
        return Access(token: try await self.access(of: userID, at: relyingParty), isFresh: true)
    }

    /// Asks the relying party with the access token. A stored one that it does not accept, such as after its restart, is forgotten, and
    /// it is asked again after a login.
    private func ask<Answer>(
        _ relyingParty: RelyingParty, of userID: String, with access: inout Access,
        _ question: (SecretBytes) async throws(ProviderError) -> Answer?
    ) async throws(ProviderError) -> Answer {
        while true {
            if let answer = try await question(access.token) { return answer }
            try store.removeAccess(of: userID, at: relyingParty.url)
            guard !access.isFresh else {
                throw ProviderError(
                    .rejected,
                    "\(relyingParty.server.authority) does not accept the access token of a login that it has just accepted. If it was restarted, run the command again; else look for the reason in its log."
                )
            }
            access = Access(token: try await self.access(of: userID, at: relyingParty), isFresh: true)
        }
    }

    // MARK: - Signatures

    /// A signature that the relying party has said is valid.
    public struct Signed: Sendable {
        public let signed: TimedSignature
        /// The relying party's word: `ValidSignature`.
        public let status: String
    }

    /// Signs a document for the relying party.
    ///
    /// - Parameter approve: Whether the person agrees, of the digest. Called before the signing PIN is asked for.
    /// - Throws: `protocolError` if the relying party answers with the digest of another document, or with a time that is more than ten
    ///   minutes from this host's: no signing PIN is asked for, and nothing else is sent; `pinIncorrect`, `pinLocked`, `rejected` by its verdict; `userCancelled`.
    public func sign(
        _ document: [UInt8], as userID: String,
        approve: (_ digest: String) async throws(ProviderError) -> Bool
    ) async throws(ProviderError) -> Signed {
        let relyingParty = try requireRelyingParty()
        _ = try key(of: userID, .signing)
        let digest = Array(SHA256.hash(data: document))
        var access = try await currentAccess(of: userID, at: relyingParty)
        let answer = try await ask(relyingParty, of: userID, with: &access) { token throws(ProviderError) in
            try await relyingParty.document(document, access: token)
        }
        guard ByteText.bytes(hexadecimal: answer.hash) == digest, answer.timestamp > 0 else {
            throw ProviderError(
                .protocolError,
                "\(relyingParty.server.authority) answers with the digest of another document, or without a time. Nothing is signed; look for the reason there."
            )
        }
        try requireNow(answer.timestamp, of: relyingParty)
        guard try await approve(DisplayText.hexadecimal(digest)) else {
            throw ProviderError(.userCancelled, "The document is not signed.")
        }
        // Its PIN may have been changed while the person read.
        let key = try key(of: userID, .signing)
        return try await desk.use(ofKey: key, in: storage) { pin throws(ProviderError) in
            let signed = try key.sign(digest, at: answer.timestamp, with: pin)
            let verdict: RelyingParty.Verdict
            var mayBeCounted = false
            do throws(ProviderError) {
                verdict = try await ask(relyingParty, of: userID, with: &access) {
                    token throws(ProviderError) in
                    try await relyingParty.verify(signed, answer.authToken, access: token, &mayBeCounted)
                }
            } catch {
                // A wrong login PIN says nothing about this one.
                throw ProviderError(
                    [.pinIncorrect, .pinLocked].contains(error.code) ? .rejected : error.code, error.message,
                    reason: mayBeCounted ? .mayBeCounted : error.reason, underlying: error)
            }
            do throws(ProviderError) {
                return Signed(signed: signed, status: try Self.status(of: verdict, relyingParty))
            } catch {
                var error = error
                // Such as by a relying party that was restarted, and does not know the document any more.
                if mayBeCounted, ![.pinIncorrect, .pinLocked].contains(error.code) { error.reason = .mayBeCounted }
                throw error
            }
        }
    }

    /// How far a relying party's clock may be from this host's.
    private static let maximumDifference: TimeInterval = 600

    /// A relying party that chose the time freely could collect signatures for later.
    private func requireNow(
        _ timestamp: UInt32, of relyingParty: RelyingParty
    ) throws(ProviderError) {
        let (theirs, own) = (Date(timeIntervalSince1970: TimeInterval(timestamp)), now())
        guard abs(theirs.timeIntervalSince(own)) > Self.maximumDifference else { return }
        throw ProviderError(
            .protocolError,
            "\(relyingParty.server.authority) gives the document the time \(theirs.formatted(.iso8601)), and it is \(own.formatted(.iso8601)) by the clock of this host: more than 10 minutes apart. Nothing is signed; check the clock of this host, then that of the relying party."
        )
    }

    private static func status(
        of verdict: RelyingParty.Verdict, _ relyingParty: RelyingParty
    ) throws(ProviderError) -> String {
        let server = relyingParty.server.authority
        switch (verdict.verified, verdict.status) {
        case (true, "ValidSignature"): return verdict.status
        case (false, "BadPin"):
            throw ProviderError(.pinIncorrect, "\(server) says that the PIN is wrong (BadPin).")
        case (false, "UserBlocked"):
            throw ProviderError(
                .pinLocked,
                "\(server) says that the key is blocked: three wrong PINs in a row (UserBlocked). Enrol again with a new activation code: dvs enrol"
            )
        case (false, "InvalidSignature"):
            throw ProviderError(
                .rejected,
                "\(server) says that the signature is not valid (InvalidSignature). If it was restarted, run the command again; if the key was enrolled anew, it has to forget the former one. Its log has the reason."
            )
        default:
            throw ProviderError(
                .protocolError,
                "\(server) answers the signature with \(DisplayText.visible(String(verdict.status.prefix(60)))), verified: \(verdict.verified); look for the reason there."
            )
        }
    }

    /// Signs a document at this host's own time. Nobody here can tell whether the PIN was right.
    public func signOffline(
        _ document: [UInt8], as userID: String,
        approve: (_ digest: String) async throws(ProviderError) -> Bool
    ) async throws(ProviderError) -> TimedSignature {
        let key = try key(of: userID, .signing)
        let digest = Array(SHA256.hash(data: document))
        guard try await approve(DisplayText.hexadecimal(digest)) else {
            throw ProviderError(.userCancelled, "The document is not signed.")
        }
        return try await desk.use(ofKey: key, in: storage, isTry: false) { pin throws(ProviderError) in
            try key.sign(digest, at: try second(), with: pin)
        }
    }
}
