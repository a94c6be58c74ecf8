import Foundation
import Glibc
import Synchronization
import TestSupport
import Testing

@testable import HostSockets

/// Real processes, with and without the kernel's binding of a process to its connection. Callers of other users need root.
@Suite(.enabled(if: geteuid() == 0)) struct CallerTests {
    private let directory: TemporaryDirectory
    private let socket: ListeningSocket

    init() throws {
        directory = try TemporaryDirectory()
        try #require(chmod(directory.path, 0o755) == 0)
        socket = try ListeningSocket(at: directory["a.sock"], setting: "--socket", mode: 0o666)
    }

    private static func python(_ entrance: [String] = [], _ arguments: String...) throws -> Subprocess {
        let script = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "caller.py").path
        let process = try Subprocess(entrance + ["/usr/bin/python3", script] + arguments)
        try #require(process.readLine() == "up")
        return process
    }

    /// A connection that was taken, and its process.
    private final class Connection {
        let process: Subprocess
        let peer: SocketPeer
        private let descriptor: Int32

        init(_ process: Subprocess, at socket: ListeningSocket, bindsProcess: Bool) throws {
            self.process = process
            descriptor = accept(socket.descriptor, nil, nil)
            peer = try #require(SocketPeer(of: descriptor, bindsProcess: bindsProcess))
        }

        deinit { close(descriptor) }

        var caller: Caller { Caller(peer) }

        /// Why the caller does not have a grant with these selectors.
        func refusal(_ selectors: Selector...) -> String? { refusal(selectors) }
        func refusal(_ selectors: [Selector]) -> String? {
            Grants([.init(name: "grant", Set(selectors), text: "")]).refusal(of: caller)
        }

        /// Has the process run a statement.
        func run(_ statement: String) throws {
            try #require(process.writeLine(statement))
            try #require(process.readLine() == "done", "\(statement)")
        }

        /// Kills the process, which is not reaped.
        func kill() throws {
            Glibc.kill(process.pid, SIGKILL)
            while try !String(contentsOfFile: "/proc/\(process.pid)/stat", encoding: .utf8).contains(") Z ") {
                usleep(1000)
            }
        }
    }

    private func connect(_ entrance: [String] = [], bindsProcess: Bool) throws -> Connection {
        try Connection(
            Self.python(entrance, "connect", directory["a.sock"]), at: socket, bindsProcess: bindsProcess)
    }

    private static let root = ["setpriv", "--regid=0", "--groups=7,8"]
    private static let other = ["setpriv", "--reuid=12345", "--regid=12346", "--groups=7,8"]

    @Test("A caller is known by its user and groups", arguments: [true, false])
    func userAndGroups(bindsProcess: Bool) throws {
        let connection = try connect(Self.other, bindsProcess: bindsProcess)
        #expect(connection.caller.user == 12345 && connection.caller.groups == [12346, 7, 8])
        for selector: Selector in [.user(12345), .group(12346), .group(7)] {
            #expect(connection.refusal(selector) == nil)
        }
        for selector: Selector in [.user(0), .group(9), .unit("a.service"), .cgroup("/a")] {
            #expect(connection.refusal(selector) != nil)
            #expect(connection.refusal(.user(12345), selector) != nil)
        }
        #expect(connection.refusal() != nil && Grants().refusal(of: connection.caller) != nil)
    }

    struct Change: CustomTestStringConvertible {
        var testDescription: String
        var entrance: [String]
        var statement: String
        /// The selectors that match it before and after, before only, and after only.
        var lasting: [Selector], lost: [Selector], new: [Selector]

        static let all = [
            Change(
                testDescription: "another user", entrance: root, statement: "os.setuid(12345)",
                lasting: [.group(0), .group(7)], lost: [.user(0)], new: [.user(12345)]),
            Change(
                testDescription: "another effective user", entrance: root, statement: "os.seteuid(12345)",
                lasting: [.group(0), .group(7)], lost: [.user(0)], new: [.user(12345)]),
            Change(
                testDescription: "another group", entrance: root, statement: "os.setgid(9)",
                lasting: [.user(0), .group(7)], lost: [.group(0)], new: [.group(9)]),
            Change(
                testDescription: "other supplementary groups", entrance: root, statement: "os.setgroups([7, 9])",
                lasting: [.user(0), .group(0), .group(7)], lost: [.group(8)], new: [.group(9)]),
            Change(
                testDescription: "another program", entrance: other,
                statement: "os.execv('/bin/cat', ['cat', 'DONE', '-'])",
                lasting: [.user(12345), .group(12346), .group(7)], lost: [], new: []),
            Change(
                testDescription: "a program with the right of another user", entrance: other,
                statement: "os.execv('DIRECTORY/cat', ['cat', 'DONE', '-'])",
                lasting: [.group(12346), .group(7)], lost: [.user(12345)], new: [.user(0)]),
            Change(
                testDescription: "another user namespace", entrance: root, statement: "libc.unshare(0x10000000)",
                lasting: [], lost: [.user(0), .group(7)], new: []),
        ]
    }

    @Test(
        "What a process loses after it has connected does not count, nor does what it wins", arguments: Change.all,
        [true, false])
    func changes(_ change: Change, bindsProcess: Bool) throws {
        let done = try directory.write("done\n".utf8, to: "done", mode: 0o644)
        try Subprocess.run(["install", "-m", "4755", "/bin/cat", directory["cat"]])
        let connection = try connect(change.entrance, bindsProcess: bindsProcess)
        for selector in change.lasting + change.lost { #expect(connection.refusal(selector) == nil, "\(selector)") }
        for selector in change.new { #expect(connection.refusal(selector) != nil, "\(selector)") }
        try connection.run(
            change.statement.replacing("DIRECTORY", with: directory.path).replacing("DONE", with: done))
        for selector in change.lasting { #expect(connection.refusal(selector) == nil, "\(selector)") }
        for selector in change.lost + change.new { #expect(connection.refusal(selector) != nil, "\(selector)") }
    }

    enum End: CaseIterable { case notReaped, reaped, childIsLeft, otherUserIsLeft, traced }

    @Test(
        "A process that has ended has nothing, even if another one holds its connection", arguments: End.allCases,
        [true, false])
    func ends(_ end: End, bindsProcess: Bool) throws {
        let connection = try connect(Self.root, bindsProcess: bindsProcess)
        var tracer: Subprocess?
        switch end {
        case .notReaped, .reaped: break
        case .childIsLeft: try connection.run("os.fork() and os._exit(0)")
        case .otherUserIsLeft: try connection.run("hand_over(12345)")
        case .traced: tracer = try Self.python([], "tracer", "\(connection.process.pid)")
        }
        // Those that hold it do not count while its process runs.
        if end != .childIsLeft { #expect(connection.refusal(.user(0)) == nil) }
        #expect(connection.refusal(.user(12345)) != nil)
        if end != .childIsLeft { try connection.kill() }
        if ![.notReaped, .traced].contains(end) { #expect(connection.process.wait(seconds: 600) != nil) }
        for selector: Selector in [.user(0), .group(7), .user(12345)] {
            #expect(connection.refusal(selector)?.contains("the process has ended") == true)
        }
        tracer?.stop()
    }

    @Test(
        "A process with the number of one that has ended is not that one", arguments: [12345, 12347] as [uid_t],
        [(true, true), (true, false), (false, true), (false, false)])
    func successor(user: uid_t, _ way: (bindsProcess: Bool, wasTaken: Bool)) throws {
        let process = try Self.python(Self.other, "connect", directory["a.sock"])
        func take() throws -> Connection { try Connection(process, at: socket, bindsProcess: way.bindsProcess) }
        let taken = way.wasTaken ? try take() : nil
        if let taken { #expect(taken.refusal(.user(12345)) == nil) }
        process.stop()
        let successor = try Self.python([], "successor", "\(process.pid)", "\(user)")
        #expect(Caller(process: process.pid)?.user == user)
        let connection = try taken ?? take()
        // An older kernel does not say whether a process has ended before its connection is taken. The next one has what it has itself.
        let isSame = !way.bindsProcess && !way.wasTaken
        for selector: Selector in [.user(12345), .user(12347)] {
            #expect((connection.refusal(selector) == nil) == (isSame && selector == .user(user) && user == 12345))
        }
        #expect((connection.refusal(.group(7)) == nil) == isSame)
        successor.stop()
    }

    @Test(
        "A grant by user does not match a process in another namespace", arguments: ["--pid", "--user"], [true, false])
    func anotherNamespace(kind: String, bindsProcess: Bool) throws {
        let connection = try connect(["unshare", kind, "--fork"], bindsProcess: bindsProcess)
        #expect(connection.refusal(.user(connection.peer.user))?.contains("another") == true)
        #expect(connection.refusal(.group(getegid()))?.contains("another") == true)
    }

    /// A directory in which control groups of version 2 can be made.
    private static let controlGroups = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].first {
        access($0 + "/cgroup.procs", W_OK) == 0
    }

    @Test(
        "A grant by unit matches a process while it is in the unit, and only where the kernel binds it to the connection",
        .enabled(if: controlGroups != nil), arguments: [true, false])
    func unit(bindsProcess: Bool) throws {
        let root = try #require(Self.controlGroups)
        let slice = "/certproved-\(getpid())-\(bindsProcess).slice"
        let unit = "\(slice)/web.service"
        for path in [slice, unit] { try #require(mkdir(root + path, 0o755) == 0) }
        defer { for path in [unit, slice] { rmdir(root + path) } }
        let entrance = ["sh", "-c", "echo $$ >\(root)\(unit)/cgroup.procs && exec \"$@\"", "sh"]
        let connection = try connect(entrance, bindsProcess: bindsProcess)
        func isGranted(_ selectors: Selector...) -> Bool { connection.refusal(selectors) == nil }
        #expect(isGranted(.unit("web.service")) == bindsProcess && isGranted(.cgroup(slice)) == bindsProcess)
        #expect(isGranted(.unit("web.service"), .user(0)) == bindsProcess)
        #expect(!isGranted(.unit("other.service")) && !isGranted(.cgroup("/other.slice")))
        #expect("\(connection.caller)".contains("unit web.service cgroup \(unit)") == bindsProcess)
        // Daemons change their user.
        try connection.run("os.seteuid(12345)")
        #expect(isGranted(.unit("web.service")) == bindsProcess && !isGranted(.unit("web.service"), .user(0)))
        // A unit counts in any namespace.
        try connection.run("os.seteuid(0); libc.unshare(0x10000000)")
        #expect(isGranted(.unit("web.service"), .user(0)) == bindsProcess && !isGranted(.user(0)))
        try "\(connection.process.pid)".write(toFile: root + "/cgroup.procs", atomically: false, encoding: .utf8)
        #expect(!isGranted(.unit("web.service")) && !isGranted(.cgroup(slice)))
        connection.process.stop()
    }

    @Test("A process can be explained by its number")
    func byNumber() throws {
        let caller = try #require(Caller(process: getpid()))
        #expect(caller.user == geteuid() && caller.isolation == nil && caller.obstacle == nil)
        #expect(Caller(process: 0) == nil && Caller(process: .max) == nil)
    }

    @Test("Refusals are logged once a minute for each user, identity and reason, with their number")
    func log() throws {
        let log = TestLog()
        let clock = Mutex(ContinuousClock.now)
        let lines = RepeatedLines { clock.withLock(\.self) }
        let grants = Grants([.init(name: "Serve.allow.1", [.user(1)], text: "uid:1")])
        func refuse(_ connection: Connection, _ grants: Grants, _ identity: String? = "web") {
            #expect(grants.refusal(of: connection.caller, for: identity, lines, log.logger) != nil)
        }
        let callers = try (0..<2).map { _ in try connect(Self.other, bindsProcess: true) }
        for caller in callers { refuse(caller, grants) }
        #expect(log.warnings.count == 1)
        for part in ["Serve.allow.1 (uid:1): its user is 12345", "process \(callers[0].process.pid)", "web"] {
            #expect(log.warnings[0].contains(part), "\(log.text)")
        }
        refuse(callers[0], grants, "mail")
        refuse(callers[0], Grants())
        refuse(try connect(Self.root, bindsProcess: true), grants)
        #expect(log.warnings.count == 4, "\(log.text)")
        clock.withLock { $0 += .seconds(61) }
        refuse(callers[1], grants)
        #expect(log.warnings.count == 5 && log.warnings[4].contains("\"count\": 2"), "\(log.text)")
        let matching = Grants([.init(name: "", [.user(12345)], text: "")])
        #expect(matching.refusal(of: callers[0].caller, lines, log.logger) == nil)
    }

    @Test("A socket has its mode and group, whatever the umask is")
    func modes() throws {
        let path = directory["b.sock"]
        let socket = try ListeningSocket(at: path, setting: "--socket", mode: 0o660, group: 12346)
        var status = stat()
        #expect(lstat(path, &status) == 0 && status.st_mode & 0o7777 == 0o660 && status.st_gid == 12346)
        withExtendedLifetime(socket) {}
    }
}
