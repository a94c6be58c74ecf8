import CertificateProviding
import Testing

@testable import PluginProtocol

struct LineReaderTests {
    private let start = ContinuousClock.now

    /// Reads a text in pieces of a size, and returns the lines.
    private func lines(of text: String, inPiecesOf size: Int) throws -> [String] {
        let reader = LineReader(at: start)
        let bytes = Array(text.utf8)
        var lines: [String] = []
        for from in stride(from: 0, to: bytes.count, by: size) {
            try reader.read(bytes[from..<min(from + size, bytes.count)], at: start) { line in
                lines.append(String(decoding: line, as: UTF8.self))
                return false
            }
        }
        return lines
    }

    @Test(arguments: 1...12) func aLineMayComeInAnyPieces(size: Int) throws {
        #expect(try lines(of: "{}\n\n{\"a\":1}\nrest", inPiecesOf: size) == ["{}", "", "{\"a\":1}"])
    }

    @Test(arguments: [false, true]) func aLineIsBoundedBeforeItIsStored(hasEnd: Bool) throws {
        let whole = String(repeating: "x", count: Message.maximumSize)
        #expect(try lines(of: whole + "\n", inPiecesOf: 65536).map(\.count) == [Message.maximumSize])
        let error = #expect(throws: ProviderError.self) {
            try lines(of: whole + "x" + (hasEnd ? "\n" : ""), inPiecesOf: 65536)
        }
        #expect(error?.code == .protocolError && error?.message == "A line is longer than 1048576 bytes.")
    }

    @Test func aFloodWithoutAnAnswerIsBoundedPerMinute() throws {
        let line = [UInt8](repeating: 0x20, count: 1023) + [0x0a]
        func reader(isAnswer: Bool, _ times: [Duration]) throws {
            let reader = LineReader(at: start, maximumUnanswered: 64 << 10)
            for time in times { try reader.read(line[...], at: start + time) { _ in isAnswer } }
        }
        try reader(isAnswer: false, Array(repeating: .zero, count: 64))
        #expect(throws: ProviderError.self) {
            try reader(isAnswer: false, Array(repeating: .zero, count: 65))
        }
        try reader(isAnswer: true, Array(repeating: .zero, count: 130))
        try reader(isAnswer: false, (0..<130).map { .seconds($0) })
    }

    @Test func anErrorEndsTheReading() throws {
        let reader = LineReader(at: start)
        var seen = 0
        #expect(throws: ProviderError.self) {
            try reader.read(Array("a\nb\n".utf8)[...], at: start) { _ throws(ProviderError) in
                seen += 1
                throw ProviderError(.protocolError, "No.")
            }
        }
        #expect(seen == 1)
    }
}
