/// The frames of p11-kit's protocol: three numbers, the options, and the body. Options say nothing here.
struct RPCFrame: Equatable {
    /// The number that the answer has, too.
    let number: UInt32
    let body: [UInt8]

    static let headerSize = 12
    /// Of options and body.
    static let largest = 1 << 16

    /// A message is larger than ``largest``.
    struct TooLarge: Error {}

    /// Takes the first frame off the received bytes; `nil` while it is not complete.
    static func take(from received: inout [UInt8]) throws(TooLarge) -> RPCFrame? {
        guard received.count >= headerSize else { return nil }
        func number(_ offset: Int) -> UInt32 {
            received[offset..<offset + 4].reduce(0) { $0 << 8 | UInt32($1) }
        }
        let (options, size) = (Int(number(4)), Int(number(8)))
        guard options + size <= largest else { throw TooLarge() }
        let end = headerSize + options + size
        guard received.count >= end else { return nil }
        let frame = RPCFrame(number: number(0), body: Array(received[headerSize + options..<end]))
        received.removeSubrange(..<end)
        return frame
    }

    var bytes: [UInt8] {
        [number, 0, UInt32(body.count)].flatMap { number in
            (0..<4).map { UInt8(truncatingIfNeeded: number >> (24 - 8 * $0)) }
        }
            + body
    }
}
