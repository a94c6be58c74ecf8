package import CertificateProviding
import FoundationEssentials

/// Secret bytes in a message: `{"secret":"BASE64"}`. A trace shows no value of that form.
///
/// The JSON library has copies of it for a short time, which are not wiped.
package struct Secret: Codable, Sendable {
    package static let key = "secret"
    package let bytes: SecretBytes

    package init(_ bytes: SecretBytes) { self.bytes = bytes }

    private enum CodingKeys: String, CodingKey { case secret }

    package init(from decoder: any Decoder) throws {
        var data = try decoder.container(keyedBy: CodingKeys.self).decode(Data.self, forKey: .secret)
        bytes = SecretBytes(copying: data)
        data.resetBytes(in: 0..<data.count)
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(bytes.withUnsafeBytes { Data($0) }, forKey: .secret)
    }
}
