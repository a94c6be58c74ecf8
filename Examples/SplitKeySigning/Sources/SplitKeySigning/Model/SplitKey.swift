public import CertificateProviding

/// A key as a host has it: worth nothing without its PIN.
public struct SplitKey: Sendable {
    /// The URL of the authority that has enrolled it.
    public let authority: String
    public let identity: MPinID
    /// Pa, a point of G2.
    public let publicKey: [UInt8]
    let dtas: String
    /// T.
    let token: SecretBytes
    /// The number of the PIN's digits.
    public let pinLength: Int

    /// The size of a point of G2.
    static let publicKeySize = 192

    public var userID: String { identity.userID }
    public var scope: MPinID.Scope { identity.scope }

    init(
        authority: String, identity: MPinID, publicKey: [UInt8], dtas: String, token: SecretBytes, pinLength: Int
    ) throws(ProviderError) {
        guard publicKey.count == Self.publicKeySize else {
            throw ProviderError(
                .malformedData, "A public key has \(Self.publicKeySize) bytes, and this one \(publicKey.count).")
        }
        guard !dtas.isEmpty else {
            throw ProviderError(.malformedData, "dtas is empty; it names the issuers.")
        }
        (self.authority, self.identity, self.publicKey) = (authority, identity, publicKey)
        (self.dtas, self.token, self.pinLength) = (dtas, token, pinLength)
    }

    /// What is hashed to the identity's point A.
    static func point(
        of identity: MPinID, _ publicKey: [UInt8], in group: G1Group
    ) throws(ProviderError) -> G1Point {
        try SplitKeyScheme(group).point(of: identity.bytes + publicKey)
    }

    /// Checks the length of a PIN. A PIN of another length is wrong, and costs no try.
    func requireLength(of pin: PIN, named name: String = "PIN") throws(ProviderError) {
        guard pin.length == pinLength else {
            throw ProviderError(
                .pinIncorrect,
                "The \(name) has \(pin.length) digits, and \(pinLength) since its enrolment or change. Nothing was sent."
            )
        }
    }

    /// Signs a digest. A wrong PIN makes a signature that is not valid, and only the authority can tell.
    ///
    /// - Parameters:
    ///   - digest: SHA-256 of a document, or a challenge of the authority for a login key.
    ///   - time: The whole second, not 0.
    func sign(
        _ digest: [UInt8], at time: UInt32, with pin: PIN
    ) throws(ProviderError) -> TimedSignature {
        guard digest.count == 32, time > 0 else {
            throw ProviderError(.malformedData, "A signature is of 32 bytes and at a second after 1970.")
        }
        try requireLength(of: pin)
        let group = try G1Group.bls12381.get()
        let scheme = SplitKeyScheme(group)
        let a = try Self.point(of: identity, publicKey, in: group)
        let t = try group.point(token.withUnsafeBytes { Array($0) }, named: "The stored token")
        let x = try group.randomScalar()
        let u = try a.times(x).bytes()
        // y is always computed here: who could choose it would get a signature on a document of his own.
        let y = try scheme.challenge(u, digest, at: time)
        let v = try scheme.proof(t, pin: try pin.scalar(), identity: a, random: x, challenge: y).bytes()
        return TimedSignature(
            signature: SignatureObject(
                hash: DisplayText.hexadecimal(digest), mpinId: identity.hexadecimal, u: DisplayText.hexadecimal(u),
                v: DisplayText.hexadecimal(v), publicKey: DisplayText.hexadecimal(publicKey), dtas: dtas),
            timestamp: time)
    }

    /// Returns the key with another PIN. `old` must be right: that is not checked here.
    func changing(_ old: PIN, to new: PIN) throws(ProviderError) -> SplitKey {
        try requireLength(of: old)
        let group = try G1Group.bls12381.get()
        let a = try Self.point(of: identity, publicKey, in: group)
        let t = try group.point(token.withUnsafeBytes { Array($0) }, named: "The stored token")
        let changed = try SplitKeyScheme(group).token(t, from: try old.scalar(), to: try new.scalar(), identity: a)
        return try SplitKey(
            authority: authority, identity: identity, publicKey: publicKey, dtas: dtas,
            token: SecretBytes(copying: try changed.bytes()), pinLength: new.length)
    }
}
