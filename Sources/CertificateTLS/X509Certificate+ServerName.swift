public import CertificateProviding

extension X509Certificate {
    /// Whether the certificate is valid for the DNS name `name` (RFC 9525, section 6.3): one of its dNSNames is equal,
    /// or has `*` as its whole first label and the same remaining labels. Common name and IP addresses are ignored.
    ///
    /// SwiftNIO SSL also accepts the IP address of the connection if a name was requested, and the common name of a
    /// certificate without alternative names. Clients that must exclude this call this function too.
    ///
    /// Does not check the issuer.
    public func isValid(forServerName name: String) -> Bool {
        let wanted = Self.labels(name)
        guard !wanted.contains([]) else { return false }
        return subjectAlternativeNames.contains { alternative in
            guard case .dns(let name) = alternative else { return false }
            let presented = Self.labels(name)
            if presented == wanted { return true }
            // At least two labels after the asterisk: a certificate for all of a top-level domain is never issued.
            return presented.first == [UInt8(ascii: "*")] && presented.count > 2
                && presented.dropFirst() == wanted.dropFirst()
        }
    }

    /// Whether the certificate is valid for a server at `host`: a DNS name as in ``isValid(forServerName:)``, or an
    /// IPv4 or IPv6 address without brackets, which must be one of its iPAddress names (RFC 9110, section 4.3.5).
    package func isValid(forHost host: String) -> Bool {
        guard let address = host.addressOctets else { return isValid(forServerName: host) }
        return subjectAlternativeNames.contains(.ip(address))
    }

    /// Returns the labels with ASCII letters in lower case, without the empty label of the root. Bytes, since different
    /// strings can compare equal.
    private static func labels(_ name: some StringProtocol) -> [[UInt8]] {
        let bytes = name.utf8.map { UInt8(ascii: "A")...UInt8(ascii: "Z") ~= $0 ? $0 | 0x20 : $0 }
        var labels = bytes.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false).map(Array.init)
        if labels.count > 1 && labels.last == [] { labels.removeLast() }
        return labels
    }
}
