import CertificateProviding
import Glibc

/// Cuts what the other side sends into lines, within bounds. A line may have secrets, so it is wiped after its use.
final class LineReader {
    /// Lines up to this size, in bytes, are never moved in memory.
    private static let usualSize = 64 << 10

    private var line: [UInt8]
    /// The bytes that have come since the last answer, in the minute that began then.
    private var unanswered = 0
    private var minute: ContinuousClock.Instant
    /// The greatest number of bytes that the other side may send within a minute without answering a request.
    private let maximumUnanswered: Int

    init(at now: ContinuousClock.Instant, maximumUnanswered: Int = 64 << 20) {
        (minute, self.maximumUnanswered, line) = (now, maximumUnanswered, Self.emptyLine())
    }

    deinit { line.wipe() }

    /// How many bytes have come of a line whose end has not.
    var unfinished: Int { line.count }

    /// Reads bytes in the order in which they come.
    ///
    /// - Parameter body: Gets each complete line, without its end. Returns whether it answers a request.
    /// - Throws: `protocolError` for a line that is too long and for too many bytes without an answer, or what `body` throws.
    ///   There is nothing to read after that.
    func read(
        _ bytes: ArraySlice<UInt8>, at now: ContinuousClock.Instant,
        _ body: ([UInt8]) throws(ProviderError) -> Bool
    ) throws(ProviderError) {
        if now - minute > .seconds(60) { (minute, unanswered) = (now, 0) }
        unanswered += bytes.count
        guard unanswered <= maximumUnanswered else {
            throw ProviderError(
                .protocolError,
                "It sends more than \(maximumUnanswered >> 20) MiB within a minute without an answer.")
        }
        var rest = bytes
        while let end = rest.firstIndex(of: 0x0a) {
            try add(rest[..<end])
            rest = rest[(end + 1)...]
            if try body(line) { unanswered = 0 }
            line.wipe()
            if line.count > Self.usualSize { line = Self.emptyLine() } else { line.removeAll(keepingCapacity: true) }
        }
        try add(rest)
    }

    private static func emptyLine() -> [UInt8] {
        var line: [UInt8] = []
        line.reserveCapacity(usualSize)
        return line
    }

    private func add(_ bytes: ArraySlice<UInt8>) throws(ProviderError) {
        guard line.count + bytes.count <= Message.maximumSize else {
            throw ProviderError(
                .protocolError, "A line is longer than \(Message.maximumSize) bytes.")
        }
        line += bytes
    }
}

extension [UInt8] {
    /// Overwrites the bytes, or the first ones, in place.
    mutating func wipe(first count: Int = .max) {
        withUnsafeMutableBytes { if let base = $0.baseAddress { explicit_bzero(base, Swift.min(count, $0.count)) } }
    }
}
