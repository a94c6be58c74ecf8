import CertificateProviding

/// The URLs that the calling program wants to have opened.
public struct CallbackURLs: Equatable, Sendable {
    public var success: Callback?
    public var error: Callback?

    public init(success: Callback? = nil, error: Callback? = nil) { (self.success, self.error) = (success, error) }

    /// The callbacks of a contract, from the file that it came in. A text that is no URL is none.
    public init(of content: ContractContent) {
        self.init(
            success: content.successCallback.flatMap { Callback($0) },
            error: content.errorCallback.flatMap { Callback($0) })
    }
}

/// A URL that tells the calling program the outcome.
public struct Callback: Equatable, Sendable {
    /// The URL, without a message.
    public let text: String
    /// In lower case.
    public let scheme: String

    /// Reads a URL with a scheme; `nil` for another text, and for one with spaces or control characters, seen or not.
    public init?(_ text: String) {
        guard text.utf8.count <= SellSignURL.maximumLength, let colon = text.firstIndex(of: ":"),
            case let scheme = text[..<colon].lowercased(), ContractsSettings.isScheme(scheme),
            text.utf8.allSatisfy({ $0 > 0x20 && $0 != 0x7f }), DisplayText.visible(text) == text,
            !text.contains(where: \.isWhitespace)
        else { return nil }
        (self.text, self.scheme) = (text, scheme)
    }

    /// What is opened after a success.
    public var success: String { Self.encoded(text) }

    /// What is opened after an error: the URL with the parameter `message`.
    public func failure(_ message: String) -> String {
        let end = text.firstIndex(of: "#") ?? text.endIndex
        let separator = text[..<end].contains("?") ? "&" : "?"
        let parameter = "\(separator)message=\(ByteText.percentEncoded(Self.shortened(message).utf8))"
        return Self.encoded(text[..<end]) + parameter + Self.encoded(text[end...])
    }

    /// A message in the room that a URL on a command line has.
    private static func shortened(_ message: String) -> String {
        let limit = 2048
        guard message.utf8.count > limit else { return message }
        var (short, size) = ("", 3)
        for scalar in message.unicodeScalars {
            size += String(scalar).utf8.count
            guard size <= limit else { break }
            short.unicodeScalars.append(scalar)
        }
        return short + "…"
    }

    /// A URL in ASCII (RFC 3987, section 3.1).
    private static func encoded(_ text: some StringProtocol) -> String {
        ByteText.percentEncoded(text.utf8) { $0 < 0x80 }
    }
}
