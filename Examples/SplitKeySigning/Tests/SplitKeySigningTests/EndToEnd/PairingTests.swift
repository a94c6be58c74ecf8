import CertificateProviding
import Foundation
import Glibc
import Subprocess
import Testing

@testable import SplitKeySigning

/// Signatures of this package, verified by the authority's pairing.
@Suite(.enabled(if: Python.program != nil, Python.reason), .timeLimit(.minutes(30)))
struct PairingTests {
    private struct Answer: Decodable {
        let point: String?
        let shares: [String]?
        let isValid: Bool?
        let turned: [String]?
    }

    /// Asks a Python program with JSON lines, and returns its answers.
    private func ask(_ arguments: [String], _ lines: [String]) async throws -> [Answer] {
        let program = try DVSProgram()
        let output = try await program.run(
            ["PYTHONPATH=\(Python.package)", "PYTHONDONTWRITEBYTECODE=1", try #require(Python.program)] + arguments,
            input: Array((lines.joined(separator: "\n") + "\n").utf8))
        #expect(output.status == 0, "\(output)")
        return try output.stdout.split(separator: "\n").map {
            try JSONDecoder().decode(Answer.self, from: Data($0.utf8))
        }
    }

    @Test("100 random keys, PINs and documents verify, wrong PINs do not, and no turned bit does")
    func randomKeys() async throws {
        let count = 100
        let group = try G1Group(.bls12381)
        let factors = try (0..<count).map { _ in try group.randomScalar() }
        let points = try await ask(
            [Python.package + "/pairing-helper"],
            try factors.map { z in
                let inverse = try group.inverse(of: z).bytes(count: 32).withUnsafeBytes { Array($0) }
                return #"{"multiply": "\#(DisplayText.hexadecimal(inverse))"}"#
            }
        ).map { try hex($0.point ?? "") }
        try #require(points.count == count)
        let identities = try (0..<count).map { try MPinID(Array(FakeServers.identity("user-\($0)", "dvs-auth").utf8)) }
        // It has the issuers' secrets.
        let process = try LineProcess(#filePath.replacing("PairingTests.swift", with: "verify.py"))
        var (valid, invalid) = (0, 0)
        for index in 0..<count {
            let identity = identities[index].bytes + points[index]
            let line = try await process.ask(#"{"shares": "\#(DisplayText.hexadecimal(identity))"}"#)
            let shares = try #require(try JSONDecoder().decode(Answer.self, from: line).shares).map {
                try group.point(try hex($0), named: "share")
            }
            let length = Int.random(in: 4...8)
            let digits = (0..<length).map { _ in UInt8.random(in: 0x30...0x39) }
            let pin = try PIN(SecretBytes(copying: digits))
            let a = try SplitKey.point(of: identities[index], points[index], in: group)
            let token = try SplitKeyScheme(group).token(
                try shares[0].plus(shares[1]), blinding: factors[index], pin: try pin.scalar(), identity: a)
            let key = try SplitKey(
                authority: "", identity: identities[index], publicKey: points[index], dtas: "WyJkdGExIl0=",
                token: SecretBytes(copying: try token.bytes()), pinLength: length)
            let digest = (0..<32).map { _ in UInt8.random(in: 0...255) }
            var wrong = digits
            wrong[.random(in: 0..<length)] ^= 1
            for (typed, isRight) in [(digits, true), (wrong, false)] {
                let signed = try key.sign(
                    digest, at: .random(in: 1...UInt32.max), with: try PIN(SecretBytes(copying: typed)))
                let answer = try JSONDecoder().decode(
                    Answer.self,
                    from: try await process.ask(String(decoding: try JSONEncoder().encode(signed), as: UTF8.self)))
                #expect(answer.isValid == isRight && answer.turned == [])
                if answer.isValid == true { valid += 1 } else { invalid += 1 }
            }
        }
        #expect(valid == count && invalid == count)
    }
}

/// A Python program that answers each line with one.
private final class LineProcess: Sendable {
    private let process = Process()
    private let (input, output) = (Pipe(), Pipe())

    init(_ script: String) throws {
        process.executableURL = URL(filePath: try #require(Python.program))
        process.arguments = [script]
        process.environment = [
            "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PYTHONPATH": Python.package, "PYTHONDONTWRITEBYTECODE": "1",
        ]
        process.standardInput = input
        process.standardOutput = output
        try process.run()
    }

    deinit {
        try? input.fileHandleForWriting.close()
        process.waitUntilExit()
    }

    /// Waits for the answer on a thread of its own.
    func ask(_ line: String) async throws -> Data {
        try input.fileHandleForWriting.write(contentsOf: Data((line + "\n").utf8))
        let descriptor = output.fileHandleForReading.fileDescriptor
        return await withCheckedContinuation { continuation in
            Thread.detachNewThread {
                var (answer, byte) = (Data(), UInt8(0))
                while read(descriptor, &byte, 1) == 1, byte != 0x0a { answer.append(byte) }
                continuation.resume(returning: answer)
            }
        }
    }
}
