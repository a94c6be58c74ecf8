import CertificateProviding

/// The name of a key pair: 1 to 128 bytes of UTF-8, without control characters and `/`, that begins with neither `.` nor `-`.
///
/// Names that Unicode holds for the same text, such as those with `é` as one and as two characters, are one name.
public struct KeyName: Sendable, Hashable, CustomStringConvertible {
    /// The text of the name.
    public let description: String

    /// Returns nil for a text that ``rule`` excludes.
    public init?(_ text: String) {
        guard (1...128).contains(text.utf8.count), let first = text.utf8.first,
            first != UInt8(ascii: "."), first != UInt8(ascii: "-"),
            text.unicodeScalars.allSatisfy({ $0 != "/" && $0.properties.generalCategory != .control })
        else { return nil }
        description = text
    }

    /// The name for messages.
    var shown: String { DisplayText.visible(description) }

    /// The rule, for messages: completes "The name of a key pair must …".
    public static let rule =
        "have 1 to 128 bytes of UTF-8, no control characters and no '/', and begin with neither '.' nor '-'"
}
