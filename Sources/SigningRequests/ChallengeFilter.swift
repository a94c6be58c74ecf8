/// Finds challenges that another protocol would take for its own: the key signs a challenge as it is, so that the signature would be
/// valid there too.
///
/// Knows what an ECDSA key signs in TLS 1.2 and 1.3, DTLS, CMS, PDF, X.509, PKCS#10 and SSH. Two things cannot be known: the exchange
/// hash that an SSH host key signs, which is a bare digest, and the content of a CMS signature without signed attributes, which is any text.
/// Of the latter, a PDF is refused.
package enum ChallengeFilter {
    /// Returns what a challenge would be elsewhere, as a clause without subject; `nil` if it may be signed.
    ///
    /// Reads each byte once. Of random challenges of 64 bytes, fewer than one in 10⁹ are refused.
    package static func refusal(of challenge: [UInt8]) -> String? {
        if challenge.starts(with: repeatElement(0x20, count: 64)) {
            return "is the content of a TLS 1.3 signature (64 spaces in front)"
        }
        if isHandshake(challenge) { return "is a TLS 1.2 handshake" }
        if isKeyExchange(challenge.dropFirst(64)) { return "is the key-exchange parameters of a TLS 1.2 server" }
        if challenge.starts(with: "SSHSIG".utf8) { return "is the content of an SSH signature (SSHSIG)" }
        if challenge.starts(with: "SSHKRL\n\0".utf8) { return "is a revocation list of SSH" }
        if isAuthentication(challenge) { return "is the content of an SSH authentication" }
        if hasNameOfSSH(challenge) { return "is a certificate, or a proof of a host key, of SSH" }
        // Readers look for it in the first 1,024 bytes.
        if challenge.prefix(1024 + 5).contains("%PDF-".utf8) { return "is a PDF" }
        if EncodedStructure.hasIdentifier(challenge) {
            return "is a DER structure with an OBJECT IDENTIFIER, as CMS, PDF, X.509 and PKCS#10 sign"
        }
        return nil
    }

    /// The handshake messages from ClientHello on, which a client signs (RFC 5246, section 7.4.8): ServerHello is the second.
    ///
    /// A message of DTLS has a longer header (RFC 6347, section 4.2.6), and a ClientHello may have the form of SSL 2.0
    /// (RFC 5246, appendix E.2). Versions and contents do not matter: a server may be lenient about them.
    private static func isHandshake(_ bytes: [UInt8]) -> Bool {
        var (tls, datagram, old) = (Fields(bytes[...]), Fields(bytes[...]), Fields(bytes[...]))
        guard tls.number(1) == 1 else { return false }
        if tls.vector(3) != nil, isServerHello(tls) { return true }
        if datagram.number(1) != nil, let count = datagram.number(3), datagram.skip(8 + count), isServerHello(datagram)
        {
            return true
        }
        guard old.skip(3), let ciphers = old.number(2), let session = old.number(2), let random = old.number(2) else {
            return false
        }
        return old.skip(ciphers + session + random) && isServerHello(old)
    }

    private static func isServerHello(_ fields: Fields) -> Bool {
        var fields = fields
        return fields.number(1) == 2 && fields.vector(3) != nil
    }

    /// ServerECDHParams (RFC 8422, section 5.4; RFC 4492 for curves with their parameters) or ServerDHParams (RFC 5246, section
    /// 7.4.3), which a server signs behind the two randoms.
    private static func isKeyExchange(_ bytes: ArraySlice<UInt8>) -> Bool {
        var fields = Fields(bytes)
        if fields.areVectors(3, of: 2) { return true }
        switch fields.number(1) {
        case 1: return fields.areVectors(7, of: 1)
        case 2: return fields.skip(3) && (fields.areVectors(7, of: 1) || fields.areVectors(9, of: 1))
        case 3:
            guard let curve = fields.number(2), curve < 0x100 || curve >= 0xfe00 else { return false }
            return fields.areVectors(1, of: 1)
        default: return false
        }
    }

    /// The session's identifier, SSH_MSG_USERAUTH_REQUEST and a user (RFC 4252, sections 7 and 9), whatever the method is.
    private static func isAuthentication(_ bytes: [UInt8]) -> Bool {
        var fields = Fields(bytes[...])
        return fields.vector(4) != nil && fields.number(1) == 50 && fields.vector(4) != nil
    }

    /// A type of certificates, such as `ecdsa-sha2-nistp256-cert-v01@openssh.com`, or another name of OpenSSH, such as
    /// `hostkeys-prove-00@openssh.com`, as a string in front of another one.
    private static func hasNameOfSSH(_ bytes: [UInt8]) -> Bool {
        var fields = Fields(bytes[...])
        guard let name = fields.vector(4), fields.vector(4) != nil else { return false }
        let text = String(decoding: name, as: UTF8.self)
        return text.hasSuffix("@openssh.com") || text.hasSuffix("-cert")
    }
}

/// Reads big-endian numbers, and vectors with their lengths in front.
private struct Fields {
    private var rest: ArraySlice<UInt8>

    init(_ bytes: ArraySlice<UInt8>) { rest = bytes }

    /// - Parameter size: At most 4 bytes.
    mutating func number(_ size: Int) -> Int? {
        guard rest.count >= size else { return nil }
        defer { rest = rest.dropFirst(size) }
        return rest.prefix(size).reduce(0) { $0 << 8 | Int($1) }
    }

    mutating func skip(_ count: Int) -> Bool {
        guard rest.count >= count else { return false }
        rest = rest.dropFirst(count)
        return true
    }

    mutating func vector(_ size: Int) -> ArraySlice<UInt8>? {
        guard let count = number(size), rest.count >= count else { return nil }
        defer { rest = rest.dropFirst(count) }
        return rest.prefix(count)
    }

    /// Whether the rest is as many vectors, none of them empty, and no more.
    func areVectors(_ count: Int, of size: Int) -> Bool {
        var copy = self
        for _ in 0..<count where copy.vector(size)?.isEmpty != false { return false }
        return copy.rest.isEmpty
    }
}

/// One SEQUENCE or SET from the first byte to the last, in BER (X.690): a signature over a structure that is not DER is over its
/// bytes all the same, and verifiers differ in the forms that they read.
private enum EncodedStructure {
    /// Whether there is an OBJECT IDENTIFIER at any depth.
    ///
    /// A constructed element whose content cannot be read is skipped by its length, since a verifier may not look into it. If the
    /// outermost content cannot be read to its end, only identifiers under the arcs 1.2, 1.3, 2.5 and 2.16 count: lenient verifiers
    /// ignore what follows the fields that they know, and each structure that is signed has an algorithm or attribute under these.
    static func hasIdentifier(_ bytes: [UInt8]) -> Bool {
        guard let outermost = Element(bytes, at: 0, before: bytes.count), outermost.isConstructed,
            outermost.universalTag == 16 || outermost.universalTag == 17
        else { return false }
        if outermost.hasLength {
            guard outermost.end == bytes.count else { return false }
        } else {
            guard bytes.suffix(2) == [0, 0] else { return false }
        }
        // The elements around the position, outermost first. A stack of its own: the depth is the sender's choice.
        var open = [(end: bytes.count, hasLength: outermost.hasLength)]
        var position = outermost.content
        var (hasAny, hasUsual) = (false, false)
        while let (end, hasLength) = open.last {
            if hasLength, position == end {
                open.removeLast()
                continue
            }
            guard let element = Element(bytes, at: position, before: end) else {
                while open.last?.hasLength == false { open.removeLast() }
                guard open.count > 1, let unreadable = open.popLast() else { return hasUsual }
                position = unreadable.end
                continue
            }
            position = element.content
            if !hasLength, element.isEndOfContents {
                open.removeLast()
            } else if element.isConstructed {
                open.append((element.end, element.hasLength))
            } else {
                position = element.end
                guard element.universalTag == 6, isIdentifier(bytes[element.content..<element.end]) else { continue }
                hasAny = true
                if usualArcs.contains(bytes[element.content]) { hasUsual = true }
            }
        }
        return hasUsual || hasAny && position == bytes.count
    }

    /// The first bytes of identifiers under 1.2, 1.3, 2.5 and 2.16.
    private static let usualArcs: Set<UInt8> = [0x2a, 0x2b, 0x55, 0x60]

    /// X.690, section 8.19.
    private static func isIdentifier(_ content: ArraySlice<UInt8>) -> Bool {
        guard let last = content.last, last < 0x80 else { return false }
        return content.first != 0x80 && !zip(content, content.dropFirst()).contains { $0 < 0x80 && $1 == 0x80 }
    }

    private struct Element {
        let isConstructed: Bool
        /// `nil` for a tag of another class.
        let universalTag: Int?
        /// False for the indefinite form, whose end is that of what it is in.
        let hasLength: Bool
        let content: Int
        let end: Int

        var isEndOfContents: Bool { universalTag == 0 && !isConstructed && content == end }

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
            isConstructed = identifier & 0x20 != 0
            var tag = Int(identifier & 0x1f)
            if tag == 0x1f {
                tag = 0
                while true {
                    guard let byte = next() else { return nil }
                    tag = shifted(tag, by: 7, adding: byte & 0x7f)
                    if byte < 0x80 { break }
                }
            }
            universalTag = identifier < 0x40 ? tag : nil
            guard let first = next() else { return nil }
            hasLength = first != 0x80
            guard hasLength || isConstructed else { return nil }
            var length = Int(first)
            if first > 0x80 {
                length = 0
                for _ in 0..<(first & 0x7f) {
                    guard let byte = next() else { return nil }
                    length = shifted(length, by: 8, adding: byte)
                }
            }
            guard !hasLength || length <= limit - position else { return nil }
            content = position
            end = hasLength ? position + length : limit
        }
    }
}
