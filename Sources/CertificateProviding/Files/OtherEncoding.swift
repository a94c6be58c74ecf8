/// The encoding of a file without a PEM block, as far as its first bytes tell.
enum OtherEncoding {
    case utf16
    case pkcs12
    case pkcs7
    case der

    /// Recognises an encoding; `nil` for a text.
    init?(_ bytes: some Collection<UInt8>) {
        let start = Array(bytes.prefix(16))
        if Self.marksOfUTF16.contains(where: start.starts) {
            self = .utf16
        } else if let content = Self.contentOfSequence(start, count: bytes.count) {
            self = Self.tags.first { content.starts(with: $0.tag) }?.format ?? .der
        } else {
            return nil
        }
    }

    /// A byte order mark, or a dash in two bytes.
    private static let marksOfUTF16: [[UInt8]] = [[0xff, 0xfe], [0xfe, 0xff], [0x2d, 0], [0, 0x2d]]

    /// The first element of a PFX (RFC 7292, section 4), the version 3, and of a ContentInfo (RFC 5652, section 3) with signed
    /// data, the OBJECT IDENTIFIER.
    private static let tags: [(tag: [UInt8], format: OtherEncoding)] = [
        ([0x02, 0x01, 0x03], .pkcs12),
        ([0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x02], .pkcs7),
    ]

    /// The begin of the content of a DER SEQUENCE; `nil` for other bytes. A text may begin with the digit 0.
    private static func contentOfSequence(_ start: [UInt8], count: Int) -> ArraySlice<UInt8>? {
        guard start.count >= 2, start[0] == 0x30 else { return nil }
        if start[1] < 0x80 { return Int(start[1]) + 2 == count ? start[2...] : nil }
        return start.dropFirst(2 + Int(start[1] & 0x7f))
    }

    /// The error for a file of this encoding, with a command that converts it.
    func error(_ name: String) -> ProviderError {
        let path = name.shellQuoted
        let (kind, command) =
            switch self {
            case .utf16: ("a text in UTF-16", "iconv -f UTF-16 -t UTF-8 \(path) >NEW")
            case .pkcs12: ("PKCS#12", "openssl pkcs12 -in \(path) -out NEW")
            case .pkcs7: ("PKCS#7", "openssl pkcs7 -inform DER -in \(path) -print_certs -out NEW")
            case .der:
                ("DER", "openssl x509 -inform DER -in \(path) -out NEW (for a private key: openssl pkey)")
            }
        return ProviderError(
            .malformedData, "\(name) is \(kind), not PEM; convert it with: \(command)")
    }
}
