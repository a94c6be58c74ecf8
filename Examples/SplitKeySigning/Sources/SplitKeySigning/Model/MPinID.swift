public import CertificateProviding
import FoundationEssentials

/// An identity as an authority has issued it: JSON, whose very bytes are hashed to the identity's point.
public struct MPinID: Sendable, Equatable {
    /// What a key is for.
    public enum Scope: String, Sendable, CaseIterable {
        /// Logins at the authority.
        case login = "auth"
        /// Signatures of documents.
        case signing = "dvs-auth"
    }

    public let bytes: [UInt8]
    public let userID: String
    /// The company that the identity is of; `nil` where it does not say.
    public let companyID: String?
    public let scope: Scope

    private struct Content: Decodable {
        let userID: String
        let cID: String?
        let scope: [String]
    }

    /// An authority's identities have some hundred bytes.
    private static let maximumSize = 4096

    /// Reads an identity. The verifier reads the same bytes with another program: one that could be read in two ways, by a member
    /// that is there twice, is refused, since `scope` decides what a key may do.
    ///
    /// - Throws: `malformedData` for an identity without a user, with a scope other than one of ``Scope``, or with a member twice.
    public init(_ bytes: [UInt8]) throws(ProviderError) {
        guard bytes.count <= Self.maximumSize, let names = Self.memberNames(bytes),
            Set(names).count == names.count,
            let content = try? JSONDecoder().decode(Content.self, from: Data(bytes))
        else {
            throw Self.malformed("is not the JSON of an identity, with each member once")
        }
        guard !content.userID.isEmpty else { throw Self.malformed("has an empty userID") }
        guard content.scope.count == 1, let scope = Scope(rawValue: content.scope[0]) else {
            throw Self.malformed("has the scope \(content.scope), and a key has one of auth and dvs-auth")
        }
        (self.bytes, userID, companyID, self.scope) = (bytes, content.userID, content.cID, scope)
    }

    /// Reads the hexadecimal digits of an identity.
    public init(hexadecimal: String) throws(ProviderError) {
        guard let bytes = ByteText.bytes(hexadecimal: hexadecimal) else { throw Self.malformed("is not hexadecimal") }
        try self.init(bytes)
    }

    /// As it is sent.
    public var hexadecimal: String { DisplayText.hexadecimal(bytes) }

    private static func malformed(_ problem: String) -> ProviderError {
        ProviderError(.malformedData, "mpinId \(DisplayText.visible(problem)); it is not used.")
    }

    /// Returns the names of an object's members; `nil` for one with an escape, which could write a name in another way.
    private static func memberNames(_ json: [UInt8]) -> [[UInt8]]? {
        var (names, depth, index): ([[UInt8]], Int, Int) = ([], 0, 0)
        while index < json.count {
            let byte = json[index]
            index += 1
            switch byte {
            case UInt8(ascii: "{"), UInt8(ascii: "["): depth += 1
            case UInt8(ascii: "}"), UInt8(ascii: "]"): depth -= 1
            case UInt8(ascii: "\""):
                let start = index
                while index < json.count, json[index] != UInt8(ascii: "\"") {
                    index += json[index] == UInt8(ascii: "\\") ? 2 : 1
                }
                guard index < json.count else { return nil }
                let text = json[start..<index]
                index += 1
                let next = json[index...].first { ![0x20, 0x09, 0x0A, 0x0D].contains($0) }
                guard depth == 1, next == UInt8(ascii: ":") else { continue }
                guard !text.contains(UInt8(ascii: "\\")) else { return nil }
                names.append(Array(text))
            default: continue
            }
        }
        return names
    }
}
