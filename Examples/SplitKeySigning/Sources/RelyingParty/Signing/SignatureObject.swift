import CertificateProviding
import Foundation
import Hummingbird

/// A signature as hosts send it: six texts, none empty. Only its form is checked here. Hexadecimal digits are in lower case.
struct SignatureObject: Codable, Sendable, Equatable {
    let hash: String
    let mpinId: String
    let u: String
    let v: String
    let publicKey: String
    let dtas: String

    private enum Name: CodingKey { case hash, mpinId, mpinid, u, v, publicKey, dtas }

    init(from decoder: any Decoder) throws {
        let members = try decoder.container(keyedBy: Name.self)
        func hexadecimal(_ name: Name, _ lengths: ClosedRange<Int>) throws -> String {
            let text = try members.decode(String.self, forKey: name).lowercased()
            guard lengths.contains(text.utf8.count), ByteText.bytes(hexadecimal: text) != nil else {
                throw HTTPError(
                    .badRequest, message: "The member \(name.stringValue) of the signature is not valid hexadecimal.")
            }
            return text
        }
        hash = try hexadecimal(.hash, 64...64)
        mpinId = try hexadecimal(members.contains(.mpinId) ? .mpinId : .mpinid, 2...8192)
        u = try hexadecimal(.u, 194...194)
        v = try hexadecimal(.v, 194...194)
        publicKey = try hexadecimal(.publicKey, 384...384)
        dtas = try members.decode(String.self, forKey: .dtas)
        guard (1...1024).contains(dtas.utf8.count) else {
            throw HTTPError(.badRequest, message: "The member dtas of the signature is empty or too long.")
        }
    }

    func encode(to encoder: any Encoder) throws {
        var members = encoder.container(keyedBy: Name.self)
        for (name, value) in [
            (Name.hash, hash), (.mpinId, mpinId), (.u, u), (.v, v), (.publicKey, publicKey), (.dtas, dtas),
        ] {
            try members.encode(value, forKey: name)
        }
    }

    private struct Identity: Decodable {
        let userID: String
        let dtas: [String]?
    }

    /// Returns the user that the signature names.
    ///
    /// - Throws: `HTTPError`: 400 for an mpinId that is not the JSON of a user, and for other issuers than it names.
    func user() throws -> String {
        let bytes = Data(ByteText.bytes(hexadecimal: mpinId) ?? [])
        let identity = try HTTPError.json(Identity.self, bytes, "The mpinId of the signature")
        let issuers = Data(base64Encoded: dtas).flatMap { try? JSONDecoder().decode([String].self, from: $0) }
        guard let issuers, issuers == identity.dtas ?? issuers else {
            throw HTTPError(
                .badRequest, message: "The member dtas of the signature does not have the issuers of mpinId.")
        }
        return identity.userID
    }
}
