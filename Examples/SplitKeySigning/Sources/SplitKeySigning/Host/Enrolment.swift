import CertificateProviding
import ProviderTransport

/// One enrolment: z, the shares and T + pin·A live as long as this value, and are cleared with it.
struct Enrolment: Sendable {
    private let authority: Authority
    private let companyID: String?
    private let group: G1Group
    private let z: SecretScalar
    private let publicKey: [UInt8]

    /// Makes the random number and the public key.
    init(
        _ authority: Authority, companyID: String?, _ pairing: any PairingComputing
    ) async throws(ProviderError) {
        (self.authority, self.companyID) = (authority, companyID)
        group = try G1Group.bls12381.get()
        z = try group.randomScalar()
        publicKey = try await pairing.multiple(of: try group.inverse(of: z))
    }

    /// Gets the shares, and makes the key of them.
    ///
    /// - Parameters:
    ///   - userID: Whose key it must be; `nil` for any.
    func key(
        _ scope: MPinID.Scope, of userID: String?, with pin: PIN, for token: SecretBytes
    ) async throws(ProviderError) -> SplitKey {
        let registration = try await authority.register(token, publicKey: publicKey)
        guard registration.curve == group.curve.name else {
            throw ProviderError(unsupportedCurve: registration.curve)
        }
        let identity = try MPinID(hexadecimal: registration.mpinId)
        try check(identity, scope, userID)
        // Before the second issuer is asked, which gives its share once.
        let first = try share(registration.dvsClientSecretShare, "dvsClientSecretShare")
        let second = try share(try await authority.secondShare(registration.cs2url), "dvsClientSecret")
        let a = try SplitKey.point(of: identity, publicKey, in: group)
        let secret = try first.plus(second)
        let t = try SplitKeyScheme(group).token(secret, blinding: z, pin: try pin.scalar(), identity: a)
        return try SplitKey(
            authority: authority.url, identity: identity, publicKey: publicKey, dtas: registration.dtas,
            token: SecretBytes(copying: try t.bytes()), pinLength: pin.length)
    }

    private func share(_ text: String, _ name: String) throws(ProviderError) -> G1Point {
        guard let bytes = ByteText.bytes(hexadecimal: text) else {
            throw ProviderError(.malformedData, "\(name) is not hexadecimal; it is not used.")
        }
        return try group.point(bytes, named: name)
    }

    /// A login key whose identity said that it is for signatures would sign documents of the authority's choice by logging in.
    private func check(
        _ identity: MPinID, _ scope: MPinID.Scope, _ userID: String?
    ) throws(ProviderError) {
        let server = authority.server.authority
        guard identity.scope == scope else {
            throw ProviderError(
                .protocolError,
                "\(server) gives a key for \(identity.scope.rawValue) where one for \(scope.rawValue) was asked for; it is not used."
            )
        }
        // Byte by byte: texts are equal where accents are composed in another way.
        guard userID.map({ $0.utf8.elementsEqual(identity.userID.utf8) }) ?? true else {
            throw ProviderError(
                .protocolError,
                "\(server) gives a key of \(DisplayText.visible(identity.userID)) to \(DisplayText.visible(userID ?? "")); it is not used."
            )
        }
        guard companyID == nil || identity.companyID == companyID else {
            throw ProviderError(
                .configurationInvalid,
                "\(server) gives a key of the company \(DisplayText.visible(identity.companyID ?? "")); check 'SplitKey.company-id'."
            )
        }
    }
}
