import CertificateProviding
import CertificateTLS
import Glibc
import NIOCore

/// The header of the PROXY protocol, version 2, which tells a target who the peer is (proxy-protocol.txt of HAProxy, section 2.2).
enum ProxyHeader {
    private static let signature: [UInt8] = [0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a]
    /// The first of the types that are free for applications.
    static let namesType: UInt8 = 0xe0
    /// Readers bound the header: nginx takes 4096 bytes.
    static let maximumNamesSize = 3072

    /// - Parameters:
    ///   - source: The peer's address.
    ///   - destination: The address that it has connected to.
    static func bytes(of peer: TLSPeer, from source: SocketAddress?, to destination: SocketAddress?) -> ByteBuffer {
        var addresses: [UInt8] = []
        // The family of addresses that are not known: readers ignore them.
        var family: UInt8 = 0
        if let source, let destination, let (from, to) = pair(source.octets, destination.octets) {
            family = from.count == 4 ? 0x11 : 0x21
            addresses = from + to
            for port in [source.port, destination.port] {
                let port = UInt16(truncatingIfNeeded: port ?? 0)
                addresses += [UInt8(port >> 8), UInt8(port & 0xff)]
            }
        }
        let names = names(of: peer)
        var header = ByteBuffer(bytes: signature + [0x21, family])
        header.writeInteger(UInt16(addresses.count + 3 + names.count))
        header.writeBytes(addresses)
        header.writeInteger(namesType)
        header.writeInteger(UInt16(names.count))
        header.writeBytes(names)
        return header
    }

    /// The names that `Peers.allow` compares, each with its kind and a NUL at its end: common names, units, and alternative names. One
    /// with a control character, and those that do not fit, are left out: a reader admits by a name that is there.
    static func names(of peer: TLSPeer) -> [UInt8] {
        var all = peer.commonNames.map { "cn:" + $0 } + peer.organizationalUnits.map { "ou:" + $0 }
        for name in peer.names {
            switch name {
            case .dns(let text): all.append("dns:" + text)
            case .email(let text): all.append("email:" + text)
            case .uri(let text): all.append("uri:" + text)
            case .upn(let text): all.append("upn:" + text)
            case .ip: all.append(name.description)
            default: break
            }
        }
        var bytes: [UInt8] = []
        for name in all where !name.utf8.contains(where: { $0 < 0x20 || $0 == 0x7f }) {
            guard bytes.count + name.utf8.count + 1 <= maximumNamesSize else { break }
            bytes += Array(name.utf8) + [0]
        }
        return bytes
    }

    private static func pair(_ from: [UInt8]?, _ to: [UInt8]?) -> ([UInt8], [UInt8])? {
        guard let from, let to, from.count == to.count else { return nil }
        return (from, to)
    }

}

extension SocketAddress {
    /// The 4 or 16 octets of an IP address: 4 also for IPv4 at a socket that takes both (::ffff:0:0/96).
    var octets: [UInt8]? {
        guard let text = ipAddress else { return nil }
        let (family, count) = self.protocol == .inet ? (AF_INET, 4) : (AF_INET6, 16)
        var octets = [UInt8](repeating: 0, count: count)
        guard inet_pton(family, text, &octets) == 1 else { return nil }
        let isMapped = octets.starts(with: Array(repeating: 0, count: 10) + [0xff, 0xff])
        return isMapped ? octets.suffix(4) : octets
    }
}
