import Foundation
import Glibc
import TestSupport
import Testing

/// The command and a token whose logins take a while, or end with the process. Each process has the token for itself;
/// what they share is the store.
@Suite struct TokenLoginTests {
    private let sandbox: Sandbox
    private let library: String

    init() throws {
        library = try FaultyModuleLibrary.path()
        sandbox = try Sandbox()
        try sandbox.makeFaultyToken()
        try sandbox.write("9999\n", to: "wrong-pin")
    }

    private func arguments(_ command: String, pin: String? = "pin", module: String? = nil) -> [String] {
        [BuiltCommand.path, command, "--uri", "pkcs11:token=remote", "--set", "module-path=\(module ?? library)"]
            + (pin.map { ["--set", "pin-source=file:\(sandbox.path)/\($0)"] } ?? [])
    }

    private func variables(_ more: [String: String] = [:]) -> [String: String] {
        ["FAULTY_MODULE_TOKEN": sandbox.path + "/home", "FAULTY_MODULE_PINS": sandbox.path + "/pins"].merging(more) {
            $1
        }
    }

    private func run(_ command: String, pin: String? = "pin", _ more: [String: String] = [:]) throws -> Output {
        try sandbox.run(arguments(command, pin: pin), with: variables(more))
    }

    /// The status after a crash of the module: of the command, or of the plugin that has the module.
    private static let crashed: Int32 = BuiltCommand.isPlugged ? 69 : 1

    /// How many PINs the token has looked at.
    private var pins: Int { (try? Data(contentsOf: URL(filePath: sandbox.path + "/pins")).count) ?? 0 }

    /// Whatever makes `fetch` fail without a person.
    @Test func checkSaysWhatFetchWouldFailFor() throws {
        #expect(try run("check").status == 0)
        // No PIN is configured.
        #expect(try run("fetch", pin: nil).status == 77)
        try run("check", pin: nil).expect(77, stdout: "error")
        // Two logins have had no answer.
        try FileManager.default.removeItem(atPath: sandbox.store)
        for _ in 0..<2 {
            try run("fetch", ["FAULTY_MODULE_CRASH": "C_Login"]).expect(Self.crashed)
        }
        try run("check").expect(75, stdout: "got no answer")
        try run("fetch").expect(75, stderr: "The next try is permitted at")
        // The one of the first check, and the two whose answers were lost.
        #expect(pins == 3)
    }

    /// A token that takes half a second for a login, and a PIN of which nothing is known yet; then one that is known.
    @Test func fiftyAtOnceHaveTheirIdentity() throws {
        for round in 1...2 {
            let processes = try (0..<50).map { _ in
                try sandbox.start(arguments("fetch"), with: variables(["FAULTY_MODULE_LOGIN": "500"]))
            }
            let outputs = processes.map { $0.wait() }
            let failed = outputs.filter { $0.status != 0 }
            #expect(failed.isEmpty, "round \(round), \(failed.count): \(failed.first?.description ?? "")")
        }
    }

    @Test func fiftyAtOnceSendAWrongPINOnce() throws {
        let processes = try (0..<50).map { _ in
            try sandbox.start(arguments("fetch", pin: "wrong-pin"), with: variables(["FAULTY_MODULE_LOGIN": "500"]))
        }
        let outputs = processes.map { $0.wait() }
        let others = outputs.filter { $0.status != 77 || !$0.stderr.contains("[pinIncorrect]") }
        #expect(others.isEmpty, "\(others.count): \(others.first?.description ?? "")")
        #expect(pins == 1)
    }

    /// The answer comes within two seconds of the signal, and is known afterwards.
    @Test(arguments: [SIGTERM, SIGINT, SIGHUP]) func aSignalLeavesALoginItsAnswer(signal: Int32) throws {
        let process = try sandbox.start(
            arguments("fetch", pin: "wrong-pin"), with: variables(["FAULTY_MODULE_ANSWER": sandbox.path + "/answer"]))
        while pins == 0, !process.hasEnded { usleep(1000) }
        process.kill(signal)
        // It is told of the signal first.
        usleep(200_000)
        try sandbox.write("", to: "answer")
        let output = process.wait()
        #expect(output.signal == signal, "\(output)")
        try run("fetch", pin: "wrong-pin").expect(77, stderr: "[pinIncorrect]")
        #expect(pins == 1)
    }

    /// It is for a command that is to end at once, and leave its memory in a file where that is wanted.
    @Test func quittingEndsAtOnce() throws {
        let process = try sandbox.start(
            arguments("fetch"), with: variables(["FAULTY_MODULE_ANSWER": sandbox.path + "/never"]))
        while pins == 0, !process.hasEnded { usleep(1000) }
        process.kill(SIGQUIT)
        #expect(process.wait().signal == SIGQUIT)
    }

    /// Nor does the command's own timeout lose it.
    @Test func aTimeoutLeavesALoginItsAnswer() throws {
        try sandbox.run(
            arguments("fetch", pin: "wrong-pin") + ["--set", "timeout=1"],
            with: variables(["FAULTY_MODULE_LOGIN": "1500"])
        ).expect(75)
        try run("fetch", pin: "wrong-pin").expect(77, stderr: "[pinIncorrect]")
        #expect(pins == 1)
    }

    /// A PIN that was accepted, and logins that are not answered since. One that waits for its time has sent nothing.
    @Test(arguments: [SIGTERM, SIGKILL]) func aWaitForTheNextTryIsNoLogin(signal: Int32) throws {
        #expect(try run("fetch").status == 0)
        for _ in 0..<3 {
            try run("fetch", ["FAULTY_MODULE_CRASH": "C_Login"]).expect(Self.crashed)
        }
        let sent = pins
        // The next try is in four seconds; half of the timeout is ten.
        for _ in 0..<2 {
            let waiting = try sandbox.start(arguments("fetch"), with: variables())
            usleep(500_000)
            waiting.kill(signal)
            let end = waiting.wait()
            #expect(end.signal == signal, "\(end)")
        }
        let output = try run("fetch").expect()
        #expect(pins == sent + 1, "\(output)")
    }

    /// OpenSC's module, which writes down what the one behind it is asked for.
    private func spy() throws -> String {
        let found = try sandbox.shell("find /usr/lib -name pkcs11-spy.so | head -1")
        let spy = found.stdout.trimmingCharacters(in: .whitespacesAndNewlines)
        try #require(!spy.isEmpty, "OpenSC's pkcs11-spy is missing")
        return spy
    }

    private var spied: [String: String] { ["PKCS11SPY": library, "PKCS11SPY_OUTPUT": sandbox.path + "/notes"] }

    /// How often the module was asked for a function.
    private func count(_ function: String) throws -> Int {
        let notes = try String(contentsOfFile: sandbox.path + "/notes", encoding: .utf8)
        return notes.split(separator: "\n").count { $0.hasSuffix(": \(function)") }
    }

    @Test(
        "The command closes each session, logs out and finalizes the module",
        arguments: [("list", "pin", 0), ("fetch", "pin", 0), ("check", "pin", 0), ("fetch", "wrong-pin", 77)])
    func whatWasOpenedIsClosed(command: String, pin: String, status: Int32) throws {
        try sandbox.run(arguments(command, pin: pin, module: spy()), with: variables(spied)).expect(status)
        #expect(try count("C_OpenSession") > 0 && count("C_OpenSession") == count("C_CloseSession"))
        #expect(try count("C_Login") == 1 && count("C_Logout") == (status == 0 ? 1 : 0))
        #expect(try count("C_Initialize") == 1 && count("C_Finalize") == 1)
    }

    @Test(
        "For a signature with a configured PIN the token is looked at once, and logged in to once",
        .enabled(if: !BuiltCommand.isPlugged))
    func aSignatureLooksOnce() throws {
        var signing = try arguments("sign", module: spy())
        signing.insert(contentsOf: ["raw", "--out", sandbox.path + "/signature", sandbox.path + "/pin"], at: 2)
        try sandbox.run(signing, with: variables(spied)).expect()
        // Private keys with their public ones, certificates and issuers, and the key once more for the probe.
        #expect(try [count("C_FindObjectsInit"), count("C_Login"), count("C_Sign")] == [6, 1, 2])
    }

    @Test("After a signal the command closes its sessions", arguments: [SIGTERM, SIGINT, SIGHUP])
    func whatIsOpenAtASignalIsClosed(signal: Int32) throws {
        let process = try sandbox.start(
            arguments("fetch", module: spy()), with: variables(spied.merging(["FAULTY_MODULE_LOGIN": "700"]) { $1 }))
        while pins == 0, !process.hasEnded { usleep(1000) }
        process.kill(signal)
        let output = process.wait()
        #expect(output.signal == signal, "\(output)")
        #expect(try count("C_OpenSession") > 0 && count("C_OpenSession") == count("C_CloseSession"))
        #expect(try count("C_Login") == 1 && count("C_Logout") == 1 && count("C_Finalize") == 1)
    }
}
