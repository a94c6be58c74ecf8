import Glibc

extension StringProtocol {
    /// The octets of an IPv4 or IPv6 address in text form; `nil` if the text is not one.
    package var addressOctets: [UInt8]? {
        for (family, size) in [(AF_INET, 4), (AF_INET6, 16)] {
            var octets = [UInt8](repeating: 0, count: size)
            if inet_pton(family, String(self), &octets) == 1 { return octets }
        }
        return nil
    }
}
