package import NIOCore

/// The headers of the records in one direction of a TLS connection (RFC 8446, section 5.1).
package struct TLSRecords: Sendable {
    /// The type of a record's content, as far as it can be seen from outside.
    package enum Kind: UInt8, Sendable {
        case changeCipherSpec = 20, alert, handshake, applicationData
    }

    private var header: [UInt8] = []
    private var isOver = false
    /// The bytes of the current record that are still to come.
    private var rest = 0

    package init() {}

    /// Calls `body` with the kind and the length of each record that begins in `bytes`, in bytes without the header. Records of
    /// an unknown kind end the reading.
    package mutating func read(_ bytes: ByteBuffer, _ body: (Kind, Int) -> Void) {
        var view = bytes.readableBytesView
        while !isOver, !view.isEmpty {
            let skipped = min(rest, view.count)
            view.removeFirst(skipped)
            rest -= skipped
            while header.count < 5, let byte = view.popFirst() { header.append(byte) }
            guard rest == 0, header.count == 5 else { return }
            guard let kind = Kind(rawValue: header[0]) else {
                isOver = true
                return
            }
            rest = Int(header[3]) << 8 | Int(header[4])
            header = []
            body(kind, rest)
        }
    }
}
