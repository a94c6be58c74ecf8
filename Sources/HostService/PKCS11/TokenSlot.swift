/// The one slot, and its token: the calls that need no session.
enum TokenSlot {
    /// Its number.
    static let id: UInt64 = 0
    /// Of one connection.
    static let maximumSessions = 256

    /// Answers a call.
    ///
    /// - Parameter sessions: The number of those that are open.
    static func answer(
        _ function: RPCFunction, sessions: Int, _ reader: inout RPCReader, _ writer: inout RPCWriter
    ) throws(ReturnCode) {
        if function == .getSlotList {
            _ = try reader.byte()
            let room = try reader.numberRoom()
            try reader.end()
            return writer.write(numbers: [id], room: room)
        }
        guard try reader.number() == id else { throw .slotIDInvalid }
        switch function {
        case .getMechanismList:
            let room = try reader.numberRoom()
            try reader.end()
            writer.write(numbers: TokenMechanism.allCases.map(\.rawValue), room: room)
        case .getMechanismInfo:
            let mechanism = TokenMechanism(rawValue: try reader.number())
            try reader.end()
            let sign: UInt64 = 0x800
            // CKF_EC_F_P, CKF_EC_NAMEDCURVE and CKF_EC_UNCOMPRESS.
            let curves: UInt64 = 0x190_0000
            let (sizes, flags): (ClosedRange<UInt64>, UInt64) =
                switch mechanism {
                case .rsaPKCS, .rsaPSS: (2048...8192, sign)
                case .ecdsa: (256...521, sign | curves)
                case .eddsa: (255...256, sign)
                case nil: throw .mechanismInvalid
                }
            for number in [sizes.lowerBound, sizes.upperBound, flags] { writer.write(number) }
        case .getSlotInfo:
            try reader.end()
            writer.write("certprov serve", padded: 64)
            writer.write("certprov", padded: 32)
            // CKF_TOKEN_PRESENT.
            writer.write(1)
            writer.write(version: 0, 1)
            writer.write(version: 0, 1)
        default:
            try reader.end()
            writer.write("certprov", padded: 32)
            writer.write("certprov", padded: 32)
            writer.write("certprov", padded: 16)
            writer.write("1", padded: 16)
            // CKF_WRITE_PROTECTED and CKF_TOKEN_INITIALIZED.
            writer.write(0x402)
            // Sessions, those with write access, sizes of a PIN, and memory: the largest number is for unknown.
            let count = UInt64(sessions)
            for number in [UInt64(maximumSessions), count, 0, 0, 0, 0] + Array(repeating: .max, count: 4) {
                writer.write(number)
            }
            writer.write(version: 0, 1)
            writer.write(version: 0, 1)
            writer.write("", padded: 16)
        }
    }
}
