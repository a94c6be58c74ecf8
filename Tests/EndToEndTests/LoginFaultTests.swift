import Foundation
import Glibc
import TestSupport
import Testing

/// Processes that are killed at random moments, and logins that fail without an answer, on real tokens.
@Suite(.serialized, .timeLimit(.minutes(60))) struct LoginFaultTests {
    private static let rounds = TestLength.rounds(4, soak: 200)
    private static let modules: [TokenHost.Module] = [.softhsm, .tpm]

    /// CKR_HOST_MEMORY, CKR_GENERAL_ERROR, CKR_FUNCTION_FAILED, CKR_DEVICE_ERROR, CKR_DEVICE_REMOVED.
    private static let answers = [0x02, 0x05, 0x06, 0x30, 0x32]

    /// Runs the command and kills it at a random moment, or lets its login fail.
    private func disturb(_ host: TokenHost, _ arguments: [String], _ longest: Duration) throws {
        if Bool.random() {
            let process = try host.start(arguments)
            let microseconds =
                longest.components.attoseconds / 1_000_000_000_000 + longest.components.seconds * 1_000_000
            // Not a wait for anything: where the kill lands is the point.
            usleep(UInt32(Int64.random(in: 0...microseconds)))
            process.kill()
            _ = process.wait()
        } else {
            let answer = try #require(Self.answers.randomElement())
            try host.setFault("\(Bool.random() ? "before" : "after") \(answer)")
            _ = try host.certprov(arguments)
            try host.setFault(nil)
        }
        try host.clearTPM()
        try host.restartDaemon()
    }

    private func duration(_ host: TokenHost, _ arguments: [String]) throws -> Duration {
        let start = ContinuousClock.now
        _ = try host.certprov(arguments)
        return start.duration(to: .now)
    }

    @Test(arguments: modules) func aWrongPINIsSentOnceOrTwice(module: TokenHost.Module) throws {
        try sendWrongPIN(module, rejectedAtMost: module.isTPM ? 2 : 1)
    }

    /// It loses its count now and then.
    @Test(.enabled(if: TokenHost.runsOpencryptoki, TokenHost.whyNoOpencryptoki))
    func aWrongPINIsSentOnceOrTwiceToOpencryptoki() throws { try sendWrongPIN(.opencryptoki, rejectedAtMost: 2) }

    /// A process may be killed before the token has looked at the PIN, which then is sent once more.
    private func sendWrongPIN(_ module: TokenHost.Module, rejectedAtMost maximum: Int) throws {
        let host = try TokenHost(module, behind: .faults)
        let longest = try duration(host, ["list", "--uri", "pkcs11:token=host?module-name=token"])
        for _ in 0..<Self.rounds { try disturb(host, ["fetch"] + host.options(pin: host.wrongPIN), longest) }
        #expect(host.logins.made <= 2 && host.logins.rejected <= maximum)
        // And as often where nothing disturbs.
        for _ in 0..<2 { #expect(try host.certprov(["fetch"] + host.options(pin: host.wrongPIN)).status != 0) }
        #expect(host.logins.made <= 2 && host.logins.rejected <= maximum)
    }

    @Test(arguments: modules) func theRightPINWorksAgainByItself(module: TokenHost.Module) throws {
        try sendRightPIN(module)
    }

    @Test(.enabled(if: TokenHost.runsOpencryptoki, TokenHost.whyNoOpencryptoki))
    func theRightPINWorksAgainByItselfOnOpencryptoki() throws { try sendRightPIN(.opencryptoki) }

    private func sendRightPIN(_ module: TokenHost.Module) throws {
        let host = try TokenHost(module, behind: .faults)
        let arguments = ["list"] + host.options(pin: host.pin)
        let longest = try duration(host, arguments)
        for round in 0..<Self.rounds {
            for _ in 0..<Int.random(in: 1...3) { try disturb(host, arguments, longest) }
            let output = try host.certprov(arguments)
            // SoftHSM loses the whole token when it is killed while it writes the state of the login.
            if module == .softhsm, output.stderr.contains("Present: an uninitialised one") { return }
            #expect(output.status == 0, "round \(round): \(output)")
        }
    }
}
