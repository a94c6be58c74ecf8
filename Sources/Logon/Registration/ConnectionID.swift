import CertificateProviding
import FoundationEssentials

/// The id of an application's connection with the platform server: 1 to 128 visible ASCII characters that need no quoting in
/// a header field, a cookie or a path.
public struct ConnectionID: Hashable, Sendable, CustomStringConvertible {
    private let text: String

    /// Checks an id.
    ///
    /// - Returns: `nil` for one with other characters than letters, digits, `.`, `-`, `_`, `~` and `:`, or of another length.
    public init?(_ text: String) {
        let isPermitted = text.utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"):
                true
            default: ".-_~:".utf8.contains(byte)
            }
        }
        guard isPermitted, (1...128).contains(text.utf8.count) else { return nil }
        self.text = text
    }

    /// Chooses a new one.
    init() { text = UUID().uuidString.lowercased() }

    public var description: String { text }
}
