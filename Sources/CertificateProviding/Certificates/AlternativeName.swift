public import SwiftASN1
public import X509

/// A subject alternative name (RFC 5280, section 4.2.1.6).
///
/// Equality compares the content as it is; names of two sources are compared by ``normalized``. ``description`` is the
/// form of listings and of configurations, safe to print on a terminal.
public enum AlternativeName: Hashable, Sendable {
    /// A DNS name, such as `host.example`, perhaps with a wildcard; an international name in its ASCII form.
    case dns(String)
    /// The 4 octets of an IPv4 address, or the 16 of an IPv6 address.
    case ip([UInt8])
    /// A mail address.
    case email(String)
    /// A URI, such as a SPIFFE ID.
    case uri(String)
    /// A Microsoft user principal name, such as `alice@example.com`: an otherName 1.3.6.1.4.1.311.20.2.3.
    case upn(String)
    /// The name of an entry in a directory.
    case directory(DistinguishedName)
    /// An object identifier.
    case registeredID(ASN1ObjectIdentifier)
    /// Another otherName: its type, and its value in DER, which is empty in a malformed name without one.
    case other(ASN1ObjectIdentifier, [UInt8])
    /// The encoding of a name that is not read: an x400Address, an ediPartyName, or a malformed name.
    case encoded([UInt8])
}

extension AlternativeName: CustomStringConvertible {
    /// The name with its kind as prefix, such as `dns:host.example`. Control characters are shown as `\xx`.
    public var description: String {
        switch self {
        case .dns(let name): "dns:" + name.withVisibleControls
        case .ip(let octets): "ip:" + Self.address(octets)
        case .email(let address): "email:" + address.withVisibleControls
        case .uri(let uri): "uri:" + uri.withVisibleControls
        case .upn(let name): "upn:" + name.withVisibleControls
        case .directory(let name): "dirname:" + name.rfc4514
        case .registeredID(let identifier): "rid:\(identifier)"
        case .other(let type, _): "othername:\(type)"
        case .encoded(let der):
            switch der.first.map({ $0 & 0xdf }) {
            case 0x83: "x400"
            case 0x85: "edi"
            default: "der:" + der.hexEncoded
            }
        }
    }

    /// Dotted decimal, or the canonical IPv6 text of RFC 5952.
    private static func address(_ octets: [UInt8]) -> String {
        if octets.count == 4 { return octets.map(String.init).joined(separator: ".") }
        guard octets.count == 16 else { return octets.hexEncoded }
        let groups = (0..<8).map { UInt16(octets[$0 * 2]) << 8 | UInt16(octets[$0 * 2 + 1]) }
        var longest = 0..<0
        var start = 0
        while start < 8 {
            let end = groups[start...].firstIndex { $0 != 0 } ?? 8
            if end - start > max(longest.count, 1) { longest = start..<end }
            start = end + 1
        }
        let hex = groups.map { String($0, radix: 16) }
        guard !longest.isEmpty else { return hex.joined(separator: ":") }
        return hex[..<longest.lowerBound].joined(separator: ":") + "::"
            + hex[longest.upperBound...].joined(separator: ":")
    }
}

extension AlternativeName {
    /// The form that is equal for names that mean the same (RFC 5280, section 7): in lower case are DNS names, the host of
    /// a mail address, scheme and host of a URI, and UPNs and directory names. Other content counts as it is.
    public var normalized: AlternativeName {
        switch self {
        case .dns(let name): return .dns(name.lowercased())
        case .email(let address):
            let host = address.lastIndex(of: "@") ?? address.endIndex
            return .email(address[..<host] + address[host...].lowercased())
        case .uri(let uri):
            let scheme = uri.prefix { $0 != ":" }
            guard uri[scheme.endIndex...].hasPrefix("://") else {
                return .uri(scheme.lowercased() + uri[scheme.endIndex...])
            }
            let authority = uri[scheme.endIndex...].dropFirst(3).prefix { !"/?#".contains($0) }
            let host = authority.lastIndex(of: "@") ?? authority.startIndex
            return .uri(
                scheme.lowercased() + uri[scheme.endIndex..<host] + uri[host..<authority.endIndex].lowercased()
                    + uri[authority.endIndex...])
        case .upn(let name): return .upn(name.lowercased())
        // Both sides get the same string types, too.
        case .directory(let name):
            return (try? DistinguishedName(rfc4514: name.rfc4514.lowercased())).map(Self.directory) ?? self
        case .ip, .registeredID, .other, .encoded: return self
        }
    }
}

// MARK: - DER

extension AlternativeName {
    private static let upnType: ASN1ObjectIdentifier = [1, 3, 6, 1, 4, 1, 311, 20, 2, 3]

    /// Returns the names in a DER `GeneralNames`, such as the value of an extension (RFC 5280, section 4.2.1.6). One malformed name does
    /// not hide the others: its bytes become a name, as do those of a value that is not a list of names.
    package static func names(derEncoded value: ArraySlice<UInt8>) -> [AlternativeName] {
        guard let root = try? DER.parse(value), root.identifier == .sequence,
            case .constructed(let nodes) = root.content
        else { return [.encoded(Array(value))] }
        return nodes.map(Self.init(derEncoded:))
    }

    private init(derEncoded node: ASN1Node) {
        guard let name = try? GeneralName(derEncoded: node) else {
            self = .encoded(Array(node.encodedBytes))
            return
        }
        self.init(name)
    }

    init(_ name: GeneralName) {
        switch name {
        case .dnsName(let name): self = .dns(name)
        case .ipAddress(let octets): self = .ip(Array(octets.bytes))
        case .rfc822Name(let address): self = .email(address)
        case .uniformResourceIdentifier(let uri): self = .uri(uri)
        case .directoryName(let name): self = .directory(name)
        case .registeredID(let identifier): self = .registeredID(identifier)
        case .otherName(let other):
            if other.typeID == Self.upnType, let value = other.value, let text = try? ASN1UTF8String(asn1Any: value),
                let name = String(validating: text.bytes, as: UTF8.self)
            {
                self = .upn(name)
                return
            }
            var serializer = DER.Serializer()
            if let value = other.value { try? serializer.serialize(value) }
            self = .other(other.typeID, serializer.serializedBytes)
        case .x400Address, .ediPartyName:
            var serializer = DER.Serializer()
            try? serializer.serialize(name)
            self = .encoded(serializer.serializedBytes)
        }
    }

    /// Returns the name for a request.
    /// - Throws: `malformedData` for content that no certificate can have.
    func generalName() throws(ProviderError) -> GeneralName {
        if let problem { throw Self.refusal(description, problem) }
        do {
            switch self {
            case .dns(let name): return .dnsName(name)
            case .ip(let octets): return .ipAddress(ASN1OctetString(contentBytes: octets[...]))
            case .email(let address): return .rfc822Name(address)
            case .uri(let uri): return .uniformResourceIdentifier(uri)
            case .upn(let name):
                return .otherName(.init(typeID: Self.upnType, value: try ASN1Any(erasing: ASN1UTF8String(name))))
            case .directory(let name): return .directoryName(name)
            case .registeredID(let identifier): return .registeredID(identifier)
            case .other(let type, let value):
                return .otherName(.init(typeID: type, value: try ASN1Any(derEncoded: value)))
            // swift-certificates writes what it takes for an x400Address as it is.
            case .encoded(let der): return .x400Address(try ASN1Any(derEncoded: der))
            }
        } catch {
            throw Self.refusal(description, "its content must be DER")
        }
    }
}
