import CertificateProviding

/// The servers that are reached without a proxy: the value of `no_proxy`.
///
/// Entries are separated by commas or white space:
/// - `*`: every server
/// - a domain, with or without a leading dot: the domain and its subdomains
/// - an IP address, or a network such as `10.0.0.0/8`
/// - a domain, or an IP address in brackets, followed by `:PORT`
struct NoProxyList: Sendable {
    private let entries: [Substring]

    init(_ text: String) {
        entries = text.lowercased().split { $0 == "," || $0.isWhitespace }
    }

    func contains(_ host: String, port: Int) -> Bool {
        let host = Self.normal(host[...])
        let address = host.addressOctets
        return entries.contains { entry in
            if entry == "*" { return true }
            if let address, let network = Self.network(entry) { return network.contains(address) }
            let (name, wanted) = Self.split(entry)
            guard wanted == nil || wanted == port else { return false }
            if let address { return name.addressOctets == address }
            let domain = name.hasPrefix("*.") ? name.dropFirst(2) : name.hasPrefix(".") ? name.dropFirst() : name
            return !domain.isEmpty && (host == domain || host.hasSuffix("." + domain))
        }
    }

    /// Whether a name or address always means this host: `localhost` and names below it, 127.0.0.0/8 and `::1`.
    static func isThisHost(_ host: String) -> Bool {
        let host = normal(host[...])
        guard let address = host.addressOctets else { return host == "localhost" || host.hasSuffix(".localhost") }
        return address.count == 4 ? address[0] == 127 : address == Array(repeating: 0, count: 15) + [1]
    }

    private static func normal(_ host: Substring) -> Substring {
        let host = Substring(host.lowercased())
        return host.hasSuffix(".") ? host.dropLast() : host
    }

    private static func split(_ entry: Substring) -> (name: Substring, port: Int?) {
        if entry.hasPrefix("["), let end = entry.firstIndex(of: "]") {
            let rest = entry[entry.index(after: end)...]
            return (entry[..<end].dropFirst(), rest.hasPrefix(":") ? Int(rest.dropFirst()) : nil)
        }
        let parts = entry.split(separator: ":", omittingEmptySubsequences: false)
        guard parts.count == 2, let port = Int(parts[1]) else { return (normal(entry), nil) }
        return (normal(parts[0]), port)
    }

    private struct Network {
        let prefix: [UInt8]
        let bits: Int

        func contains(_ address: [UInt8]) -> Bool {
            guard address.count == prefix.count else { return false }
            return (0..<bits).allSatisfy { bit in
                (address[bit / 8] ^ prefix[bit / 8]) & (0x80 >> UInt8(bit % 8)) == 0
            }
        }
    }

    private static func network(_ entry: Substring) -> Network? {
        let parts = entry.split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count == 2, let prefix = parts[0].addressOctets, let bits = Int(parts[1]),
            (0...prefix.count * 8).contains(bits)
        else { return nil }
        return Network(prefix: prefix, bits: bits)
    }
}
