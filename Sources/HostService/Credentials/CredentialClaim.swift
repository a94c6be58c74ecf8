import CertificateProviding
import HostSockets

/// The credential that a client says it fetches, by the name that it has bound: systemd binds one for each credential of a unit
/// (systemd.exec(5), LoadCredential=). Any user can bind such a name.
struct CredentialClaim: Equatable {
    /// A part of an identity, by the suffix of the credential.
    enum Part: String, CaseIterable {
        /// Key and chain in one file.
        case pair = "pem"
        case chain = "crt"
        case key
        case trust = "ca"
    }

    let unit: String
    /// The name of the credential, such as `web.pem`.
    let credential: String
    /// The name of the identity.
    let identity: String
    let part: Part

    /// - Parameter name: Its bytes: NUL, hexadecimal digits, `/unit/`, the unit, `/`, the credential. The kernel bounds it to 108.
    init(_ name: [UInt8]) throws(Grants.Refusal) {
        let words = name.dropFirst().split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
            .map { String(decoding: $0, as: UTF8.self) }
        guard name.first == 0, name.dropFirst().allSatisfy({ (0x21...0x7e).contains($0) }), words.count == 4,
            UInt64(words[0], radix: 16) != nil, words[1] == "unit", !words[2].isEmpty
        else { throw Grants.Refusal("its address is not one that systemd binds for the credential of a unit") }
        (unit, credential) = (words[2], words[3])
        let end = credential.lastIndex(of: ".") ?? credential.endIndex
        guard let part = Part(rawValue: String(credential[end...].dropFirst())), end > credential.startIndex else {
            let suffixes = Part.allCases.map { ".\($0.rawValue)" }.joined(separator: ", ")
            throw Grants.Refusal(
                "\(credential) is not the name of an identity with \(suffixes); correct LoadCredential= of the unit")
        }
        (identity, self.part) = (String(credential[..<end]), part)
    }
}
