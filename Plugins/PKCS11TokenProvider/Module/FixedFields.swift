import CP11Kit

/// Texts in fields of a fixed length, as PKCS#11 structures have them: UTF-8, padded with blanks (PKCS#11, section 3.2),
/// or by careless vendors with NULs. A URI compares all of a field, so that every field is padded with blanks where it
/// is read.
protocol FixedFields {
    mutating func padWithBlanks(_ pad: FieldPadding)
}

/// How NULs at the end of a field are overwritten.
struct FieldPadding {
    /// Whether a field that begins with a NUL stays as it is: in a URI it says that there is none.
    var keepsEmpty = false

    func callAsFunction<Field>(_ field: inout Field) {
        withUnsafeMutableBytes(of: &field) { bytes in
            guard let end = bytes.firstIndex(of: 0), end > 0 || !keepsEmpty else { return }
            for index in end..<bytes.count { bytes[index] = 0x20 }
        }
    }
}

extension FixedFields {
    /// The structure with fields that are padded with blanks.
    var paddedWithBlanks: Self {
        var copy = self
        copy.padWithBlanks(FieldPadding())
        return copy
    }
}

extension CK_INFO: FixedFields {
    mutating func padWithBlanks(_ pad: FieldPadding) {
        pad(&manufacturerID)
        pad(&libraryDescription)
    }
}

extension CK_SLOT_INFO: FixedFields {
    mutating func padWithBlanks(_ pad: FieldPadding) {
        pad(&slotDescription)
        pad(&manufacturerID)
    }
}

extension CK_TOKEN_INFO: FixedFields {
    mutating func padWithBlanks(_ pad: FieldPadding) {
        pad(&label)
        pad(&manufacturerID)
        pad(&model)
        pad(&serialNumber)
    }
}

/// The text in a field that is padded with blanks.
func text<Field>(_ field: Field) -> String {
    withUnsafeBytes(of: field) { bytes in
        let end = bytes.lastIndex { $0 != 0x20 && $0 != 0 }.map { $0 + 1 } ?? 0
        return String(decoding: bytes[..<end], as: UTF8.self)
    }
}
