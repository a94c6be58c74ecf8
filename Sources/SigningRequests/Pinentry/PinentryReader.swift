package import CertificateProviding
import Glibc

/// The answer of a pinentry to one command.
package enum PinentryAnswer: Sendable, Equatable {
    /// `OK`, with the bytes of the `D` lines before it.
    case ok(SecretBytes)
    /// `ERR`, with the code as libgpg-error has it: source and reason in one number.
    case error(PinentryError)
}

/// A code of libgpg-error.
package struct PinentryError: RawRepresentable, Sendable, Equatable {
    package let rawValue: UInt32
    package init(rawValue: UInt32) { self.rawValue = rawValue }

    /// The reason, without the part of GnuPG that gives it: the lower 16 bits.
    private var reason: UInt32 { rawValue & 0xffff }

    /// The person has pressed the button that declines, or has closed the window (`CANCELED`, `FULLY_CANCELED`).
    package var isRefusal: Bool { [99, 198].contains(reason) }
    /// The time of `SETTIMEOUT` is up (`TIMEOUT`).
    package var isTimeout: Bool { reason == 62 }
    /// The person has pressed the third button, which neither approves nor closes (`NOT_CONFIRMED`).
    package var isThirdButton: Bool { reason == 114 }
    /// There is no terminal, mostly: the operating system has refused something, which libgpg-error marks with this bit.
    package var isWithoutScreen: Bool { reason & 0x8000 != 0 }
}

/// Reads the answers of a pinentry: lines of the Assuan protocol. Pure: it gets bytes as they come.
///
/// The bytes of a secret are in memory that is wiped, and leave it as `SecretBytes` only.
package final class PinentryReader {
    /// Of a line, with its end: what Assuan permits.
    package static let maximumLine = 1002
    /// Lines to one command, and bytes of data: far more than any prompt has.
    package static let maximumLines = 64
    package static let maximumData = 4096

    /// Why an answer cannot be used. Not even a part of it counts then.
    package struct Malformed: Error, Equatable {
        package var reason: String
    }

    private let line: UnsafeMutableRawBufferPointer
    private var lineCount = 0
    private let data: UnsafeMutableRawBufferPointer
    private var dataCount = 0
    private var lines = 0

    package init() {
        line = .allocate(byteCount: Self.maximumLine, alignment: 1)
        data = .allocate(byteCount: Self.maximumData, alignment: 1)
    }

    deinit {
        for buffer in [line, data] {
            if let base = buffer.baseAddress { explicit_bzero(base, buffer.count) }
            buffer.deallocate()
        }
    }

    /// Reads bytes that have come. The caller wipes them.
    ///
    /// - Returns: The answer if they end it; `nil` if more must come.
    /// - Throws: ``Malformed`` for bytes that are not of this protocol, and for bytes after the answer: nothing may follow it unasked.
    package func read(_ bytes: UnsafeRawBufferPointer) throws(Malformed) -> PinentryAnswer? {
        for (index, byte) in bytes.enumerated() {
            guard lineCount < line.count else { throw Malformed(reason: "its answer has a line that is too long") }
            line[lineCount] = byte
            lineCount += 1
            guard byte == 0x0a else { continue }
            let answer = try readLine()
            if let answer {
                guard index + 1 == bytes.count else { throw Malformed(reason: "it answers before it is asked") }
                return answer
            }
        }
        return nil
    }

    /// Reads the line that is complete.
    private func readLine() throws(Malformed) -> PinentryAnswer? {
        lines += 1
        guard lines <= Self.maximumLines else { throw Malformed(reason: "its answer has too many lines") }
        let count = lineCount - 1
        lineCount = 0
        let content = UnsafeRawBufferPointer(rebasing: line[..<count])
        let word = content.prefix { $0 != 0x20 }
        let rest = UnsafeRawBufferPointer(rebasing: content[min(word.endIndex + 1, count)...])
        switch String(decoding: word, as: UTF8.self) {
        // Comments, and remarks such as the button that was pressed.
        case "", "S": return nil
        case let word where word.hasPrefix("#"): return nil
        case "OK": return finish(.ok(SecretBytes(copying: data[..<dataCount])))
        case "ERR":
            let digits = rest.prefix { $0 != 0x20 }
            guard !digits.isEmpty, digits.allSatisfy({ (0x30...0x39).contains($0) }),
                let code = UInt32(String(decoding: digits, as: UTF8.self))
            else { throw Malformed(reason: "its error has no code") }
            return finish(.error(PinentryError(rawValue: code)))
        case "D":
            try append(rest)
            return nil
        default: throw Malformed(reason: "its answer is not one of the pinentry protocol")
        }
    }

    /// Prepares for the next answer.
    private func finish(_ answer: PinentryAnswer) -> PinentryAnswer {
        if let base = data.baseAddress { explicit_bzero(base, data.count) }
        if let base = line.baseAddress { explicit_bzero(base, line.count) }
        (dataCount, lines) = (0, 0)
        return answer
    }

    private func append(_ escaped: UnsafeRawBufferPointer) throws(Malformed) {
        var rest = escaped[...]
        while let byte = rest.popFirst() {
            var value = byte
            if byte == UInt8(ascii: "%") {
                guard let high = rest.popFirst()?.hexadecimalValue, let low = rest.popFirst()?.hexadecimalValue
                else { throw Malformed(reason: "its data has a % without two hexadecimal digits") }
                value = high << 4 | low
            }
            guard dataCount < data.count else { throw Malformed(reason: "its data is too long") }
            data[dataCount] = value
            dataCount += 1
        }
    }
}
