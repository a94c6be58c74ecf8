public import CertificateProviding
import FoundationEssentials

/// Removes the secrets that were sent from texts of the server, before these go into an error. Servers repeat secrets
/// verbatim, in base64 or percent-encoded, and may change their case.
public struct Redaction: Sendable {
    private let forms: [SecretBytes]

    /// Creates a redaction of secrets. Empty ones are ignored.
    ///
    /// - Parameter secrets: Those that were sent, in the form before base64.
    public init(_ secrets: [SecretBytes] = []) {
        forms = secrets.filter { !$0.isEmpty }.flatMap { [$0] + Self.base64(of: $0) }
    }

    /// Returns the two base64 forms (RFC 4648, sections 4 and 5), without padding, which servers may leave out.
    private static func base64(of secret: SecretBytes) -> [SecretBytes] {
        let digits = secret.withUnsafeBytes { Data($0).base64EncodedData() }.filter { $0 != UInt8(ascii: "=") }
        let (plus, slash) = (UInt8(ascii: "+"), UInt8(ascii: "/"))
        let safe = digits.map { $0 == plus ? UInt8(ascii: "-") : $0 == slash ? UInt8(ascii: "_") : $0 }
        return [SecretBytes(copying: Array(digits)), SecretBytes(copying: safe)]
    }

    /// Returns the text with each secret replaced by `<secret>`. The case of ASCII letters is ignored.
    public func callAsFunction(_ text: String) -> String {
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

    /// Returns the number of bytes that the secret takes at the beginning of `text`; `nil` if `text` does not begin
    /// with it.
    ///
    /// - Parameter isEncoded: Whether percent-encoded bytes are accepted, and `+` for a space, as in forms.
    private static func count(
        of secret: UnsafeRawBufferPointer, in text: ArraySlice<UInt8>, isEncoded: Bool
    ) -> Int? {
        var rest = text
        for byte in secret {
            guard var read = rest.popFirst() else { return nil }
            if isEncoded, read == UInt8(ascii: "+"), byte == 0x20 { continue }
            if isEncoded, read == UInt8(ascii: "%") {
                let digits = rest.prefix(2).compactMap(\.hexadecimalValue)
                if digits.count == 2 {
                    read = digits[0] << 4 | digits[1]
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
