package import CertificateProviding
import FoundationEssentials

/// Takes what was sent in secret out of what a server says, before that goes into an error. Servers repeat it as it is,
/// in base64 or percent-encoded, and may change its case.
package struct Redaction: Sendable {
    private let forms: [SecretBytes]

    package init(_ secrets: [SecretBytes] = []) {
        forms = secrets.filter { !$0.isEmpty }.flatMap { [$0] + Self.base64(of: $0) }
    }

    /// As in RFC 4648, sections 4 and 5, without the padding, which need not be there.
    private static func base64(of secret: SecretBytes) -> [SecretBytes] {
        let digits = secret.withUnsafeBytes { Data($0).base64EncodedData() }.filter { $0 != UInt8(ascii: "=") }
        let (plus, slash) = (UInt8(ascii: "+"), UInt8(ascii: "/"))
        let safe = digits.map { $0 == plus ? UInt8(ascii: "-") : $0 == slash ? UInt8(ascii: "_") : $0 }
        return [SecretBytes(copying: Array(digits)), SecretBytes(copying: safe)]
    }

    /// Returns a text with `<secret>` in the place of each secret. Letters of ASCII are the same in either case.
    package func callAsFunction(_ text: String) -> String {
        guard !forms.isEmpty else { return text }
        var shown: [UInt8] = []
        var rest = Array(text.utf8)[...]
        while let first = rest.first {
            // A secret may begin as another does.
            let count = forms.compactMap { form in
                form.withUnsafeBytes {
                    Self.count(of: $0, in: rest, isEncoded: false) ?? Self.count(of: $0, in: rest, isEncoded: true)
                }
            }.max()
            shown += count == nil ? [first] : Array("<secret>".utf8)
            rest = rest.dropFirst(count ?? 1)
        }
        return String(decoding: shown, as: UTF8.self)
    }

    /// How many bytes at the beginning of a text are the secret; `nil` where it does not begin with that.
    ///
    /// - Parameter isEncoded: Whether some or all of it is percent-encoded; a form has a `+` for a blank.
    private static func count(
        of secret: UnsafeRawBufferPointer, in text: ArraySlice<UInt8>, isEncoded: Bool
    ) -> Int? {
        var rest = text
        for byte in secret {
            guard var read = rest.popFirst() else { return nil }
            if isEncoded, read == UInt8(ascii: "+"), byte == 0x20 { continue }
            if isEncoded, read == UInt8(ascii: "%") {
                let digits = rest.prefix(2).compactMap { Character(UnicodeScalar($0)).hexDigitValue }
                if digits.count == 2 {
                    read = UInt8(digits[0] << 4 | digits[1])
                    rest = rest.dropFirst(2)
                }
            }
            guard read.inLowerCase == byte.inLowerCase else { return nil }
        }
        return text.count - rest.count
    }
}

extension UInt8 {
    fileprivate var inLowerCase: UInt8 { (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(self) ? self | 0x20 : self }
}
