public import CertificateProviding

/// Which peers are admitted, of those whose chain is verified: by their names, and by pins.
public struct PeerPolicy: Sendable {
    private enum Rule: Sendable {
        case everyone
        case patterns([PeerPattern])
        case closure(@Sendable (TLSPeer) -> Bool)
    }
    private let rule: Rule
    /// The pins, of which one must match a certificate of the verified chain. Empty, as by default: no pins are required.
    public var pins: [CertificatePin] = []
    /// Whether a pin authenticates a peer instead of the trust anchors: it must be that of the leaf then, and without pins no peer is
    /// admitted. The peer needs no CA. Its names, its validity and its use in TLS count all the same.
    public var isPinOnly = false

    /// Admits every peer whose chain is verified.
    public static let everyVerifiedPeer = Self(rule: .everyone)

    private init(rule: Rule) { self.rule = rule }

    /// Admits the peers of which at least one name matches one of the patterns: none, for an empty list.
    package init(_ patterns: [PeerPattern]) { rule = .patterns(patterns) }

    /// Reads a list of patterns, separated by commas, as `Peers.allow` of the property file has it. One that has a comma stands in
    /// double quotes: `"cn:Doe, John", dns:web.example`. The word `any` alone admits every verified peer.
    ///
    /// - Throws: `configurationInvalid` for an empty list, and for a pattern that is not one.
    public init(parsing list: String) throws(ProviderError) {
        func invalid(_ reason: String) -> ProviderError {
            ProviderError(.configurationInvalid, "The list of peers is not valid: \(reason)")
        }
        let members: [(text: String, isQuoted: Bool)]
        do throws(ProviderError) { members = try AlternativeName.members(of: list) } catch {
            throw invalid(error.message)
        }
        if members.count == 1, members[0].text == "any" {
            self = .everyVerifiedPeer
            return
        }
        guard !members.isEmpty else {
            throw invalid("it is empty, so that none would be admitted; write any to admit every verified peer.")
        }
        self.init(
            try members.map { member throws(ProviderError) in
                guard member.isQuoted || member.text.contains(":") else {
                    throw invalid(
                        "'\(member.text.withVisibleControls)' has no kind, such as dns: or cn:. If it is a part of a name with a comma, put "
                            + "the pattern in double quotes: \"cn:Doe, John\".")
                }
                return try PeerPattern(member.text)
            })
    }

    /// Admits the peers for which `isAdmitted` returns true.
    ///
    /// - Parameter isAdmitted: Called in the handshake with each peer whose chain is verified, on any thread. Must not block.
    public static func admitting(_ isAdmitted: @escaping @Sendable (TLSPeer) -> Bool) -> Self {
        Self(rule: .closure(isAdmitted))
    }

    /// Whether a verified peer is admitted.
    public func admits(_ peer: TLSPeer) -> Bool {
        guard pins.match(peer.chain, isPinOnly: isPinOnly) else { return false }
        return switch rule {
        case .everyone: true
        case .patterns(let patterns): patterns.contains { $0.matches(peer) }
        case .closure(let isAdmitted): isAdmitted(peer)
        }
    }
}

/// A pattern for one name of a peer, such as `dns:*.clients.example`.
///
/// | pattern | matches |
/// |---|---|
/// | `dns:*.clients.example` | a DNS name with one label before `clients.example`. `**` as the first label stands for one or more labels |
/// | `uri:spiffe://example.org/ns/prod/*` | a URI with one more path segment. `**` as the last segment stands for one or more |
/// | `email:*@example.com` | a mail address; `*` is a whole local part that needs no quotes, and a label of the host as in `dns:` |
/// | `upn:*@example.com` | a user principal name, in the same way |
/// | `ip:192.0.2.7`, `ip:2001:db8::7` | an IP address, in any spelling |
/// | `cn:backup`, `ou:operations` | a common name or organizational unit of the subject, as a whole |
///
/// Compared without regard to the case of ASCII letters are DNS names, hosts, schemes, user principal names and values of the
/// subject; paths and local parts of mail addresses are not. A dot at the end of a DNS name does not count. Percent-encoding is
/// not decoded: `*` matches no segment with a `%`, and a URI with a user, an empty segment, `.`, `..`, a query or a fragment
/// matches nothing. A certificate with more than one URI matches no pattern with `spiffe:`. A wildcard name of the peer's certificate, `*.clients.example`, has `*` as its first label, which `*` of a pattern
/// matches.
package struct PeerPattern: Sendable, Hashable {
    private enum Kind: Hashable {
        case dns([Label])
        /// A URI with an authority: scheme, authority and path.
        case uri(String, String, [Label])
        /// A URI without an authority, compared as a whole.
        case opaque(String)
        /// A local part, or `nil` for any; and the labels of the host.
        case email(String?, [Label])
        case upn(String?, [Label])
        case ip(AlternativeName)
        case commonName(String)
        case organizationalUnit(String)
    }

    private enum Label: Hashable {
        case exactly(String)
        /// One.
        case any
        /// One or more.
        case rest
    }

    private let kind: Kind
    private let text: String

    /// Reads a pattern.
    ///
    /// - Throws: `configurationInvalid` for text that is not a pattern.
    package init(_ text: String) throws(ProviderError) {
        func invalid(_ reason: String) -> ProviderError {
            ProviderError(
                .configurationInvalid, "The pattern '\(text.withVisibleControls)' for peers is not valid: \(reason).")
        }
        let prefix = text.prefix { $0 != ":" }
        let value = String(text.dropFirst(prefix.count + 1))
        guard prefix.count < text.count, !value.isEmpty else {
            throw invalid("write a kind and a name, such as dns:web.example or cn:backup")
        }
        guard !value.unicodeScalars.contains(where: { $0.value < 0x20 || $0.value == 0x7f }) else {
            throw invalid("it has a control character")
        }
        guard value.first?.isWhitespace == false, value.last?.isWhitespace == false else {
            throw invalid("remove the blank after the colon, or at the end")
        }
        switch prefix.lowercased() {
        case "dns":
            guard !ConnectionProbe.isAddress(value) else {
                throw invalid("it is an IP address; write ip:\(value)")
            }
            kind = .dns(try Self.host(value, invalid))
        case "uri": kind = try Self.uri(value, invalid)
        case "email":
            let (local, host) = try Self.address(value, invalid)
            kind = .email(local, host)
        case "upn":
            let (local, host) = try Self.address(value, invalid)
            kind = .upn(local.map(\.asciiLowercased), host)
        case "ip":
            guard let address = try? AlternativeName(text) else { throw invalid("write one IPv4 or IPv6 address") }
            kind = .ip(address)
        case "cn", "ou":
            guard !value.contains("*") else {
                throw invalid("a common name or unit is compared as a whole; use dns: or uri: for patterns with *")
            }
            kind =
                prefix.lowercased() == "cn"
                ? .commonName(value.asciiLowercased) : .organizationalUnit(value.asciiLowercased)
        default: throw invalid("its kind is unknown; there are dns, uri, email, upn, ip, cn and ou")
        }
        self.text = text
    }

    /// Whether a name of the peer matches.
    package func matches(_ peer: TLSPeer) -> Bool {
        switch kind {
        case .commonName(let name): peer.commonNames.contains { $0.asciiLowercased.isSame(as: name) }
        case .organizationalUnit(let name): peer.organizationalUnits.contains { $0.asciiLowercased.isSame(as: name) }
        default: (!isOfSPIFFE || peer.names.count(where: \.isURI) == 1) && peer.names.contains(where: matches)
        }
    }

    /// Whether it matches SPIFFE IDs: an X509-SVID has exactly one URI name (X509-SVID, section 2).
    private var isOfSPIFFE: Bool {
        switch kind {
        case .uri(let scheme, _, _): scheme == "spiffe"
        case .opaque(let uri): uri.hasPrefix("spiffe:")
        default: false
        }
    }

    func matches(_ name: AlternativeName) -> Bool {
        switch (kind, name) {
        case (.ip(let address), .ip): return address == name
        case (.dns(let pattern), .dns(let name)): return Self.matches(pattern, host: name)
        case (.email(let local, let pattern), .email(let address)):
            guard let parts = Self.parts(ofAddress: address) else { return false }
            return local?.isSame(as: parts.local) ?? Self.isPlainLocalPart(parts.local)
                && Self.matches(pattern, host: parts.host)
        case (.upn(let local, let pattern), .upn(let name)):
            guard let parts = Self.parts(ofAddress: name) else { return false }
            return local?.isSame(as: parts.local.asciiLowercased) ?? Self.isPlainLocalPart(parts.local)
                && Self.matches(pattern, host: parts.host)
        case (.opaque(let uri), .uri(let name)): return Self.withLowercasedScheme(name).isSame(as: uri)
        case (.uri(let scheme, let authority, let pattern), .uri(let name)):
            guard let parts = Self.parts(ofURI: name) else { return false }
            return parts.scheme.isSame(as: scheme) && parts.authority.isSame(as: authority)
                && Self.matches(pattern, parts.path) { Self.isPlainSegment($0) }
        default: return false
        }
    }

    /// - Parameter isPlain: Whether a wildcard matches this one.
    private static func matches(_ pattern: [Label], _ labels: [String], isPlain: (String) -> Bool) -> Bool {
        var pattern = pattern[...]
        var labels = labels[...]
        // Stands at one of the ends.
        if pattern.last == .rest {
            guard labels.count >= pattern.count else { return false }
            guard labels.dropFirst(pattern.count - 1).allSatisfy(isPlain) else { return false }
            labels = labels.prefix(pattern.count - 1)
            pattern = pattern.dropLast()
        } else if pattern.first == .rest {
            guard labels.count >= pattern.count else { return false }
            guard labels.dropLast(pattern.count - 1).allSatisfy(isPlain) else { return false }
            labels = labels.suffix(pattern.count - 1)
            pattern = pattern.dropFirst()
        }
        return pattern.count == labels.count
            && zip(pattern, labels).allSatisfy { wanted, label in
                if case .exactly(let text) = wanted { return text.isSame(as: label) }
                return isPlain(label)
            }
    }

    // MARK: - Hosts

    private static func host(
        _ text: String, _ invalid: (String) -> ProviderError
    ) throws(ProviderError) -> [Label] {
        guard text.utf8.allSatisfy({ $0 < 0x80 }) else {
            throw invalid("write international names in their ASCII form (xn--…)")
        }
        let labels = labels(ofHost: text)
        var pattern: [Label] = []
        for (index, label) in labels.enumerated() {
            switch label {
            case "*": pattern.append(.any)
            case "**" where index == 0 && labels.count > 1: pattern.append(.rest)
            case _ where label.contains("*"):
                throw invalid("* must be a whole label, and ** the first of several")
            default:
                guard isPlainLabel(label) else {
                    throw invalid("a label of a DNS name has letters, digits, hyphens and underscores")
                }
                pattern.append(.exactly(label))
            }
        }
        return pattern
    }

    private static func matches(_ pattern: [Label], host: String) -> Bool {
        matches(pattern, labels(ofHost: host)) { isPlainLabel($0) || $0 == "*" }
    }

    /// In lower case, without the empty label of the root.
    private static func labels(ofHost name: String) -> [String] {
        var labels = name.asciiLowercased.split(separator: ".", omittingEmptySubsequences: false).map(String.init)
        if labels.count > 1, labels.last == "" { labels.removeLast() }
        return labels
    }

    private static func isPlainLabel(_ label: String) -> Bool {
        !label.isEmpty
            && label.utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"),
                    UInt8(ascii: "_"):
                    true
                default: false
                }
            }
    }

    // MARK: - Addresses

    private static func parts(ofAddress text: String) -> (local: String, host: String)? {
        guard let at = text.lastIndex(of: "@"), at != text.startIndex else { return nil }
        return (String(text[..<at]), String(text[text.index(after: at)...]))
    }

    /// One that reads the same to every program: without another `@`, quotes, blanks and control characters.
    private static func isPlainLocalPart(_ local: String) -> Bool {
        local.unicodeScalars.allSatisfy { scalar in
            scalar.value > 0x20 && !scalar.properties.isWhitespace && !(0x7f...0x9f).contains(scalar.value)
                && !"@\"\\".unicodeScalars.contains(scalar)
        }
    }

    private static func address(
        _ text: String, _ invalid: (String) -> ProviderError
    ) throws(ProviderError) -> (String?, [Label]) {
        guard let parts = parts(ofAddress: text) else { throw invalid("write NAME@HOST, or *@HOST for all of a host") }
        guard parts.local == "*" || !parts.local.contains("*") else {
            throw invalid("* must be the whole part before the @")
        }
        return (parts.local == "*" ? nil : parts.local, try host(parts.host, invalid))
    }

    // MARK: - URIs

    private static func withLowercasedScheme(_ uri: String) -> String {
        let scheme = uri.prefix { $0 != ":" }
        return String(scheme).asciiLowercased + uri[scheme.endIndex...]
    }

    /// `nil` for a URI without an authority, and for one that no pattern matches.
    private static func parts(ofURI uri: String) -> (scheme: String, authority: String, path: [String])? {
        // By bytes: a combining character after a slash hides it from Character.
        let bytes = Array(uri.utf8)
        guard let colon = bytes.firstIndex(of: UInt8(ascii: ":")), colon > 0,
            bytes[(colon + 1)...].starts(with: "//".utf8),
            !bytes.contains(where: { $0 == UInt8(ascii: "?") || $0 == UInt8(ascii: "#") || $0 == UInt8(ascii: "\\") })
        else { return nil }
        let rest = bytes[(colon + 3)...]
        let segments = rest.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
            .map { String(decoding: $0, as: UTF8.self) }
        // The name of a user, before an @, would be compared without case.
        guard let authority = segments.first, !authority.isEmpty, !authority.utf8.contains(UInt8(ascii: "@")) else {
            return nil
        }
        let path = Array(segments.dropFirst())
        guard path.allSatisfy({ !$0.isEmpty && $0 != "." && $0 != ".." }) else { return nil }
        return (String(decoding: bytes[..<colon], as: UTF8.self).asciiLowercased, authority.asciiLowercased, path)
    }

    private static func isPlainSegment(_ segment: String) -> Bool {
        segment.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f && $0 != UInt8(ascii: "%") }
    }

    private static func uri(
        _ text: String, _ invalid: (String) -> ProviderError
    ) throws(ProviderError) -> Kind {
        guard text.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f }) else { throw invalid("a URI has ASCII characters only") }
        guard let colon = text.firstIndex(of: ":"), colon != text.startIndex else {
            throw invalid("a URI begins with a scheme, such as spiffe://")
        }
        guard text[colon...].hasPrefix("://") else {
            guard !text.contains("*") else { throw invalid("only a URI with // may have *") }
            return .opaque(withLowercasedScheme(text))
        }
        guard let parts = parts(ofURI: text) else {
            throw invalid(
                "it must have a host, and neither a user, an empty segment, '.', '..', a query nor a fragment")
        }
        guard !parts.scheme.contains("*"), !parts.authority.contains("*") else {
            throw invalid("* may stand for a segment of the path only")
        }
        var pattern: [Label] = []
        for (index, segment) in parts.path.enumerated() {
            switch segment {
            case "*": pattern.append(.any)
            case "**" where index == parts.path.count - 1: pattern.append(.rest)
            case _ where segment.contains("*"):
                throw invalid("* must be a whole segment, and ** the last one")
            default: pattern.append(.exactly(segment))
            }
        }
        return .uri(parts.scheme, parts.authority, pattern)
    }
}

extension PeerPattern: CustomStringConvertible {
    package var description: String { text.withVisibleControls }
}

extension String {
    /// With ASCII letters in lower case. Others stay: more than one of them becomes an ASCII letter.
    fileprivate var asciiLowercased: String {
        String(
            decoding: utf8.map { UInt8(ascii: "A")...UInt8(ascii: "Z") ~= $0 ? $0 | 0x20 : $0 }, as: UTF8.self)
    }

    /// Whether the bytes are the same: different strings can compare equal.
    fileprivate func isSame(as other: String) -> Bool { utf8.elementsEqual(other.utf8) }
}

extension AlternativeName {
    /// Whether it is a URI, readable or not.
    var isURI: Bool {
        switch self {
        case .uri: true
        case .encoded(let der): der.first.map { $0 & 0xdf } == 0x86
        default: false
        }
    }
}
