import CertificateProviding
import SigningRequests
import TestSupport
import Testing

@Suite struct PinentryReaderTests {
    /// Lines of a program, and what they are.
    struct Case: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var text: String
        var answer: PinentryAnswer?
        var reason: String?

        init(_ name: String, _ text: String, _ answer: PinentryAnswer? = nil, reason: String? = nil) {
            (testDescription, self.text, self.answer, self.reason) = (name, text, answer, reason)
        }
    }

    private static func ok(_ data: String = "") -> PinentryAnswer { .ok(SecretBytes(utf8: data)) }

    static let cases = [
        Case("OK", "OK\n", ok()), Case("OK with words", "OK Pleased to meet you\n", ok()),
        Case("a remark before", "S BUTTON_INFO close\n# comment\n\nOK\n", ok()),
        Case("data", "D 1234\nOK\n", ok("1234")), Case("data in parts", "D 12\nD 34\nOK\n", ok("1234")),
        Case("escaped data", "D 12%254%0a%C3%a4\nOK\n", ok("12%4\n\u{e4}")),
        Case("data without a space", "D\nOK\n", ok()), Case("spaces are data", "D  1 \nOK\n", ok(" 1 ")),
        Case("an error", "ERR 83886179 Operation cancelled <Pinentry>\n", .error(.init(rawValue: 83_886_179))),
        Case("an error without words", "ERR 4294967295\n", .error(.init(rawValue: .max))),
        Case("data before an error", "D 1234\nERR 99\n", .error(.init(rawValue: 99))),
        Case("no end", "OK"), Case("no answer", "S x\nD 1\n"),
        Case("another word", "YES\n", reason: "pinentry protocol"), Case("lower case", "ok\n", reason: "protocol"),
        Case("a longer word", "OKAY\n", reason: "protocol"), Case("a NUL", "OK\0\n", reason: "protocol"),
        Case("CR LF", "OK\r\n", reason: "protocol"), Case("a question", "INQUIRE QUALITY x\n", reason: "protocol"),
        Case("an error without a code", "ERR\n", reason: "no code"),
        Case("an error with a word", "ERR x\n", reason: "no code"),
        Case("a negative code", "ERR -1\n", reason: "no code"),
        Case("a code that is too large", "ERR 4294967296\n", reason: "no code"),
        Case("a lone %", "D 1%\nOK\n", reason: "hexadecimal"),
        Case("half an escape", "D %4\nOK\n", reason: "hexadecimal"),
        Case("no escape", "D %zz\nOK\n", reason: "hexadecimal"),
        Case("a second answer", "OK\nOK\n", reason: "before it is asked"),
        Case("the beginning of a second answer", "OK\nO", reason: "before it is asked"),
        Case("the longest line", "# " + String(repeating: "x", count: 999) + "\nOK\n", ok()),
        Case("a longer line", "# " + String(repeating: "x", count: 1000) + "\nOK\n", reason: "line that is too long"),
        Case("a line without end", String(repeating: "x", count: 5000), reason: "line that is too long"),
        Case("as many lines as can be", String(repeating: "S x\n", count: 63) + "OK\n", ok()),
        Case("more lines", String(repeating: "S x\n", count: 64) + "OK\n", reason: "too many lines"),
        Case(
            "more data", String(repeating: "D \(String(repeating: "x", count: 900))\n", count: 5) + "OK\n",
            reason: "data is too long"),
    ]

    /// In one piece, and byte by byte.
    @Test(arguments: cases, [Int.max, 1]) func reads(example: Case, piece: Int) {
        let reader = PinentryReader()
        var answer: PinentryAnswer?
        var reason: String?
        var rest = Array(example.text.utf8)[...]
        while !rest.isEmpty, answer == nil, reason == nil {
            let bytes = Array(rest.prefix(piece))
            rest = rest.dropFirst(piece)
            do throws(PinentryReader.Malformed) {
                answer = try reader.read(bytes)
            } catch { reason = error.reason }
        }
        // In pieces, what follows the answer has not come: the next command finds it.
        if piece == 1, example.reason?.contains("before it is asked") == true {
            #expect(answer == Self.ok() && !rest.isEmpty)
        } else {
            #expect(answer == example.answer)
            #expect(reason.map { $0.contains(example.reason ?? "?") } ?? (example.reason == nil), "\(reason ?? "")")
        }
    }

    @Test("The data of one answer is not that of the next") func forgets() throws {
        let reader = PinentryReader()
        func read(_ text: String) throws -> PinentryAnswer? {
            try reader.read(Array(text.utf8))
        }
        #expect(try read("D 1\nOK\n") == Self.ok("1"))
        #expect(try read("D 1\nERR 99\n") == .error(.init(rawValue: 99)))
        #expect(try read("OK\n") == Self.ok())
    }

    /// The codes of GnuPG 2.2 and of the pinentries of Debian, and the same reasons from another part of it.
    @Test(
        arguments: [
            (83_886_179, "refusal"), (99, "refusal"), (83_886_194, "third"), (83_886_278, "refusal"),
            (83_886_142, "timeout"), (62, "timeout"), (83_918_950, "system"), (83_918_929, "system"), (83_886_355, ""),
            (0, ""),
        ] as [(UInt32, String)])
    func codes(code: UInt32, kind: String) {
        let error = PinentryError(rawValue: code)
        #expect(
            error.isRefusal == (kind == "refusal") && error.isTimeout == (kind == "timeout")
                && error.isWithoutScreen == (kind == "system") && error.isThirdButton == (kind == "third"))
    }
}

extension PinentryReader {
    fileprivate func read(_ bytes: [UInt8]) throws(Malformed) -> PinentryAnswer? {
        try bytes.withUnsafeBytes { bytes in Result { () throws(Malformed) in try read(bytes) } }.get()
    }
}

@Suite struct PinentryFuzzTests {
    /// Damaged answers, in pieces of any size: no trap, no answer without a whole line, and never more data than there can be.
    @Test func answers() {
        let seeds = PinentryReaderTests.cases.map { Array($0.text.utf8) }
        var mutator = Mutator(seeds: seeds, seed: 4211)
        var rounds = FuzzRounds(atLeast: 100_000)
        var (answered, refused) = (0, 0)
        while rounds.next() {
            let reader = PinentryReader()
            var rest = mutator.next()[...]
            var seen: [UInt8] = []
            do throws(PinentryReader.Malformed) {
                while !rest.isEmpty {
                    let piece = Array(rest.prefix(.random(in: 1...64, using: &mutator.generator)))
                    rest = rest.dropFirst(piece.count)
                    seen += piece
                    let answer = try reader.read(piece)
                    guard let answer else { continue }
                    answered += 1
                    let last = seen.dropLast().split(separator: 0x0a).last ?? []
                    #expect(seen.last == 0x0a)
                    switch answer {
                    case .ok(let data):
                        #expect(last.starts(with: "OK".utf8) && data.count <= PinentryReader.maximumData)
                    case .error: #expect(last.starts(with: "ERR ".utf8))
                    }
                    break
                }
            } catch { refused += 1 }
        }
        #expect(answered > 0 && refused > 0)
    }

    /// A sent text stays one line, within the limit, and is the text when it is decoded.
    @Test func texts() {
        var mutator = Mutator(
            seeds: ["A plain line", "100 %\r\n\u{1b}[2J", "äöü€𝄞\u{301}", String(repeating: "%ä", count: 500)].map {
                Array($0.utf8)
            }, seed: 4212)
        var rounds = FuzzRounds(atLeast: 50_000)
        while rounds.next() {
            let text = String(decoding: mutator.next(), as: UTF8.self)
            let escaped = PinentryText.escaped(text)
            #expect(escaped.utf8.count <= PinentryText.maximum)
            #expect(escaped.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7f })
            let isCut = PinentryText.count(text) > PinentryText.maximum
            let decoded = decoded(escaped)
            if isCut {
                #expect(
                    decoded?.hasSuffix("…") == true
                        && text.unicodeScalars.starts(with: decoded?.unicodeScalars.dropLast() ?? []))
            } else {
                #expect(decoded == text)
            }
        }
    }

    /// Decodes a text as a pinentry does; `nil` for one that is broken.
    private func decoded(_ text: String) -> String? {
        var bytes: [UInt8] = []
        var rest = Array(text.utf8)[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            guard let value = UInt8(String(decoding: rest.prefix(2), as: UTF8.self), radix: 16), rest.count >= 2 else {
                return nil
            }
            bytes.append(value)
            rest = rest.dropFirst(2)
        }
        return String(validating: bytes, as: UTF8.self)
    }
}
