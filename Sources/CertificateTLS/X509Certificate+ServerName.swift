public import CertificateProviding
import NIOCore

extension X509Certificate {
    /// Whether the certificate is for the DNS name `name`, by RFC 9525, section 6.3: one of its dNSNames is that name,
    /// or has `*` as its whole first label and the same labels after it. The common name and addresses do not count.
    ///
    /// SwiftNIO SSL also accepts a certificate for the address that the connection leads to, although a name was asked
    /// for, and the common name of one without alternative names. A client that must be sure calls this as well.
    ///
    /// Says nothing about who issued the certificate.
    public func isValid(forServerName name: String) -> Bool {
        let wanted = Self.labels(name)
        guard !wanted.contains([]) else { return false }
        return subjectAlternativeNames.contains { alternative in
            guard alternative.hasPrefix("dns:") else { return false }
            let presented = Self.labels(alternative.dropFirst(4))
            if presented == wanted { return true }
            // At least two labels after the asterisk: nobody is certified for all of a top-level domain.
            return presented.first == [UInt8(ascii: "*")] && presented.count > 2
                && presented.dropFirst() == wanted.dropFirst()
        }
    }

    /// Whether the certificate is for a server at `host`: a DNS name as ``isValid(forServerName:)`` has it, or an IPv4
    /// or IPv6 address without brackets, which must be among its iPAddress names (RFC 9110, section 4.3.5).
    public func isValid(forHost host: String) -> Bool {
        guard let address = try? SocketAddress(ipAddress: host, port: 0).ipAddress else {
            return isValid(forServerName: host)
        }
        return subjectAlternativeNames.contains("ip:" + address)
    }

    /// The labels with their ASCII letters in lower case, without the empty one of the root. Bytes, since strings that
    /// differ in them can be equal.
    private static func labels(_ name: some StringProtocol) -> [[UInt8]] {
        let bytes = name.utf8.map { UInt8(ascii: "A")...UInt8(ascii: "Z") ~= $0 ? $0 | 0x20 : $0 }
        var labels = bytes.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false).map(Array.init)
        if labels.count > 1 && labels.last == [] { labels.removeLast() }
        return labels
    }
}
