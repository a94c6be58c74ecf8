import CertificateProviding

/// Reads fields of SSH (RFC 4251, section 5).
struct SSHReader {
    private var rest: ArraySlice<UInt8>

    static let malformed = ProviderError(
        .protocolError, "The ssh-agent's answer is cut off or damaged; restart the agent.")

    init(_ bytes: ArraySlice<UInt8>) { rest = bytes }

    mutating func byte() throws(ProviderError) -> UInt8 {
        guard let byte = rest.popFirst() else { throw Self.malformed }
        return byte
    }

    mutating func uint32() throws(ProviderError) -> Int {
        guard rest.count >= 4 else { throw Self.malformed }
        defer { rest = rest.dropFirst(4) }
        return rest.prefix(4).reduce(0) { $0 << 8 | Int($1) }
    }

    mutating func string() throws(ProviderError) -> ArraySlice<UInt8> {
        let count = try uint32()
        guard count <= rest.count else { throw Self.malformed }
        defer { rest = rest.dropFirst(count) }
        return rest.prefix(count)
    }
}

extension Int {
    /// The number as a `uint32`.
    var sshUInt32: [UInt8] { withUnsafeBytes(of: UInt32(truncatingIfNeeded: self).bigEndian) { [UInt8]($0) } }
}

extension Collection<UInt8> {
    /// The bytes as a `string`: after their number.
    var sshString: [UInt8] { count.sshUInt32 + self }
}
