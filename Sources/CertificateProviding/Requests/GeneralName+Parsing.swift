import SwiftASN1
import X509

extension GeneralName {
    /// Reads a name in the form of listings: `dns:host.example`, `ip:192.0.2.1`, `email:…`, `uri:…`.
    /// - Throws: `malformedData`.
    init(displayName text: String) throws(CertificateProviderError) {
        func refusal(_ reason: String) -> CertificateProviderError {
            CertificateProviderError(
                .malformedData,
                "'\(text.withVisibleControls)' is not a valid subject alternative name: \(reason).")
        }
        guard let colon = text.firstIndex(of: ":") else {
            throw refusal("write dns:, ip:, email: or uri: before it")
        }
        let value = String(text[text.index(after: colon)...])
        // All but addresses are IA5Strings (RFC 5280, section 4.2.1.6): international names go in their ASCII forms.
        guard !value.isEmpty, value.utf8.allSatisfy({ (0x21...0x7e).contains($0) }) else {
            throw refusal("it must be ASCII without blanks, and not empty; use the ASCII form of international names")
        }
        switch text[..<colon].lowercased() {
        case "dns":
            guard value.utf8.count <= 253,
                value.split(separator: ".", omittingEmptySubsequences: false).allSatisfy({ label in
                    (1...63).contains(label.utf8.count)
                })
            else { throw refusal("a host name must have labels of 1 to 63 characters, separated by dots") }
            self = .dnsName(value)
        case "ip":
            guard let octets = value.addressOctets else { throw refusal("it is not an IPv4 or IPv6 address") }
            self = .ipAddress(ASN1OctetString(contentBytes: octets[...]))
        case "email":
            let parts = value.split(separator: "@", omittingEmptySubsequences: false)
            guard parts.count == 2, parts.allSatisfy({ !$0.isEmpty }) else {
                throw refusal("it is not an email address")
            }
            self = .rfc822Name(value)
        case "uri":
            guard let end = value.firstIndex(of: ":"), end != value.startIndex else {
                throw refusal("it has no scheme")
            }
            self = .uniformResourceIdentifier(value)
        default:
            throw refusal("only dns:, ip:, email: and uri: are supported")
        }
    }
}
