import CertificateProviding
import TestSupport
import Testing

@testable import HostService

/// Messages that a caller has damaged: each gets an answer, and no more memory than its bounds.
@Suite(.enabled(if: TestLength.hasSeconds), .timeLimit(.minutes(60))) struct PKCS11FuzzTests {
    private let host: TestHost

    init() throws {
        let authority = try TestAuthority()
        host = TestHost([
            .init("rsa", try authority.issue("rsa", kind: .rsa2048)), .init("web", try authority.issue("web")),
        ])
    }

    /// The calls of p11tool and of a TLS server, and all others.
    private func run(_ dialogue: TokenDialogue) async throws {
        try await dialogue.begin()
        _ = try await dialogue.call(.getInfo)
        _ = try await dialogue.call(.getSlotList) { writer in
            writer.write(byte: 1)
            writer.write32(48)
        }
        for function in [RPCFunction.getSlotInfo, .getTokenInfo] {
            _ = try await dialogue.call(function) { $0.write(0) }
        }
        _ = try await dialogue.call(.getMechanismList) { writer in
            writer.write(0)
            writer.write32(10)
        }
        _ = try await dialogue.call(.getMechanismInfo) { writer in
            writer.write(0)
            writer.write(TokenMechanism.ecdsa.rawValue)
        }
        _ = try await dialogue.call(.getSessionInfo) { $0.write(dialogue.session) }
        let web = try await dialogue.find(.privateKey, "web")[0], rsa = try await dialogue.find(.privateKey, "rsa")[0]
        _ = try await dialogue.attributes(web, [.objectClass, .id, .sign, .ecPoint, .startDate])
        let digest = DigestAlgorithm.sha256.digest(of: [1])
        try await dialogue.signInit(TokenMechanism.ecdsa.rawValue, web)
        _ = try await dialogue.sign(digest)
        let parameters = [0x250, 2, 32].flatMap { number in (0..<8).map { UInt8(number >> (56 - 8 * $0) & 0xff) } }
        try await dialogue.signInit(TokenMechanism.rsaPSS.rawValue, rsa, parameters)
        try await dialogue.signUpdate(digest)
        _ = try await dialogue.sign(nil)
        for function in [RPCFunction.login, .generateRandom, .logout, .waitForSlotEvent] {
            do {
                _ = try await dialogue.call(function) { writer in
                    writer.write(dialogue.session)
                    if function == .login { writer.write(1) }
                    if function == .login { writer.write([0x31], room: .max) }
                    if function == .generateRandom { writer.write32(8) }
                }
            } catch is ReturnCode {}
        }
        _ = try await dialogue.call(.closeSession) { $0.write(dialogue.session) }
        _ = try await dialogue.call(.closeAllSessions) { $0.write(0) }
        _ = try await dialogue.call(.finalize)
    }

    @Test(
        "Each message of a dialogue, with each byte changed, cut at each place, and with more bytes, gets an answer within its bounds"
    )
    func everyMutation() async throws {
        let recorded = TokenDialogue(host.connection())
        try await run(recorded)
        try #require(recorded.messages.count > 25)
        for (number, message) in recorded.messages.enumerated() {
            var changes: [([UInt8]) -> [UInt8]] = [
                { $0 + [0] }, { $0 + Array(repeating: 0xff, count: RPCFrame.largest - $0.count) },
            ]
            for place in message.indices {
                changes.append { Array($0.prefix(place)) }
                for bits in [0x01, 0x80, 0xff] as [UInt8] {
                    changes.append { message in
                        // Handles differ from one connection to the next, and not the sizes.
                        var message = message
                        message[place] ^= bits
                        return message
                    }
                }
            }
            for change in changes {
                let dialogue = TokenDialogue(host.connection())
                dialogue.change = (number, change)
                // Other tests want the pool's threads, too.
                await Task.yield()
                await #expect(throws: TokenDialogue.Ended.self) { try await run(dialogue) }
            }
        }
    }

    @Test("Frames and messages that are damaged at random, many on one connection")
    func fuzz() async throws {
        let recorded = TokenDialogue(host.connection())
        try await run(recorded)
        let frames = recorded.messages.enumerated().map { RPCFrame(number: UInt32($0), body: $1).bytes }
        var mutator = Mutator(seeds: frames, seed: 60)
        var rounds = FuzzRounds(atLeast: 2000)
        while rounds.next() {
            let connection = host.connection()
            // Calls that come before the session would all be refused.
            for message in recorded.messages.prefix(2) { _ = await connection.answer(message) }
            var received: [UInt8] = []
            for _ in 0..<8 { received += mutator.next() }
            do {
                while let frame = try RPCFrame.take(from: &received) {
                    try #require(frame.body.count <= RPCFrame.largest)
                    if let answer = await connection.answer(frame.body) { try #require(answer.count <= 1 << 17) }
                }
            } catch is RPCFrame.TooLarge {}
        }
    }
}
