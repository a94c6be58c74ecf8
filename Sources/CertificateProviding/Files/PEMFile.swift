import Glibc

/// The blocks of a PEM text (RFC 7468), in the order of the text: the one reader of PEM of the project.
///
/// Reads what OpenSSL reads: text between the blocks, blanks at the ends of lines and before base64, lines of any length, CRLF,
/// an empty line after BEGIN, a missing line ending at the end, and the headers of RFC 1421. A block that is damaged or cut
/// off is an error, also if it is not needed: OpenSSL leaves out some of these without a word.
public struct PEMFile: Sendable {
    /// The name of the text in messages: the path of a file.
    public let name: String
    /// The blocks, in the order of the text.
    public let blocks: [PEMBlock]

    /// Reads a file. Blocks on the file system only.
    ///
    /// - Parameter limit: The maximum size in bytes; by default 1 MiB, to which no chain comes near.
    /// - Throws: `fileNotFound`; `configurationInvalid` for a file that cannot be read; `malformedData`, with the line of the
    ///   damaged block.
    public init(path: String, atMost limit: Int = maximumSize) throws(ProviderError) {
        var bytes = try Self.read(path, atMost: limit)
        // It may have a private key.
        defer { bytes.wipe() }
        try self.init(bytes, named: path.withVisibleControls)
    }

    /// The default limit of ``init(path:atMost:)``.
    public static let maximumSize = 1 << 20

    /// Reads a text.
    ///
    /// - Parameter name: The name of the text in messages.
    /// - Throws: `malformedData`, with the line of the damaged block; for DER, PKCS#7, PKCS#12 and UTF-16 with the command that
    ///   converts it.
    public init(_ text: [UInt8], named name: String) throws(ProviderError) {
        self.name = name
        // Array.withUnsafeBytes does not pass on the type of an error.
        blocks = try text.withUnsafeBytes { bytes in
            Result { () throws(ProviderError) in
                var scanner = PEMScanner(bytes, name)
                return try scanner.blocks()
            }
        }.get()
    }

    /// Reads a secret text, such as one with a private key.
    ///
    /// - Parameter name: The name of the text in messages.
    /// - Throws: `malformedData`, with the line of the damaged block.
    public init(_ text: SecretBytes, named name: String) throws(ProviderError) {
        self.name = name
        blocks = try text.withUnsafeBytes { bytes throws(ProviderError) in
            var scanner = PEMScanner(bytes, name)
            return try scanner.blocks()
        }
    }

    /// Returns the content of a file, or the error that names it.
    static func read(_ path: String, atMost limit: Int) throws(ProviderError) -> [UInt8] {
        do throws(RegularFile.Failure) { return try RegularFile.read(path, atMost: limit) } catch {
            throw ProviderError(
                error.isMissing ? .fileNotFound : .configurationInvalid,
                "\(path.withVisibleControls) cannot be read: \(error).")
        }
    }

    /// Returns the blocks with a certificate: those with the label `CERTIFICATE`, and `X509 CERTIFICATE` of old programs.
    ///
    /// - Throws: `configurationInvalid` for a `TRUSTED CERTIFICATE`, OpenSSL's own form, which may say that the certificate is not
    ///   to be trusted, and no other reader would respect that; and for certificates in PKCS#7 alone.
    package func certificateBlocks() throws(ProviderError) -> [PEMBlock] {
        if let own = blocks.first(where: { $0.label.uppercased() == "TRUSTED CERTIFICATE" }) {
            throw own.error(
                .configurationInvalid, in: name,
                "is a certificate in OpenSSL's own form; convert each with: openssl x509")
        }
        let certificates = blocks.filter { ["CERTIFICATE", "X509 CERTIFICATE"].contains($0.label.uppercased()) }
        if certificates.isEmpty, let bag = blocks.first(where: { ["PKCS7", "PKCS #7 SIGNED DATA"].contains($0.label) })
        {
            throw bag.error(
                .configurationInvalid, in: name,
                "has its certificates in PKCS#7; convert it with: openssl pkcs7 -in \(name.shellQuoted) -print_certs -out NEW"
            )
        }
        return certificates
    }

    /// Returns every certificate, in the order of the text. Blocks of other kinds are left out.
    ///
    /// - Throws: `malformedData`, with the line of a damaged certificate; `configurationInvalid` for a `TRUSTED CERTIFICATE`, OpenSSL's
    ///   own form, and for certificates in PKCS#7 alone.
    public func certificates() throws(ProviderError) -> [X509Certificate] {
        try certificateBlocks().map { block throws(ProviderError) in try block.certificate(in: name) }
    }
}

extension [UInt8] {
    /// Overwrites the bytes, if no other array shares them.
    package mutating func wipe() {
        withUnsafeMutableBytes { bytes in if let start = bytes.baseAddress { explicit_bzero(start, bytes.count) } }
    }
}

/// A block of a ``PEMFile``, with its content decoded.
public struct PEMBlock: Sendable {
    /// Such as `CERTIFICATE`.
    public let label: String
    /// The number of the line that begins the block, from 1.
    public let line: Int
    /// The lines before the base64, such as `Proc-Type: 4,ENCRYPTED` (RFC 1421, section 4.6.1.1).
    package let headers: [String]
    /// The content; empty for a private key.
    public let bytes: [UInt8]
    /// The content of a private key, encrypted or not; `nil` for other blocks.
    public let secret: SecretBytes?

    /// Whether the block is a private key of any form.
    public var isPrivateKey: Bool { secret != nil }

    /// Whether the content is encrypted in the old form, which the headers describe (RFC 1421).
    package var hasEncryptedContent: Bool {
        headers.contains { $0.hasPrefix("Proc-Type:") && $0.contains("ENCRYPTED") }
    }

    /// Whether the block is an encrypted private key, in the form of PKCS#8 or in the old one.
    public var isEncrypted: Bool { label == "ENCRYPTED PRIVATE KEY" || hasEncryptedContent }

    /// Returns the certificate of the block.
    ///
    /// - Parameter name: The name of the text, for errors.
    /// - Throws: `malformedData`, with the line.
    package func certificate(in name: String) throws(ProviderError) -> X509Certificate {
        do throws(ProviderError) { return try X509Certificate(derRepresentation: bytes) } catch {
            throw malformed(in: name, "is a damaged certificate; replace it", underlying: error)
        }
    }

    /// The error for a block that is damaged.
    ///
    /// - Parameters:
    ///   - name: The name of the text.
    ///   - reason: Goes on after "the PEM block '…'".
    package func malformed(
        in name: String, _ reason: String, underlying: (any Error)? = nil
    ) -> ProviderError {
        error(.malformedData, in: name, reason, underlying: underlying)
    }

    /// The error for a block that cannot be used, with its line.
    ///
    /// - Parameters:
    ///   - name: The name of the text.
    ///   - reason: Goes on after "the PEM block '…'".
    package func error(
        _ code: ProviderError.Code, in name: String, _ reason: String, underlying: (any Error)? = nil
    ) -> ProviderError {
        var error = PEMScanner.error(name, line, label, reason, underlying: underlying)
        error.code = code
        return error
    }
}

/// Goes through the lines of a text.
private struct PEMScanner {
    private let text: UnsafeRawBufferPointer
    private let name: String
    private var position: Int
    private var line = 0

    init(_ text: UnsafeRawBufferPointer, _ name: String) {
        (self.text, self.name) = (text, name)
        position = text.starts(with: [0xef, 0xbb, 0xbf]) ? 3 : 0
    }

    private static let begin = Array("-----BEGIN ".utf8)
    private static let end = Array("-----END ".utf8)
    private static let dashes = Array("-----".utf8)

    static func error(
        _ name: String, _ line: Int, _ label: String, _ reason: String, underlying: (any Error)? = nil
    ) -> ProviderError {
        ProviderError(
            .malformedData,
            "\(name), line \(line): the PEM block '\(label.withVisibleControls)' \(reason).", underlying: underlying)
    }

    mutating func blocks() throws(ProviderError) -> [PEMBlock] {
        var blocks: [PEMBlock] = []
        while let next = nextLine() {
            if next.starts(with: Self.begin) {
                blocks.append(try block(try label(of: next)))
            } else if next.starts(with: Self.end) {
                throw ProviderError(
                    .malformedData,
                    "\(name), line \(line): a PEM block ends, and no line before it begins with '-----BEGIN '; look there for other "
                        + "characters, such as quotation marks, a byte order mark or a missing dash, and remove them.")
            }
        }
        if blocks.isEmpty, let other = OtherEncoding(text) { throw other.error(name) }
        return blocks
    }

    /// Returns the next line, without the blanks around it.
    private mutating func nextLine() -> Slice<UnsafeRawBufferPointer>? {
        guard position < text.count else { return nil }
        line += 1
        let start = position
        while position < text.count, text[position] != 0x0a, text[position] != 0x0d { position += 1 }
        var bytes = text[start..<position]
        if position < text.count {
            position += text[position] == 0x0d && position + 1 < text.count && text[position + 1] == 0x0a ? 2 : 1
        }
        // As in OpenSSL, blanks and control characters at both ends do not count.
        while let first = bytes.first, first <= 0x20 { bytes.removeFirst() }
        while let last = bytes.last, last <= 0x20 { bytes.removeLast() }
        return bytes
    }

    private func text(_ bytes: some Collection<UInt8>) -> String { String(decoding: bytes.prefix(80), as: UTF8.self) }

    private func label(of first: Slice<UnsafeRawBufferPointer>) throws(ProviderError) -> String {
        let rest = first.dropFirst(Self.begin.count)
        let label = rest.prefix { $0 != UInt8(ascii: "-") }
        guard !label.isEmpty, rest.dropFirst(label.count).elementsEqual(Self.dashes) else {
            // Without what it has, which may be a key.
            throw ProviderError(
                .malformedData,
                "\(name), line \(line): a PEM block begins with a line that is not '-----BEGIN …-----' alone; put the base64 on "
                    + "lines of its own.")
        }
        return text(label)
    }

    /// Reads a block to its END line.
    private mutating func block(_ label: String) throws(ProviderError) -> PEMBlock {
        let first = line
        let start = position
        var headers: [String] = []
        var isInHeaders = false
        var isInContent = false
        var decoder = Base64Counter()
        while let next = nextLine() {
            if next.starts(with: Self.dashes) {
                guard next.starts(with: Self.end) else { break }
                let rest = next.dropFirst(Self.end.count)
                guard rest.elementsEqual(Array(label.utf8) + Self.dashes) else {
                    throw Self.error(
                        name, first, label,
                        "ends in another line than '-----END \(label.withVisibleControls)-----' (line \(line)); replace the file"
                    )
                }
                guard !isInHeaders, let count = decoder.count else {
                    throw Self.error(
                        name, first, label,
                        "is cut off: the base64 before line \(line) is not complete, perhaps without '=' at its end; replace the "
                            + "file")
                }
                return block(label, first, headers, content: start..<position, count: count)
            }
            if next.isEmpty {
                isInHeaders = false
            } else if isInHeaders || (!isInContent && next.contains(UInt8(ascii: ":"))) {
                isInHeaders = true
                headers.append(text(next))
            } else {
                isInContent = true
                guard decoder.take(next) else {
                    throw Self.error(
                        name, first, label, "is damaged: line \(line) is not base64; replace the file")
                }
            }
        }
        throw Self.error(
            name, first, label,
            "is cut off, or has lost its line '-----END \(label.withVisibleControls)-----'; replace the file")
    }

    private func block(
        _ label: String, _ line: Int, _ headers: [String], content: Range<Int>, count: Int
    ) -> PEMBlock {
        var scanner = self
        scanner.position = content.lowerBound
        let isSecret = label.hasSuffix("PRIVATE KEY")
        var left = headers.count
        func fill(_ buffer: UnsafeMutableRawBufferPointer) {
            var decoder = Base64Decoder(buffer)
            while scanner.position < content.upperBound, let next = scanner.nextLine() {
                if next.isEmpty { continue }
                if next.starts(with: Self.dashes) { return }
                if left > 0 { left -= 1 } else { decoder.take(next) }
            }
        }
        if isSecret {
            let secret = SecretBytes(count: count) { fill($0) }
            return PEMBlock(label: label, line: line, headers: headers, bytes: [], secret: secret)
        }
        var bytes = [UInt8](repeating: 0, count: count)
        bytes.withUnsafeMutableBytes { fill($0) }
        return PEMBlock(label: label, line: line, headers: headers, bytes: bytes, secret: nil)
    }
}

/// The value of a digit of base64 (RFC 4648, section 4); `nil` for another character.
private func base64Value(_ digit: UInt8) -> UInt8? {
    switch digit {
    case 0x41...0x5a: digit - 0x41
    case 0x61...0x7a: digit - 0x61 + 26
    case 0x30...0x39: digit - 0x30 + 52
    case 0x2b: 62
    case 0x2f: 63
    default: nil
    }
}

/// Checks base64, line by line.
private struct Base64Counter {
    private var digits = 0
    private var padding = 0

    /// Returns whether the line goes on with base64. Blanks within it are skipped.
    mutating func take(_ line: some Sequence<UInt8>) -> Bool {
        for byte in line where byte > 0x20 {
            if byte == UInt8(ascii: "=") {
                padding += 1
            } else {
                guard padding == 0, base64Value(byte) != nil else { return false }
                digits += 1
            }
        }
        return true
    }

    /// The number of bytes; `nil` for none, and for a text that is cut off.
    var count: Int? {
        guard digits > 0, padding <= 2, (digits + padding).isMultiple(of: 4) else { return nil }
        return digits * 3 / 4
    }
}

/// Decodes base64 that has been checked.
private struct Base64Decoder {
    private let buffer: UnsafeMutableRawBufferPointer
    private var used = 0
    private var bits: UInt32 = 0
    private var bitCount = 0

    init(_ buffer: UnsafeMutableRawBufferPointer) { self.buffer = buffer }

    mutating func take(_ line: some Sequence<UInt8>) {
        for byte in line {
            guard let value = base64Value(byte) else { continue }
            bits = (bits << 6 | UInt32(value)) & 0xffff
            bitCount += 6
            if bitCount >= 8, used < buffer.count {
                bitCount -= 8
                buffer[used] = UInt8(truncatingIfNeeded: bits >> UInt32(bitCount))
                used += 1
            }
        }
    }
}
