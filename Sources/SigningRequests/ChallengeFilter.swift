/// Finds challenges that another protocol would take for its own: the key signs a challenge as it is, so that the signature would be
/// valid there too.
///
/// Knows what an ECDSA key signs in TLS, DTLS, IKE, SSH, CMS, PDF, X.509, PKCS#10, OCSP, XML, JOSE, COSE, OpenPGP, MLS, and some more. Two
/// kinds cannot be known: bare digests, such as the exchange hash that an SSH host key signs, and the content of a CMS signature without
/// signed attributes, which is any text. Of the latter, PDF, mail with a header, JAR files and programs are refused.
package enum ChallengeFilter {
    /// Returns what a challenge would be elsewhere, as a clause without subject; `nil` if it may be signed.
    ///
    /// Of random challenges of any length, fewer than one in a million are refused.
    package static func refusal(of challenge: [UInt8]) -> String? {
        if challenge.starts(with: repeatElement(0x20, count: 64)) {
            return "is the content of a TLS 1.3 signature (64 spaces in front)"
        }
        if isHandshake(challenge) { return "is a TLS 1.2 handshake" }
        if isKeyExchange(challenge.dropFirst(64)) { return "is the key-exchange parameters of a TLS 1.2 server" }
        if let found = beginnings.first(where: { challenge.starts(with: $0.bytes) }) { return found.meaning }
        if isAuthentication(challenge) { return "is the content of an SSH authentication" }
        if hasNameOfSSH(challenge) { return "is a certificate, or a proof of a host key, of SSH" }
        if isMessageOfIKE(challenge) { return "is the content of an IKE authentication" }
        if isStructureOfCOSE(challenge) { return "is the content of a COSE signature" }
        // A label behind its length (RFC 9420, section 5.1.2).
        if challenge.prefix(12).contains("MLS 1.0 ".utf8) { return "is the content of an MLS signature" }
        if isOpenPGP(challenge) { return "is the content of an OpenPGP signature" }
        if EncodedStructure.hasIdentifier(challenge) {
            return "is a DER structure with an OBJECT IDENTIFIER, as CMS, PDF, X.509 and PKCS#10 sign"
        }
        return SignedText.meaning(of: challenge)
    }

    private static let beginnings: [(bytes: [UInt8], meaning: String)] = [
        (Array("SSHSIG".utf8), "is the content of an SSH signature (SSHSIG)"),
        (Array("SSHKRL\n\0".utf8), "is a revocation list of SSH"),
        // TPM_GENERATED_VALUE
        ([0xff] + Array("TCG".utf8), "is an attestation of a TPM"),
        ([0x7f] + Array("ELF".utf8), "is a program, as the signature of a kernel module covers it"),
    ]

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
        case 1: return fields.areVectors(7, of: 1, points: [3, 6])
        case 2:
            return fields.skip(3)
                && (fields.areVectors(7, of: 1, points: [3, 6]) || fields.areVectors(9, of: 1, points: [5, 8]))
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

    /// A message with its header, and what AUTH has behind it (RFC 7296, sections 2.15 and 3.1).
    private static func isMessageOfIKE(_ bytes: [UInt8]) -> Bool {
        var fields = Fields(bytes[...])
        guard fields.skip(17), let version = fields.number(1), (1...2).contains(version >> 4), fields.skip(6),
            let length = fields.number(4)
        else { return false }
        return (28...bytes.count).contains(length)
    }

    /// An array of CBOR that begins with a context, such as `Signature1` (RFC 9052, section 4.4; RFC 9338, section 3.3).
    private static func isStructureOfCOSE(_ bytes: [UInt8]) -> Bool {
        guard let first = bytes.first else { return false }
        return first >> 5 == 4 && bytes.prefix(40).contains("Signature".utf8)
    }

    /// Data, the hashed part of a signature, and its length (RFC 9580, section 5.2.4): versions 4 and 6, and 5 of LibrePGP; or a key of
    /// version 4 in front, which signatures of version 3 may be about as well: their trailer is a type and a time.
    private static func isOpenPGP(_ bytes: [UInt8]) -> Bool {
        var key = Fields(bytes[...])
        if key.number(1) == 0x99, key.vector(2)?.first == 4 { return true }
        return [(version: 4, size: 4), (5, 8), (6, 4)].contains { version, size in
            var trailer = Fields(bytes.suffix(2 + size))
            guard bytes.count >= 2 + size, trailer.number(1) == version, trailer.number(1) == 0xff,
                size == 4 || trailer.number(4) == 0, let length = trailer.number(4)
            else { return false }
            let start = bytes.count - 2 - size - length
            return length >= 6 && start >= 0 && bytes[start] == version
        }
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
    ///
    /// - Parameter points: Which of them are points of a curve (SEC 1, section 2.3.3): without that, one random challenge of 960 bytes
    ///   in 125,000 would be parameters of a curve.
    func areVectors(_ count: Int, of size: Int, points: Set<Int> = []) -> Bool {
        var copy = self
        for index in 0..<count {
            guard let first = copy.vector(size)?.first else { return false }
            if points.contains(index), ![2, 3, 4, 6, 7].contains(first) { return false }
        }
        return copy.rest.isEmpty
    }
}
