import CertificateProviding
import Crypto

/// A document by its content.
public struct DocumentReference: Codable, Equatable, Hashable, Sendable {
    /// SHA-256, in 64 lower-case hexadecimal digits.
    public let sha256: String
    /// In bytes.
    public let size: Int

    /// Creates the reference of a content.
    public init(of content: some Sequence<UInt8>) {
        let content = Array(content)
        sha256 = DisplayText.hexadecimal(SHA256.hash(data: content))
        size = content.count
    }

    /// - Returns: `nil` for a text that is no digest, and a negative size.
    public init?(sha256: String, size: Int) {
        guard Self.isDigest(sha256), size >= 0 else { return nil }
        (self.sha256, self.size) = (sha256, size)
    }

    /// Whether a text is 64 lower-case hexadecimal digits.
    public static func isDigest(_ text: some StringProtocol) -> Bool {
        text.utf8.count == 64
            && text.utf8.allSatisfy { (48...57).contains($0) || (97...102).contains($0) }
    }
}
