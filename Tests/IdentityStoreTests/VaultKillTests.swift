import CertificateProviding
import Foundation
import Glibc
import TestSupport
import Testing

@testable import IdentityStore

/// Processes that try passcodes, and are killed while they do.
@Suite(.enabled(if: TestLength.hasSeconds, "it takes seconds"), .timeLimit(.minutes(60))) struct VaultKillTests {
    private let directory: TemporaryDirectory
    private let passcode = SecretBytes(utf8: "correct horse")

    init() throws { directory = try TemporaryDirectory() }

    private func vault(_ maximumAttempts: Int, _ parameters: ScryptParameters = .current) throws -> DataVault {
        var policy = PasscodePolicy()
        policy.maximumAttempts = maximumAttempts
        return try DataVault(
            "app", in: directory["state"], policy: policy, keySource: nil, now: { Date() }, parameters: parameters,
            files: FileSystem())
    }

    private func guess(
        _ passcode: String, _ limit: Int, _ parameters: ScryptParameters = .current
    ) throws -> Subprocess {
        let program = URL(filePath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent()
            .appending(path: "VaultGuesser").path
        return try Subprocess([
            program, directory["state"], "app", passcode, String(limit), String(parameters.logarithmOfCost),
        ])
    }

    private var attempts: Int? {
        let file = try? String(contentsOfFile: directory["state/applications/app/attempts"], encoding: .utf8)
        guard let file else { return 0 }
        return file.split(separator: "\n").dropFirst().first.flatMap { Int($0) }
    }

    /// The passcode is the right one: a kill between the counter and the check counts all the same.
    @Test func aKillGivesNoFurtherAttempt() throws {
        let rounds = TestLength.rounds(15, soak: 1000)
        try vault(rounds).create(passcode: passcode)
        for round in 1...rounds {
            let process = try guess("correct horse", rounds)
            let end = ContinuousClock.now + .seconds(600)
            while attempts != round, .now < end { usleep(200) }
            process.send(SIGKILL)
            #expect(process.wait(seconds: 600) == -SIGKILL)
            #expect(attempts == round)
        }
        #expect(try vault(rounds).attemptsLeft() == 0)
        #expect(try guess("correct horse", rounds).readLine() == "vaultDestroyed")
        #expect(try vault(rounds).state() == .none)
    }

    /// Wherever it is killed, the counter has the attempts that were begun, or the vault is open or gone.
    @Test func killedAtRandomMomentsItCountsRight() throws {
        let rounds = TestLength.rounds(15, soak: 300)
        try vault(0).create(passcode: passcode)
        var last = 0
        for _ in 0..<rounds {
            let process = try guess("wrong horse", 0)
            usleep(.random(in: 0...100_000))
            process.send(SIGKILL)
            _ = process.wait(seconds: 600)
            let now = try #require(attempts)
            #expect(now == last || now == last + 1)
            last = now
        }
        #expect(try guess("correct horse", 0).readLine() == "unlocked")
        #expect(attempts == 0)
    }

    @Test func anAttemptNeedsNoMoreThan64MiB() throws {
        #expect(ScryptParameters.current.isPermitted && ScryptParameters.current.memory == 32 << 20)
        try vault(10).create(passcode: passcode)
        let process = try guess("correct horse", 10)
        #expect(process.readLine() == "unlocked")
        let growth = try #require(process.readLine().flatMap { Int($0) })
        #expect(32 << 10 <= growth && growth < 64 << 10, "\(growth) KiB")
    }

    /// With cheap parameters, so that they are not one after the other just because each takes long.
    @Test func attemptsOfManyProcessesAtOnceEachCount() throws {
        let cheap = ScryptParameters(logarithmOfCost: 4, blockSize: 8, parallelism: 1)
        try vault(20, cheap).create(passcode: passcode)
        let wrong = try (0..<16).map { _ in try guess("wrong horse", 20, cheap) }
        #expect(wrong.map { $0.readLine() } == Array(repeating: "wrongPassword", count: 16))
        #expect(attempts == 16)
        // The right passcode in all of them destroys nothing, however many there are.
        let right = try (0..<16).map { _ in try guess("correct horse", 20, cheap) }
        #expect(right.map { $0.readLine() } == Array(repeating: "unlocked", count: 16))
        #expect(attempts == 0)
        // The limit holds for all together.
        let last = try (0..<24).map { _ in try guess("wrong horse", 20, cheap) }.map { $0.readLine() ?? "" }
        let counts = Dictionary(grouping: last) { $0 }.mapValues(\.count)
        #expect(counts == ["wrongPassword": 19, "vaultDestroyed": 1, "notFound": 4])
        #expect(try vault(20).state() == .none)
    }
}
