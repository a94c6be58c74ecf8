import CZlib

/// Why a stream cannot be decoded.
struct PDFStreamFailure: Error { var reason: String }

/// Undoes the filter FlateDecode and its predictors, in pieces and up to a size.
enum StreamDecoder {
    /// How many bytes a cross-reference stream or an object stream may have.
    static let maximumSize = 1 << 25

    /// How the rows of pixels that PNG has were predicted; tables are compressed like images.
    struct Predictor {
        var rowLength, pixelLength: Int
    }

    /// Inflates what `read` returns until the zlib stream ends. Bytes after it are ignored.
    ///
    /// - Parameter read: The next piece of the stream, or nothing at its end.
    static func inflate(
        _ read: () throws -> [UInt8], predictor: Predictor?
    ) throws -> [UInt8] {
        var stream = z_stream()
        guard certprov_inflate_init(&stream) == Z_OK else { throw PDFStreamFailure(reason: "zlib has no memory") }
        defer { inflateEnd(&stream) }
        var result: [UInt8] = []
        var piece = [UInt8](repeating: 0, count: 1 << 16)
        while true {
            var input = try read()
            guard !input.isEmpty else { throw PDFStreamFailure(reason: "its compressed data is cut off") }
            let status = try input.withUnsafeMutableBufferPointer { input in
                (stream.next_in, stream.avail_in) = (input.baseAddress, UInt32(input.count))
                return try inflate(&stream, through: &piece, into: &result)
            }
            if status == Z_STREAM_END { break }
        }
        return try predictor.map { try undo($0, result) } ?? result
    }

    /// Inflates all input that there is.
    private static func inflate(
        _ stream: inout z_stream, through piece: inout [UInt8], into result: inout [UInt8]
    ) throws -> Int32 {
        while true {
            let (status, count) = piece.withUnsafeMutableBufferPointer { piece in
                (stream.next_out, stream.avail_out) = (piece.baseAddress, UInt32(piece.count))
                let status = CZlib.inflate(&stream, Z_NO_FLUSH)
                return (status, piece.count - Int(stream.avail_out))
            }
            result += piece[..<count]
            guard result.count <= maximumSize else { throw PDFStreamFailure(reason: "it has more than 32 MiB") }
            switch status {
            case Z_STREAM_END: return status
            case Z_OK, Z_BUF_ERROR: if stream.avail_in == 0 && count < piece.count { return Z_OK }
            default: throw PDFStreamFailure(reason: "its compressed data is damaged")
            }
        }
    }

    /// Each row begins with a byte that names its filter (PNG, section 9).
    private static func undo(_ predictor: Predictor, _ bytes: [UInt8]) throws -> [UInt8] {
        let (length, pixel) = (predictor.rowLength, predictor.pixelLength)
        guard bytes.count.isMultiple(of: length + 1) else { throw PDFStreamFailure(reason: "its last row is cut off") }
        var result = [UInt8]()
        result.reserveCapacity(bytes.count)
        var above = [UInt8](repeating: 0, count: length)
        for start in stride(from: 0, to: bytes.count, by: length + 1) {
            var row = Array(bytes[(start + 1)..<(start + 1 + length)])
            for index in row.indices {
                let left = index >= pixel ? row[index - pixel] : 0
                switch bytes[start] {
                case 0: break
                case 1: row[index] &+= left
                case 2: row[index] &+= above[index]
                case 3: row[index] &+= UInt8((Int(left) + Int(above[index])) / 2)
                case 4: row[index] &+= paeth(left, above[index], index >= pixel ? above[index - pixel] : 0)
                default: throw PDFStreamFailure(reason: "a row has an unknown filter")
                }
            }
            result += row
            above = row
        }
        return result
    }

    private static func paeth(_ left: UInt8, _ above: UInt8, _ aboveLeft: UInt8) -> UInt8 {
        let (a, b, c) = (Int(left), Int(above), Int(aboveLeft))
        let (fromLeft, fromAbove, fromBoth) = (abs(b - c), abs(a - c), abs(a + b - 2 * c))
        if fromLeft <= fromAbove && fromLeft <= fromBoth { return left }
        return fromAbove <= fromBoth ? above : aboveLeft
    }
}
