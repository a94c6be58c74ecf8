import Foundation
import Glibc
import Synchronization
import TestSupport

/// A smart card: a PIV card in a virtual reader, behind pcscd and OpenSC, made by a tool in a folder beside the checkout.
///
/// One for the process, in a network namespace of its own. A shell that waits for the end of this process takes all of it
/// down, however that end comes.
final class Card: Sendable {
    static let pin = "123456"
    static let tries = 8

    private static let tool = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
        .appending(path: "shared/tools/piv-card").path
    private static let socket = "/run/pcscd/pcscd.comm"

    /// OpenSC's PKCS#11 module.
    static let module =
        ["x86_64-linux-gnu", "aarch64-linux-gnu"].map { "/usr/lib/\($0)/opensc-pkcs11.so" }
        .first { FileManager.default.fileExists(atPath: $0) }

    /// Why there is no card here; `nil` where there is one.
    /// Every process of the test program evaluates it, also for other tests: it must not wait.
    static let obstacle: String? = {
        let files = FileManager.default
        guard files.fileExists(atPath: tool + "/up") else {
            return "no folder shared/tools/piv-card is beside the checkout"
        }
        guard geteuid() == 0 else { return "the virtual reader's network namespace takes root" }
        let needed = [
            "vsmartcard-vpcd": "/usr/lib/pcsc/drivers/serial/libifdvpcd.so", "pcscd": "/usr/sbin/pcscd",
            "opensc-pkcs11": module ?? "", "python3-cryptography": "/usr/lib/python3/dist-packages/cryptography",
            "iproute2": "/usr/bin/ip", "opensc": "/usr/bin/pkcs11-tool",
        ]
        let missing = needed.filter { !files.fileExists(atPath: $0.value) }.keys.sorted()
        guard missing.isEmpty else { return "not installed: \(missing.joined(separator: ", "))" }
        return nil
    }()

    /// Whether another service for readers runs, which is waited for.
    static let isTaken: Bool = {
        // Tests that ran before may still be removing their card, the network namespace last.
        _ = wait(seconds: 20) { !isServed && !FileManager.default.fileExists(atPath: "/run/netns/piv-card") }
        return isServed
    }()

    static func shared() throws -> Card { try made.get() }
    private static let made = Result { try Card() }

    struct Failure: Error, CustomStringConvertible { var description: String }

    let path: String
    /// Ends when this process does.
    private let keeper: Subprocess
    private let processes = Mutex<[Subprocess]>([])

    private init() throws {
        if let obstacle = Self.obstacle { throw Failure(description: obstacle) }
        var template = Array("/tmp/certprov-card-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw Failure(description: "mkdtemp: \(errno)") }
        path = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        keeper = try Subprocess([
            "sh", "-c",
            """
            "$1/up" "$2" >&2 </dev/null && result=ready || result=failed
            # This process may have ended by now: nobody reads the result.
            trap '' INT HUP TERM PIPE
            echo $result
            cat >/dev/null
            for file in "$2"/card1.pid "$2"/pcscd.pid; do
                pid=$(cat "$file") && kill "$pid" || continue
                for look in $(seq 50); do kill -0 "$pid" || break; sleep 0.1; done
            done 2>/dev/null
            ip netns del piv-card
            rm -rf "$2"
            """, "sh", Self.tool, path,
        ])
        // The tool does not wait for the card, and the service looks for it a moment later.
        guard keeper.readLine() == "ready", Self.wait(until: { Self.isServed && Self.shows(label) }) else {
            throw Failure(description: "the card does not start")
        }
        try Data((Self.pin + "\n").utf8).write(to: URL(filePath: file("pin")))
        try Data("654321\n".utf8).write(to: URL(filePath: file("wrong-pin")))
        for name in ["pin", "wrong-pin"] { chmod(file(name), 0o600) }
    }

    func file(_ name: String) -> String { path + "/" + name }

    /// OpenSC's name for the token: the subject of the first certificate.
    let label = "holder1-9a"

    /// A key of the card: its PIV slot, and the `CKA_ID` that OpenSC gives it.
    enum Slot: String, CaseIterable, Sendable {
        case authentication = "9a"
        /// Wants the PIN for each signature.
        case signature = "9c"
        case keyManagement = "9d"
        /// Needs no PIN.
        case cardAuthentication = "9e"

        var id: String {
            switch self {
            case .authentication: "01"
            case .signature: "02"
            case .keyManagement: "03"
            case .cardAuthentication: "04"
            }
        }
    }

    func uri(_ slot: Slot) -> String { "pkcs11:token=\(label);id=%\(slot.id)" }
}

// MARK: What happens to it

extension Card {
    /// How many tries of the PIN are left.
    var triesLeft: Int {
        get throws {
            let state = try JSONSerialization.jsonObject(
                with: Data(contentsOf: URL(filePath: file("card1/state.json"))))
            return (state as? [String: Any])?["tries"] as? Int ?? -1
        }
    }

    /// Unlocks the PIN.
    func restoreTries() throws {
        let state = #"{"pin":"\#(Self.pin)","tries":\#(Self.tries),"max":\#(Self.tries)}"#
        try Data(state.utf8).write(to: URL(filePath: file("card1/state.json")), options: .atomic)
    }

    /// Lets the card fail as its tool's page says, for as long as `body` runs.
    func failing<T>(_ fault: String, _ body: () async throws -> T) async throws -> T {
        let control = URL(filePath: file("card1/ctl.json"))
        try Data(fault.utf8).write(to: control, options: .atomic)
        defer { try? FileManager.default.removeItem(at: control) }
        return try await body()
    }

    /// The commands that the card got, in hexadecimal digits.
    var commands: [String] {
        get throws {
            try String(contentsOfFile: file("card1/apdu.log"), encoding: .utf8).split(separator: "\n").compactMap {
                line in
                let words = line.split(separator: " ")
                return words.count > 2 && words[1] == ">" ? String(words[2]) : nil
            }
        }
    }

    /// How many PINs the card was sent.
    var pins: Int { get throws { try commands.count { $0.hasPrefix("0020008008") } } }

    /// Ends the card's process. The service notices that a moment later.
    func takeOut() throws { try end("card1.pid") }

    /// Starts the card's process again.

    func putIn() throws {
        let before = insertions
        try start("card1", ["/usr/bin/python3", Self.tool + "/pivcard.py", "card1", "35963"])
        guard Self.wait(until: { insertions > before }) else { throw Failure(description: "the card does not start") }
    }

    func stopService() throws {
        try end("pcscd.pid")
        guard Self.wait(until: { !Self.isServed }) else { throw Failure(description: "pcscd does not end") }
    }

    func startService() throws {
        let before = insertions
        try start("pcscd", ["pcscd", "-f", "-a"])
        guard Self.wait(until: { Self.isServed && insertions > before }) else {
            throw Failure(description: "pcscd does not start")
        }
    }

    /// Whether OpenSC shows a token.
    private static func shows(_ label: String) -> Bool {
        let list = ["pkcs11-tool", "--module", module ?? "", "--list-token-slots"]
        return (try? Subprocess.run(list)).map { String(decoding: $0, as: UTF8.self).contains(label) } ?? false
    }

    /// How often the card was put in.
    private var insertions: Int {
        let log = (try? String(contentsOfFile: file("card1/apdu.log"), encoding: .utf8)) ?? ""
        return log.split(separator: "\n").count { $0.hasSuffix(" in") }
    }

    private func start(_ name: String, _ command: [String]) throws {
        let script = "echo $$ >\(name).pid; exec ip netns exec piv-card \"$@\" >>\(name).log 2>&1 </dev/null"
        let process = try Subprocess(["sh", "-c", script, "sh"] + command, in: path)
        processes.withLock { $0.append(process) }
    }

    private func end(_ name: String) throws {
        let text = try String(contentsOfFile: file(name), encoding: .utf8)
        guard let pid = pid_t(text.trimmingCharacters(in: .whitespacesAndNewlines)), pid > 1 else {
            throw Failure(description: "no process in \(name)")
        }
        kill(pid, SIGTERM)
    }

    /// Whether a process listens at the service's socket.
    private static var isServed: Bool {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: Array(socket.utf8)) }
        let descriptor = Glibc.socket(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        defer { close(descriptor) }
        return withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size)) == 0
            }
        }
    }

    private static func wait(seconds: Double = 600, until isReached: () -> Bool) -> Bool {
        let end = ContinuousClock.now + .seconds(seconds)
        while !isReached() {
            guard ContinuousClock.now < end else { return false }
            usleep(20_000)
        }
        return true
    }
}
