import Glibc
import TestSupport
import Testing

@testable import HostSockets

@Suite struct ControlGroupTests {
    private static func place(_ text: String) -> Result<ControlGroup, ControlGroup.Obstacle> {
        Result { () throws(ControlGroup.Obstacle) in try ControlGroup(Array(text.utf8)) }
    }

    @Test(
        "The unit is the first one below the slices, of the line of version 2 or the service manager's own",
        arguments: [
            ("0::/system.slice/nginx.service\n", "nginx.service"),
            ("9:name=systemd:/other.service\n0::/system.slice/nginx.service\n", "nginx.service"),
            ("9:name=systemd:/system.slice/cron.service\n1:cpu:/x\n", "cron.service"),
            ("0::/a.slice/a-b.slice/b.scope/nginx.service/x\n", "b.scope"),
            ("0::/user.slice/user-1.slice/user@1.service/app.slice/nginx.service\n", "user@1.service"),
            ("0::/init.scope\n", "init.scope"), ("0::/system.slice/a:b.service\n", "a:b.service"),
            ("0::/system.slice/\u{301}nginx.service/nginx.service\n", "\u{301}nginx.service"),
        ])
    func units(text: String, unit: String) throws { #expect(try Self.place(text).get().unit == unit) }

    @Test(
        "A path that says nothing for sure is of no unit",
        arguments: [
            "", "0::/\n", "0::/../system.slice/nginx.service\n", "0::/system.slice/nginx.service (deleted)\n",
            "0::/docker/nginx.service\n", "0::/system.slice\n", "0::/system.slice/.service\n", "1:cpu:/nginx.service\n",
        ])
    func noUnit(text: String) { #expect(throws: ControlGroup.Obstacle.self) { try Self.place(text).get() } }

    @Test("A control group is within itself and its ancestors, by whole names and bytes")
    func within() throws {
        let group = try Self.place("0::/system.slice/a.service/b\n").get()
        for path in ["/system.slice", "/system.slice/a.service", "/system.slice/a.service/b"] {
            #expect(group.isWithin(path))
        }
        for path in ["/system.slic", "/system.slice/a.service/b/c", "/system.slice/a", ""] where !path.isEmpty {
            #expect(!group.isWithin(path))
        }
        let kelvin = try Self.place("0::/\u{212a}.slice/a.service\n").get()
        #expect(!kelvin.isWithin("/K.slice"))
    }
}

/// Callers of other users need root.
@Suite(.enabled(if: geteuid() == 0)) struct CallerTests {
    private let directory: TemporaryDirectory
    private let socket: ListeningSocket

    init() throws {
        directory = try TemporaryDirectory()
        try #require(chmod(directory.path, 0o755) == 0)
        socket = try ListeningSocket(at: directory["a.sock"], setting: "--socket", mode: 0o666)
    }

    private static let script = """
        import os, socket, sys
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(sys.argv[1])
        # A child has the connection, when its maker has gone.
        if sys.argv[2] == "pass" and os.fork(): os._exit(0)
        print("up", flush=True)
        sys.stdin.read()
        """

    /// Starts a process that connects, and looks at it.
    private func caller(
        _ entrance: [String] = [], bindsProcess: Bool = true, passes: Bool = false
    ) throws -> (caller: Caller, process: Subprocess) {
        let process = try Subprocess(
            entrance + ["/usr/bin/python3", "-c", Self.script, directory["a.sock"], passes ? "pass" : "stay"])
        try #require(process.readLine() == "up")
        // Its maker is reaped by now.
        if passes { #expect(process.wait(seconds: 60) != nil) }
        let connection = accept(socket.descriptor, nil, nil)
        defer { close(connection) }
        return (Caller(try #require(SocketPeer(of: connection, bindsProcess: bindsProcess))), process)
    }

    private func refusal(_ caller: Caller, _ selectors: Selector...) -> String? {
        Grants([.init(name: "grant", Set(selectors), text: "")]).refusal(of: caller)
    }

    private static let other = ["setpriv", "--reuid=12345", "--regid=12346", "--groups=7,8"]

    @Test(
        "A caller is known by its user and groups, with and without a descriptor of its process",
        arguments: [true, false])
    func userAndGroups(bindsProcess: Bool) throws {
        let (caller, process) = try caller(Self.other, bindsProcess: bindsProcess)
        #expect(caller.user == 12345 && caller.group == 12346 && caller.groups == [7, 8])
        for selector: Selector in [.user(12345), .group(12346), .group(7)] { #expect(refusal(caller, selector) == nil) }
        for selector: Selector in [.user(0), .group(9), .unit("a.service"), .cgroup("/a")] {
            #expect(refusal(caller, selector) != nil)
            #expect(refusal(caller, .user(12345), selector) != nil)
        }
        #expect(refusal(caller) != nil && Grants().refusal(of: caller) != nil)
        withExtendedLifetime(process) {}
    }

    @Test("A process that has gone is nobody, whoever has its connection", arguments: [true, false])
    func aPassedDescriptor(bindsProcess: Bool) throws {
        let (caller, process) = try caller(Self.other, bindsProcess: bindsProcess, passes: true)
        #expect(caller.user == 12345)
        #expect(refusal(caller, .user(12345))?.contains("has ended") == true)
        withExtendedLifetime(process) {}
    }

    @Test(
        "A grant by user does not match a process in another namespace", arguments: ["--pid", "--user"], [true, false])
    func anotherNamespace(kind: String, bindsProcess: Bool) throws {
        let (caller, process) = try caller(["unshare", kind, "--fork"], bindsProcess: bindsProcess)
        #expect(refusal(caller, .user(caller.user))?.contains("another") == true)
        withExtendedLifetime(process) {}
    }

    @Test(
        "A grant by unit matches a process in the unit, and only where the kernel binds it to the connection",
        arguments: [true, false])
    func unit(bindsProcess: Bool) throws {
        let root = "/sys/fs/cgroup/unified"
        let slice = "\(root)/certproved-\(getpid()).slice", unit = "\(slice)/web.service"
        guard mkdir(slice, 0o755) == 0 || errno == EEXIST, mkdir(unit, 0o755) == 0 || errno == EEXIST else { return }
        defer { for directory in [unit, slice] { rmdir(directory) } }
        let entrance = ["sh", "-c", "echo $$ >\(unit)/cgroup.procs && exec \"$@\"", "sh"]
        let (caller, process) = try caller(entrance + ["unshare", "--user"], bindsProcess: bindsProcess)
        #expect((refusal(caller, .unit("web.service")) == nil) == bindsProcess)
        #expect((refusal(caller, .cgroup("/certproved-\(getpid()).slice")) == nil) == bindsProcess)
        // A unit counts in any namespace.
        #expect((refusal(caller, .unit("web.service"), .user(caller.user)) == nil) == bindsProcess)
        #expect(refusal(caller, .unit("other.service")) != nil)
        process.stop()
    }

    @Test("A process can be explained by its number")
    func byNumber() throws {
        let caller = try #require(Caller(process: getpid()))
        #expect(caller.user == geteuid() && caller.isolation == nil)
        #expect(Caller(process: 0) == nil && Caller(process: .max) == nil)
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
