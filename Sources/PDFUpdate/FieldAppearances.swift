import CertificateProviding

/// Text fields that show another text than their value: a reader draws what the author has prepared, and a program reads the value.
///
/// There is no renderer: the strings of the appearance stream stand for the shown text. A font with character codes of its own, and pictures, hide a
/// difference. Letters and digits of ASCII are compared, since a field may break lines, and write numbers as its country does.
package enum FieldAppearances {
    /// Flags of a field (ISO 32000-2, table 231): a password is shown as asterisks.
    private static let password = 1 << 13

    /// The full names of these fields. Blocks. Fields that cannot be read are left out.
    package static func differing(in source: PDFSource) -> [String] {
        guard var reader = try? PDFReader(source), (try? reader.readSections()) != nil,
            let catalog = try? reader.catalog(),
            let form = try? reader.entry("AcroForm", of: catalog, as: .dictionary)?.place,
            let fields = try? FormFields(form, of: catalog, wanted: nil, &reader)
        else { return [] }
        let isRedrawn = (try? reader.entry("NeedAppearances", of: form, as: .boolean)?.value) ?? false
        var names: [String] = []
        for field in fields.texts where field.flags & password == 0 && names.last != field.name {
            let value = field.value.flatMap { try? reader.resolve($0.value, in: $0.object) }
            let text: String
            switch value?.value.content {
            case .string(let bytes)?: text = FormFields.text(bytes)
            case nil: text = ""
            default: continue
            }
            guard let appearance = try? reader.entry("N", of: field.appearances, as: .dictionary)?.place.object,
                let content = try? reader.decodedStream(of: appearance), let shown = shownText(content)
            else { continue }
            // Office programs leave the appearance to readers.
            if isRedrawn, shown.isEmpty { continue }
            if compared(text) != compared(shown) { names.append(field.name) }
        }
        return names
    }

    /// The strings that a content stream shows; `nil` if their characters are not known.
    private static func shownText(_ content: [UInt8]) -> String? {
        var scanner = PDFScanner(content, isWhole: true)
        var (operands, shown): ([PDFValue], [UInt8]) = ([], [])
        while (try? scanner.skipSpace()) != nil, scanner.index < content.count {
            if let value = try? scanner.value() {
                operands.append(value)
                continue
            }
            guard let word = try? scanner.word(), !word.isEmpty else { return nil }
            if ["Tj", "TJ", "'", "\""].contains(String(decoding: word, as: UTF8.self)), let last = operands.last {
                let parts = if case .array(let parts) = last.content { parts } else { [last] }
                for case .string(let bytes) in parts.map(\.content) { shown += bytes }
            }
            operands = []
        }
        let isText = shown.allSatisfy { $0 >= 0x20 || [0x09, 0x0a, 0x0d].contains($0) }
        return isText ? FormFields.text(shown) : nil
    }

    /// The letters and digits, without the zeros at the end of a fraction: 1 may be shown as 1.00.
    private static func compared(_ text: String) -> String {
        func isKept(_ character: Character) -> Bool { character.isASCII && (character.isLetter || character.isNumber) }
        var text = text[...]
        while let last = text.last, !isKept(last) { text.removeLast() }
        let fraction = text.reversed().prefix { $0.isNumber }.count
        if fraction < 3, [".", ","].contains(text.dropLast(fraction).last) {
            while text.last == "0" { text.removeLast() }
        }
        return String(text.filter(isKept))
    }
}
