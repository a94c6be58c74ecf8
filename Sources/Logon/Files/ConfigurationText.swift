package import CertificateProviding

/// The bytes of a text file, checked to be UTF-8 without control characters.
package struct ConfigurationText: Sendable {
    /// The content without a byte order mark.
    package let bytes: [UInt8]
    package let file: String

    /// Checks the bytes.
    ///
    /// - Throws: `configurationInvalid`, with the line, for text that is not UTF-8 or has control characters.
    package init(_ bytes: [UInt8], file: String) throws(ProviderError) {
        let mark: [UInt8] = [0xef, 0xbb, 0xbf]
        let content = bytes.starts(with: mark) ? Array(bytes.dropFirst(mark.count)) : bytes
        do {
            _ = try UTF8Span(validating: content.span)
        } catch {
            throw SourcePosition(file: file, line: Self.line(at: error.byteOffsets.lowerBound, in: content))
                .invalid("The text is not UTF-8; save the file in that encoding.")
        }
        if let offset = content.firstIndex(where: \.isForbiddenControl) {
            throw SourcePosition(file: file, line: Self.line(at: offset, in: content))
                .invalid("The line contains a control character: the file is damaged, or not a text file.")
        }
        self.bytes = content
        self.file = file
    }

    /// Returns the line, counted from 1, of the byte at `offset`. LF, CR and CR LF each end a line.
    private static func line(at offset: Int, in bytes: [UInt8]) -> Int {
        var line = 1
        for index in 0..<min(offset, bytes.count) where bytes[index].isLineEnd {
            let isFirstHalf = bytes[index] == .carriageReturn && bytes[(index + 1)...].first == .lineFeed
            if !isFirstHalf { line += 1 }
        }
        return line
    }
}

extension UInt8 {
    package static var tab: UInt8 { 0x09 }
    package static var lineFeed: UInt8 { 0x0a }
    package static var formFeed: UInt8 { 0x0c }
    package static var carriageReturn: UInt8 { 0x0d }
    package static var backslash: UInt8 { 0x5c }

    package var isLineEnd: Bool { self == .lineFeed || self == .carriageReturn }
    /// Whether this is white space inside a line.
    package var isBlank: Bool { self == 0x20 || self == .tab || self == .formFeed }
    package var isForbiddenControl: Bool { (self < 0x20 && !isLineEnd && !isBlank) || self == 0x7f }
    package var isDigit: Bool { (0x30...0x39).contains(self) }
    package var isLetter: Bool { (0x41...0x5a).contains(self & 0xdf) }
    package var isPunctuation: Bool { (0x21...0x7e).contains(self) && !isDigit && !isLetter }
}
