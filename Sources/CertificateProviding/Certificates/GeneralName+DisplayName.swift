import SwiftASN1
import X509

extension GeneralName {
    /// The name with its type as prefix, such as `dns:host.example`. Control characters are shown as `\xx`.
    var displayName: String {
        switch self {
        case .dnsName(let name): "dns:" + name.withVisibleControls
        case .rfc822Name(let address): "email:" + address.withVisibleControls
        case .uniformResourceIdentifier(let uri): "uri:" + uri.withVisibleControls
        case .ipAddress(let octets): "ip:" + Self.address(Array(octets.bytes))
        case .directoryName(let name): "dirname:" + name.rfc4514
        case .registeredID(let identifier): "rid:\(identifier)"
        case .otherName(let other): "othername:\(other.typeID)"
        case .x400Address: "x400"
        case .ediPartyName: "edi"
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
