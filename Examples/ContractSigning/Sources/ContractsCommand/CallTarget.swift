import Terminal
import CertificateProviding
import Contracts

/// What `open` has got: the URL of a call, or a file.
enum CallTarget {
    case call(SellSignURL)
    case file([UInt8])

    /// The longest file, in bytes.
    static let maximumFile = 80 << 20

    /// Reads an argument: the URL of a call; a path, or a `file:` URL, as desktops write paths; `-` for stdin, which has a file or the
    /// URL of a call.
    ///
    /// - Throws: `malformedData` for another URL and for a call that is refused; errors of the file.
    init(_ argument: String) throws(ProviderError) {
        if SellSignURL.isCall(argument.utf8) {
            self = .call(try SellSignURL(Array(argument.utf8)))
            return
        }
        let bytes = try InputFile(try Self.path(of: argument)).read(atMost: Self.maximumFile)
        if argument == "-", SellSignURL.isCall(bytes) {
            self = .call(try SellSignURL(bytes))
        } else {
            self = .file(bytes)
        }
    }

    private static func path(of argument: String) throws(ProviderError) -> String {
        // file:/path is a file: URL, too (RFC 8089, appendix B).
        if argument.prefix(6).lowercased() == "file:/", !argument.dropFirst(6).hasPrefix("/") {
            return try path(of: "file://" + argument.dropFirst(5))
        }
        guard let colon = argument.firstIndex(of: ":"), argument[colon...].hasPrefix("://") else { return argument }
        let scheme = argument[..<colon].lowercased()
        guard scheme == "file" else {
            throw ProviderError(
                .malformedData,
                "The URL with the scheme \(DisplayText.visible(scheme)) is not opened: contracts come as files, and calls begin with sellsign://."
            )
        }
        let rest = argument[colon...].dropFirst(3)
        let start = rest.firstIndex(of: "/") ?? rest.endIndex
        guard ["", "localhost"].contains(rest[..<start].lowercased()), let path = decoded(rest[start...]) else {
            throw ProviderError(
                .malformedData, "The file: URL is not one of this host, or is not percent-encoded UTF-8; name the file."
            )
        }
        return path
    }

    private static func decoded(_ text: Substring) -> String? {
        guard let bytes = ByteText.percentDecoded(text.utf8), !bytes.contains(0) else { return nil }
        return String(validating: bytes, as: UTF8.self)
    }
}
