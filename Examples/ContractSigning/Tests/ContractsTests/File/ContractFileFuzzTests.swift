import CertificateProviding
import Contracts
import Foundation
import Testing

/// Changed files: none crashes the reader, and what it accepts comes out as it came.
@Suite struct ContractFileFuzzTests {
    /// Numbers that are the same in each run (xorshift64*).
    private struct Random: RandomNumberGenerator {
        var state: UInt64

        mutating func next() -> UInt64 {
            state ^= state >> 12
            state ^= state << 25
            state ^= state >> 27
            return state &* 0x2545_f491_4f6c_dd1d
        }
    }

    /// So many rounds, and more until the seconds in `CERTPROV_FUZZ_SECONDS` are over.
    private struct Rounds: Sequence, IteratorProtocol {
        var left: Int
        let end = ProcessInfo.processInfo.environment["CERTPROV_FUZZ_SECONDS"].flatMap(Int.init)
            .map { ContinuousClock.now + .seconds($0) }

        mutating func next() -> Void? {
            left -= 1
            return left >= 0 || end.map { ContinuousClock.now < $0 } == true ? () : nil
        }
    }

    private static let pieces: [String] = [
        "null", "true", "0", "-1", "1e999", "\"\"", "[]", "{}", "[[", "}}", ",", ":", "\"", "\\", "\\u0000", "\\ud83d",
        "\\ud83d\\ude00", "\u{0}", "\u{202e}",
        "data:application/pdf;base64,", "data:;base64,AA==", ";base64,", "=", "==", "%PDF-1.7", "\"mode\":1,",
        "\"mode\":3,", "\"to_fill_by_user\":1,",
        "\"key\":\"firstname\",", "\"options\":[1],", "\"pdf_file_path\"", "9223372036854775808", "\u{feff}", "\u{301}",
        "\u{1f}", "\n", " ",
    ]

    private static func mutate(_ bytes: inout [UInt8], _ random: inout Random) {
        guard !bytes.isEmpty else { return }
        // Most of the file is base64: half of the changes are before it.
        let limit = Bool.random(using: &random) ? bytes.count : min(bytes.count, 900)
        let place = Int.random(in: 0..<limit, using: &random)
        switch Int.random(in: 0..<7, using: &random) {
        case 0: bytes[place] ^= 1 << UInt8.random(in: 0..<8, using: &random)
        case 1: bytes[place] = UInt8.random(in: 0...255, using: &random)
        case 2: bytes.removeSubrange(place..<min(bytes.count, place + Int.random(in: 1...40, using: &random)))
        case 3: bytes.insert(contentsOf: (pieces.randomElement(using: &random) ?? "").utf8, at: place)
        case 4:
            let end = min(bytes.count, place + Int.random(in: 1...200, using: &random))
            bytes.insert(contentsOf: bytes[place..<end], at: Int.random(in: 0...bytes.count, using: &random))
        case 5:
            bytes.replaceSubrange(
                place..<min(bytes.count, place + 4), with: Array((pieces.randomElement(using: &random) ?? "").utf8))
        default: bytes.removeLast(min(bytes.count, Int.random(in: 1...100, using: &random)))
        }
    }

    @Test("changed files are refused, or come out as they came", arguments: 1...4)
    func mutations(seed: UInt64) async throws {
        var random = Random(state: seed &* 0x9e37_79b9_7f4a_7c15)
        let original = try SellSignFixture.complete().bytes
        var (accepted, count) = (0, 0)
        for _ in Rounds(left: 750) {
            count += 1
            var bytes = original
            for _ in 0..<Int.random(in: 1...3, using: &random) { Self.mutate(&bytes, &random) }
            _ = ContractFile.callbacks(of: bytes)
            if try await Self.isAccepted(bytes) { accepted += 1 }
        }
        // Both ends have been reached.
        #expect(accepted > 0 && accepted < count)
    }

    private static func isAccepted(_ bytes: [UInt8]) async throws -> Bool {
        let result = await Result(of: { try await ContractFile.read(bytes) })
        switch result {
        case .success(let file):
            let json = try JSONValue(parsing: bytes)
            #expect(try JSONValue(parsing: json.bytes) == json)
            let original = try file.content.originalFile { file.documents[$0] ?? [] }
            #expect(original == json)
            let content = try ContractContent(JSONValue(parsing: file.content.json.bytes))
            #expect(content == file.content && content.missing == file.content.missing)
            let values = Dictionary(content.missing.map { ($0, "+33612345678") }) { $1 }
            _ = await failure { try content.filling(values) }
            return true
        case .failure(let error):
            let error = try #require(error as? ProviderError)
            #expect([.malformedData, .operationNotAllowed].contains(error.code), "\(error)")
            #expect(
                error.message.unicodeScalars.allSatisfy { $0.value >= 0x20 && $0.value != 0x202e }, "\(error.message)")
            #expect(error.message.utf8.count < 1000)
            return false
        }
    }

    @Test("changed JSON texts are refused, or are written and read with the same values", arguments: 1...4)
    func texts(seed: UInt64) throws {
        var random = Random(state: seed &* 0xd134_2543_de82_ef95)
        let original = Array(
            #"{"a":[1,-2.5e+3,"x\u00e9\ud83d\ude00\n",null,true],"é":{"":{"b":[[],{},""]}},"c":"\\\"\/"}"#.utf8)
        var (accepted, count) = (0, 0)
        for _ in Rounds(left: 5000) {
            count += 1
            var bytes = original
            for _ in 0..<Int.random(in: 1...3, using: &random) { Self.mutate(&bytes, &random) }
            guard let value = try? JSONValue(parsing: bytes) else { continue }
            accepted += 1
            #expect(try JSONValue(parsing: value.bytes) == value)
        }
        #expect(accepted > 0 && accepted < count)
    }
}
