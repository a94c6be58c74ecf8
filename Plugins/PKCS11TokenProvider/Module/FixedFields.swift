/// Returns the bytes in a field of fixed length: UTF-8, padded with blanks (PKCS#11, section 3.2), or by some vendors with
/// NULs.
func bytes<Field>(ofField field: Field) -> [UInt8] { withUnsafeBytes(of: field) { Array($0).withoutPadding } }

/// Returns the text in such a field.
func text<Field>(_ field: Field) -> String { String(decoding: bytes(ofField: field), as: UTF8.self) }

extension [UInt8] {
    /// The bytes before the first NUL, without the blanks at their end.
    var withoutPadding: [UInt8] {
        let text = prefix { $0 != 0 }
        return Array(text[..<(text.lastIndex { $0 != 0x20 }.map { $0 + 1 } ?? 0)])
    }
}
