/// Structures of DER and BER (X.690) that protocols sign: a signature over a structure that is not DER is over its bytes all the same,
/// and verifiers differ in the forms that they read.
enum EncodedStructure {
    /// Whether the bytes are such a structure, from the first to the last, or a long one in front, with an element of the tag OBJECT IDENTIFIER at any depth.
    ///
    /// The content of that element does not matter: some verifiers read identifiers that X.690 forbids, such as those with padding.
    static func hasIdentifier(_ bytes: [UInt8]) -> Bool {
        guard let first = Element(bytes, at: 0, before: bytes.count), first.isMarkedConstructed else { return false }
        let isWhole = first.hasLength ? first.end == bytes.count : bytes.suffix(2) == [0, 0]
        if isWhole { return first.isSigned && hasIdentifier(bytes, in: first) }
        // A certificate in front of a nonce, as OPC UA signs them. A shorter structure may be chance.
        if first.universalTag == 16, first.hasLength, first.end - first.content >= 256 {
            return hasIdentifier(bytes, in: first)
        }
        return isHeadless(bytes, first)
    }

    /// Whether the bytes are the content of a SEQUENCE without its tag and length, which PKCS#7 signs (RFC 2315, section 9.3): elements
    /// to the last byte, the first one a SEQUENCE that begins with an OBJECT IDENTIFIER.
    private static func isHeadless(_ bytes: [UInt8], _ first: Element) -> Bool {
        guard first.universalTag == 16, first.hasLength,
            Element(bytes, at: first.content, before: first.end)?.universalTag == 6
        else { return false }
        var position = first.end
        while position < bytes.count {
            guard let element = Element(bytes, at: position, before: bytes.count), element.hasLength else {
                return false
            }
            position = element.end
        }
        return true
    }

    /// A constructed element whose content cannot be read is skipped by its length, since a verifier may not look into it.
    private static func hasIdentifier(_ bytes: [UInt8], in outermost: Element) -> Bool {
        // The elements around the position, outermost first. A stack of its own: the depth is the sender's choice.
        var open = [(end: outermost.end, hasLength: outermost.hasLength)]
        var position = outermost.content
        while let (end, hasLength) = open.last {
            if hasLength, position == end {
                open.removeLast()
                continue
            }
            guard let element = Element(bytes, at: position, before: end) else {
                while open.last?.hasLength == false { open.removeLast() }
                guard open.count > 1, let unreadable = open.popLast() else { return false }
                position = unreadable.end
                continue
            }
            if element.universalTag == 6 { return true }
            position = element.content
            if !hasLength, element.isEndOfContents {
                open.removeLast()
            } else if element.isConstructed {
                open.append((element.end, element.hasLength))
            } else {
                position = element.end
            }
        }
        return false
    }

    private struct Element {
        private let identifier: UInt8
        private let number: Int
        /// False for the indefinite form, whose end is that of what it is in.
        let hasLength: Bool
        let content: Int
        let end: Int

        /// `nil` for a tag of another class.
        var universalTag: Int? { identifier < 0x40 ? number : nil }

        var isMarkedConstructed: Bool { identifier & 0x20 != 0 }

        /// A SEQUENCE or SET counts as constructed in any case.
        var isConstructed: Bool { isMarkedConstructed || universalTag == 16 || universalTag == 17 }

        var isEndOfContents: Bool { universalTag == 0 && !isConstructed && content == end }

        /// SEQUENCE and SET; the signed attributes of CMS with their tag in the message, [0]; the body of a card-verifiable
        /// certificate (BSI TR-03110, part 3), [APPLICATION 78].
        var isSigned: Bool {
            switch identifier >> 6 {
            case 0: number == 16 || number == 17
            case 1: number == 78
            case 2: number == 0
            default: false
            }
        }

        init?(_ bytes: [UInt8], at start: Int, before limit: Int) {
            var position = start
            func next() -> UInt8? {
                guard position < limit else { return nil }
                defer { position += 1 }
                return bytes[position]
            }
            /// More than any tag or length here, without overflow.
            func shifted(_ number: Int, by bits: Int, adding byte: UInt8) -> Int {
                min(number, 1 << 24) << bits | Int(byte)
            }
            guard let identifier = next() else { return nil }
            var number = Int(identifier & 0x1f)
            if number == 0x1f {
                number = 0
                while true {
                    guard let byte = next() else { return nil }
                    number = shifted(number, by: 7, adding: byte & 0x7f)
                    if byte < 0x80 { break }
                }
            }
            guard let first = next() else { return nil }
            var length = Int(first)
            if first > 0x80 {
                length = 0
                for _ in 0..<(first & 0x7f) {
                    guard let byte = next() else { return nil }
                    length = shifted(length, by: 8, adding: byte)
                }
            }
            (self.identifier, self.number) = (identifier, number)
            hasLength = first != 0x80
            content = position
            guard hasLength else {
                end = limit
                guard isConstructed else { return nil }
                return
            }
            guard length <= limit - position else { return nil }
            end = position + length
        }
    }
}
