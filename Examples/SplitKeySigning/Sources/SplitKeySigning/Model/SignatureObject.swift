import CertificateProviding

/// A signature as it is sent: six texts, of which none is empty.
public struct SignatureObject: Sendable, Equatable, Codable {
    /// The digest that is signed: hexadecimal.
    public let hash: String
    public let mpinId: String
    public let u: String
    public let v: String
    public let publicKey: String
    /// The names of the issuers: base64 of a JSON array, as the authority has sent it.
    public let dtas: String

    private enum Key: String, CodingKey {
        case hash, mpinId, u, v, publicKey, dtas
        /// The vendor's clients write it so, too.
        case mpinid
    }

    init(hash: String, mpinId: String, u: String, v: String, publicKey: String, dtas: String) {
        (self.hash, self.mpinId, self.u, self.v, self.publicKey, self.dtas) = (hash, mpinId, u, v, publicKey, dtas)
    }

    public init(from decoder: any Decoder) throws {
        let members = try decoder.container(keyedBy: Key.self)
        func text(_ key: Key) throws -> String {
            let text = try members.decode(String.self, forKey: key)
            guard !text.isEmpty else {
                throw DecodingError.dataCorruptedError(forKey: key, in: members, debugDescription: "is empty")
            }
            return text
        }
        self.init(
            hash: try text(.hash), mpinId: try text(members.contains(.mpinId) ? .mpinId : .mpinid), u: try text(.u),
            v: try text(.v), publicKey: try text(.publicKey), dtas: try text(.dtas))
    }

    public func encode(to encoder: any Encoder) throws {
        var members = encoder.container(keyedBy: Key.self)
        try members.encode(hash, forKey: .hash)
        try members.encode(mpinId, forKey: .mpinId)
        try members.encode(u, forKey: .u)
        try members.encode(v, forKey: .v)
        try members.encode(publicKey, forKey: .publicKey)
        try members.encode(dtas, forKey: .dtas)
    }
}

/// A signature, and the whole second that it is of.
public struct TimedSignature: Sendable, Equatable, Codable {
    public let signature: SignatureObject
    /// Seconds since 1970.
    public let timestamp: UInt32
}
