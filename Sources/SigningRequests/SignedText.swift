/// Text, and files with text in them, that protocols sign as they are.
enum SignedText {
    /// Returns what a challenge would be elsewhere, as a clause without subject.
    static func meaning(of challenge: [UInt8]) -> String? {
        // Without the case of letters, which mail and JAR files ignore, and without the zeros of two bytes a character.
        let text = challenge.filter { $0 != 0 }.map { (0x41...0x5a).contains($0) ? $0 | 0x20 : $0 }
        if let found = beginnings.first(where: { text.starts(with: $0.text.utf8) }) { return found.meaning }
        if let found = marks.first(where: { text.contains($0.text.utf8) }) { return found.meaning }
        if hasObjectOfPDF(text) || unescaped(text, "#").contains("/byterange".utf8) { return pdf }
        return isJOSE(challenge) ? "is the content of a JSON Web Signature" : nil
    }

    private static let pdf = "is a PDF, or a part of one"
    private static let http = "is the content of a signature of an HTTP message"

    private static let beginnings: [(text: String, meaning: String)] = [
        ("samlrequest=", "is a signed SAML query"), ("samlresponse=", "is a signed SAML query"),
        ("aws4-", "is the content of a signature for AWS"), ("dssev1 ", "is the content of a DSSE envelope"),
        ("fsverity", "is the digest of a file, as fs-verity signs it"),
        (#"{"_type":"#, "is metadata of TUF or in-toto"),
        (#"{"critical":"#, "is the payload of a container's signature"),
    ]

    /// Anywhere: a file may have bytes in front, and XML may have any prefix.
    private static let marks: [(text: String, meaning: String)] = [
        ("%pdf-", pdf), ("startxref", pdf), ("signedinfo", "is the SignedInfo of an XML signature"),
        ("content-type:", "is mail, as S/MIME signs it"), ("mime-version:", "is mail, as S/MIME signs it"),
        ("signature-version:", "is the signature file of a JAR"), ("@signature-params", http),
        ("(request-target)", http), ("-----begin ", "has PEM in it"),
    ]

    /// Whether there is `1 0 obj`: some readers need neither a header nor `startxref` (ISO 32000-2, section 7.3.10).
    private static func hasObjectOfPDF(_ text: [UInt8]) -> Bool {
        func isDigit(_ byte: UInt8?) -> Bool { byte.map { (0x30...0x39).contains($0) } == true }
        func isSpace(_ byte: UInt8?) -> Bool { byte.map { [0x09, 0x0a, 0x0c, 0x0d, 0x20].contains($0) } == true }
        return text.indices.contains { end in
            guard text[end...].starts(with: "obj".utf8) else { return false }
            var rest = text[..<end]
            for _ in 0..<2 {
                guard isSpace(rest.last) else { return false }
                while isSpace(rest.last) { rest.removeLast() }
                guard isDigit(rest.last) else { return false }
                while isDigit(rest.last) { rest.removeLast() }
            }
            return true
        }
    }

    /// The text with its escapes decoded, in lower case: a mark and two hexadecimal digits, such as `#52` in names of PDF (ISO 32000-2,
    /// section 7.3.5).
    private static func unescaped(_ text: [UInt8], _ mark: String) -> [UInt8] {
        var (plain, position) = ([UInt8](), 0)
        while position < text.count {
            let digits = text[position...].dropFirst(mark.utf8.count).prefix(2)
            if text[position...].starts(with: mark.utf8), digits.count == 2,
                let byte = UInt8(String(decoding: digits, as: UTF8.self), radix: 16)
            {
                plain.append((0x41...0x5a).contains(byte) ? byte | 0x20 : byte)
                position = digits.endIndex
            } else {
                plain.append(text[position])
                position += 1
            }
        }
        return plain
    }

    /// A header that is JSON, in base64url, a point, and a payload (RFC 7515, section 5.1), which need not be base64url (RFC 7797); or
    /// no protected header, and a payload that is.
    ///
    /// Some verifiers pass over characters that are not of base64: so does this.
    private static func isJOSE(_ challenge: [UInt8]) -> Bool {
        guard let point = challenge.firstIndex(of: 0x2e) else { return false }
        if point == 0, challenge.count > 1, challenge.dropFirst().allSatisfy({ base64URL($0) != nil }) { return true }
        // Zeros and byte order marks: JSON may be UTF-16.
        let ignored: Set<UInt8> = [0, 0x09, 0x0a, 0x0d, 0x20, 0xbb, 0xbf, 0xef, 0xfe, 0xff]
        let header = decoded(challenge).filter { !ignored.contains($0) }
        guard header.starts(with: #"{""#.utf8) else { return false }
        // Most headers have `alg`. It may stand outside of the protected one, which is JSON all the same.
        if unescaped(header, #"\u00"#).contains(#""alg""#.utf8) { return true }
        let text = header.prefix { $0 >= 0x20 && $0 != 0x7f }
        return text.contains(UInt8(ascii: ":")) && text.contains(UInt8(ascii: "}"))
    }

    private static func base64URL(_ character: UInt8) -> UInt32? {
        switch character {
        case 0x41...0x5a: UInt32(character) - 0x41
        case 0x61...0x7a: UInt32(character) - 0x61 + 26
        case 0x30...0x39: UInt32(character) - 0x30 + 52
        case 0x2d: 62
        case 0x5f: 63
        default: nil
        }
    }

    /// Decodes base64 or base64url, and passes over other characters.
    private static func decoded(_ text: [UInt8]) -> [UInt8] {
        var (bytes, bits, count) = ([UInt8](), UInt32(0), 0)
        for character in text {
            guard let value = base64URL(character == 0x2b ? 0x2d : character == 0x2f ? 0x5f : character) else {
                continue
            }
            (bits, count) = (bits << 6 | value, count + 6)
            guard count >= 8 else { continue }
            count -= 8
            bytes.append(UInt8(truncatingIfNeeded: bits >> UInt32(count)))
        }
        return bytes
    }
}
