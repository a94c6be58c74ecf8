import Foundation
import Glibc
import TestSupport
import Testing

/// A token of one PKCS#11 module, as `Tests/TokenHosts/token-host` keeps it, and a sandbox for the command that uses it.
/// Both go with this object.
final class TokenHost: Sendable {
    enum Module: String, Sendable {
        case softhsm, nss
        /// SoftHSM in a process of its own, which p11-kit starts and speaks to.
        case remote
        /// tpm2-pkcs11 on a software TPM, straight.
        case tpm
        /// The same through the resource manager tpm2-abrmd.
        case tabrmd
        /// And that in a process of its own.
        case remoteTabrmd = "remote-tabrmd"
        case opencryptoki

        var isTPM: Bool { [.tpm, .tabrmd, .remoteTabrmd].contains(self) }
    }

    /// A module and a type of key that is made with it.
    struct Case: Sendable, CustomTestStringConvertible {
        let module: Module
        let keyType: String
        var testDescription: String { "\(module.rawValue), \(keyType)" }

        /// The modules that every user can run. With plugins each module once: the differences of its types of keys are the
        /// same in a plugin.
        static let all = BuiltCommand.isPlugged ? eachModule : eachModule + furtherTypes
        private static let eachModule = [
            Case(module: .softhsm, keyType: "rsa2048"), Case(module: .nss, keyType: "p256"),
            Case(module: .remote, keyType: "p256"), Case(module: .tpm, keyType: "p256"),
            Case(module: .tabrmd, keyType: "p256"), Case(module: .remoteTabrmd, keyType: "p256"),
        ]
        private static let furtherTypes = [
            Case(module: .softhsm, keyType: "p256"), Case(module: .nss, keyType: "rsa2048"),
            Case(module: .tpm, keyType: "p384"), Case(module: .tpm, keyType: "rsa2048"),
        ]
        /// Its token has no other keys.
        static let opencryptoki = Case(module: .opencryptoki, keyType: "rsa2048")
    }

    /// Whether opencryptoki can have the namespaces that its daemon needs.
    static let runsOpencryptoki =
        geteuid() == 0
        && (try? Subprocess.run(["unshare", "--mount-proc", "--ipc", "--pid", "--fork", "true"])) != nil
    static let whyNoOpencryptoki: Comment =
        "opencryptoki was not run: its daemon belongs to the whole host, and only root can make namespaces for it"

    let sandbox: Sandbox
    private let module: Module
    private let process: Subprocess
    let variables: [String: String]
    /// The command that starts a program.
    let entrance: [String]

    /// The module between the command and the real one.
    enum Between: String { case spy = "--spied", faults = "--faulty" }

    /// - Parameter between: The spy counts ``calls(of:)``, the other obeys ``setFault(_:)``.
    init(_ module: Module, behind between: Between? = nil) throws {
        self.module = module
        sandbox = try Sandbox()
        try #require(mkdir(sandbox.path + "/token", 0o700) == 0)
        let script = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .appending(path: "TokenHosts/token-host").path
        process = try Subprocess(
            [script] + (between.map { [$0.rawValue] } ?? []) + [module.rawValue, sandbox.path + "/token"])
        var (variables, entrance): ([String: String], [String]) = ([:], [])
        var isReady = false
        while !isReady {
            guard let line = process.readLine() else {
                throw Subprocess.Failure(description: "token-host \(module) does not start")
            }
            let words = line.split(separator: " ", maxSplits: 1).map(String.init)
            switch words.first {
            case "variable":
                let parts = words[1].split(separator: "=", maxSplits: 1).map(String.init)
                variables[parts[0]] = parts[1]
            case "enter": entrance = words[1].split(separator: " ").map(String.init)
            default: isReady = line == "ready"
            }
        }
        (self.variables, self.entrance) = (variables, entrance)
    }

    deinit {
        process.closeInput()
        _ = process.wait(seconds: 10)
        process.stop()
    }

    var pin: String { sandbox.path + "/token/pin" }
    var wrongPIN: String { sandbox.path + "/token/wrong-pin" }

    /// The options that name the token.
    func options(pin: String) -> [String] {
        ["--uri", "pkcs11:token=host?module-name=token", "--set", "pin-source=file:\(pin)"]
    }

    /// Runs the command to its end.
    func certprov(_ arguments: [String]) throws -> Output { try certprov(arguments, times: 1)[0] }

    /// Runs the command several times at once.
    func certprov(_ arguments: [String], times: Int) throws -> [Output] {
        let processes = try (0..<times).map { _ in try start(arguments) }
        return processes.map { $0.wait() }
    }

    func start(_ arguments: [String]) throws -> Subprocess {
        try sandbox.start(entrance + [BuiltCommand.path] + arguments, with: variables)
    }

    /// Lets the logins to come fail: `before` they are made, or `after` it, with the number of a return value. Or sets `flags` of
    /// the token besides its own.
    func setFault(_ fault: String?) throws { try sandbox.write(fault ?? "none 0", to: "token/fault") }

    /// How many logins were made, and how many of them the token has answered with a rejection.
    var logins: (made: Int, rejected: Int) {
        let text = try? String(contentsOfFile: sandbox.path + "/token/logins", encoding: .utf8)
        let lines = text?.split(separator: "\n") ?? []
        return (lines.count { $0 == "made" }, lines.count { $0 == "wrong" })
    }

    /// The objects on the token, as another program sees them.
    struct Contents: CustomStringConvertible {
        let lines: [[String]]
        /// Of the token, about its PIN.
        var flags: [String] { Array(lines.first?.dropFirst() ?? []) }
        /// Classes of its objects: private-key, public-key, certificate.
        var kinds: [String] { lines.dropFirst().compactMap(\.first).sorted() }
        var privateKeys: [[String]] { lines.filter { $0.first == "private-key" } }
        var ids: Set<String> { Set(lines.dropFirst().map { $0[1] }) }
        var description: String { lines.map { $0.joined(separator: " ") }.joined(separator: "\n") }
    }

    /// - Parameter logsIn: Whether the objects are wanted, and not the flags alone.
    func contents(logsIn: Bool = true) throws -> Contents {
        try clearTPM()
        let pin = try String(contentsOfFile: pin, encoding: .utf8).trimmingCharacters(in: .newlines)
        let program = sandbox.path + "/token/token-contents"
        let output = try sandbox.run(entrance + [program] + (logsIn ? [pin] : []), with: variables).require()
        return Contents(lines: output.stdout.split(separator: "\n").map { $0.split(separator: " ").map(String.init) })
    }

    /// How often the module was asked for a function.
    func calls(of function: String) throws -> Int {
        try String(contentsOfFile: sandbox.path + "/token/calls", encoding: .utf8).split(separator: "\n").count {
            $0.split(separator: " ").last.map(String.init) == function
        }
    }

    /// The wrong PINs that the TPM counts; `nil` for other tokens.
    func lockoutCounter() throws -> Int? {
        guard let tpm = variables["TPM"] else { return nil }
        let output = try sandbox.run(["tpm2_getcap", "-T", tpm, "properties-variable"])
        let line = output.stdout.split(separator: "\n").first { $0.contains("TPM2_PT_LOCKOUT_COUNTER") }
        let number = try #require(line?.split(separator: "x").last, "\(output)")
        return Int(number, radix: 16)
    }

    /// The keys and sessions that programs have left in a TPM without a resource manager.
    func leftInTPM() throws -> [Substring] {
        guard module == .tpm, let tpm = variables["TPM"] else { return [] }
        return try ["handles-transient", "handles-loaded-session"].flatMap { kind in
            let output = try sandbox.run(["tpm2_getcap", "-T", tpm, kind]).require()
            return output.stdout.split(separator: "\n")
        }
    }

    /// Starts opencryptoki's daemon where it has ended. Version 3.8 ends with a client that is killed while it connects
    /// (SIGPIPE); a host has systemd for that.
    func restartDaemon() throws {
        guard module == .opencryptoki else { return }
        // An answer shows that it has dealt with those that connected before.
        let script = """
            for look in $(seq 100); do
                pkcsconf -t >/dev/null 2>&1 && exit
                kill -0 "$(cat /run/pkcsslotd.pid)" 2>/dev/null || pkcsslotd </dev/null
                sleep 0.05
            done
            exit 1
            """
        try sandbox.run(entrance + ["sh", "-c", script]).require()
    }

    /// Has the TPM forget what processes have left in it that were killed: it has room for three keys and three sessions.
    /// With a resource manager, that does it.
    func clearTPM() throws {
        guard module == .tpm, let tpm = variables["TPM"] else { return }
        for kind in ["--transient-object", "--loaded-session"] {
            try sandbox.run(["tpm2_flushcontext", "-T", tpm, kind]).require()
        }
    }
}
