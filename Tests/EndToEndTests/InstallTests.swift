import Foundation
import Glibc
import TestSupport
import Testing

/// The files that `make install` puts into a prefix.
@Suite struct InstallTests {
    private let sandbox: Sandbox
    private let prefix: String

    init() throws {
        sandbox = try Sandbox()
        prefix = sandbox.path + "/prefix"
        let bin = URL(filePath: BuiltCommand.path).deletingLastPathComponent().path
        try sandbox.run([Self.script, bin, prefix]).require()
    }

    private static let script = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().appending(path: "Scripts/install").path

    @Test func theCommandRuns() throws {
        let output = try sandbox.run([prefix + "/bin/certprov", "connect", "--help"]).expect(stdout: "--trust-anchors")
        let help = try sandbox.run([prefix + "/bin/certprov", "help", "connect"])
        #expect(help.status == 0 && help.stdout == output.stdout, "\(help)")
    }

    @Test func theManualDocumentsEverySubcommandAndOption() throws {
        let manual = String(decoding: try contents(prefix + "/share/man/man1/certprov.1"), as: UTF8.self)
        for command in ["list", "fetch", "delete", "explain", "connect", "providers", "check", "renew"] {
            #expect(manual.contains(".Ss certprov \(command)\n"))
        }
        for option in [
            "config", "provider", "set", "json", "out", "export\\-key", "force", "yes", "trust\\-anchors", "dry\\-run",
        ] {
            #expect(manual.contains("\\-\(option)"), "--\(option)")
        }
        // Parameters of each provider, sources of secrets, and what the environment says.
        for item in ["token\\-url", "module\\-path", "alias", "systemd:NAME", "Ev https_proxy", "Pa DIR/current"] {
            #expect(manual.contains(".It \(item)"), "\(item)")
        }
    }

    @Test func theShellsHaveTheirCompletions() throws {
        let bash = prefix + "/share/bash-completion/completions/certprov"
        try sandbox.run(["/bin/bash", "-n", bash]).expect()
        for file in [bash, prefix + "/share/zsh/site-functions/_certprov"] {
            let text = String(decoding: try contents(file), as: UTF8.self)
            #expect(text.contains("fetch") && text.contains("--trust-anchors"), "\(file)")
            #expect(text.contains("renew") && text.contains("--dry-run"), "\(file)")
        }
        let zsh = String(decoding: try contents(prefix + "/share/zsh/site-functions/_certprov"), as: UTF8.self)
        #expect(zsh.contains("]:file:_files") && zsh.contains("]:dir:_files -/"))
        let loaded = try sandbox.shell(
            #"""
            exec zsh -f -c 'fpath=($1 $fpath); autoload -Uz compinit; compinit -u -d "$HOME/dump"
            autoload -Uz +X "${_comps[certprov]}" && print -- "${_comps[certprov]}"' zsh "$1"
            """#, prefix + "/share/zsh/site-functions")
        #expect(loaded.status == 0 && loaded.stdout == "_certprov\n" && loaded.stderr.isEmpty, "\(loaded)")
        let offered = try sandbox.shell(
            #"""
            exec fish --no-config -c 'source $argv[1]; complete -C "certprov connect --tru"; complete -C "certprov plugin ver"' "$1"
            """#, prefix + "/share/fish/vendor_completions.d/certprov.fish")
        let words = offered.stdout.split(separator: "\n").map { $0.prefix { $0 != "\t" } }
        #expect(offered.status == 0 && words == ["--trust-anchors", "verify"], "\(offered)")
    }

    /// Units of a directory, without those of the host, which may have mistakes of their own.
    private func expectSystemdTakes(_ units: [String], in directory: String, options: [String] = []) throws {
        let output = try sandbox.run(
            ["/usr/bin/systemd-analyze", "verify", "--man=no", "--recursive-errors=no"] + options
                + units.map { "\(directory)/\($0)" },
            with: ["SYSTEMD_UNIT_PATH": directory, "XDG_RUNTIME_DIR": sandbox.path])
        // The status is 0 for a setting that is only obsolete.
        #expect(output.status == 0 && !output.stderr.contains(directory), "\(output)")
    }

    @Test func systemdTakesTheUnits() throws {
        for unit in ["certprov-renew@.service", "certprov-renew@.timer", "certprov-serve.service"] {
            try expectSystemdTakes([unit], in: prefix + "/lib/systemd/system")
        }
        for unit in ["certprov-requests.service", "certprov-requests.socket"] {
            try expectSystemdTakes([unit], in: prefix + "/lib/systemd/user", options: ["--user"])
        }
        let units = prefix + "/lib/systemd/user"
        mkdir(units + "/certprov-requests.service.d", 0o755)
        let dropIn = try #require(try Page("Documentation/SigningRequests.md").blocks("ini").first)
        try dropIn.write(
            toFile: units + "/certprov-requests.service.d/requests.conf", atomically: true, encoding: .utf8)
        try expectSystemdTakes(["certprov-requests.service"], in: units, options: ["--user"])
    }

    /// Denies setpriority(2) as the unit's filter does, and prints what arrives at /dev/log.
    private static let filtered = #"""
        import ctypes, os, socket, struct, subprocess, sys
        log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        log.bind("/dev/log")
        number = {"x86_64": 141, "aarch64": 140}[os.uname().machine]
        steps = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000)]
        code = b"".join(struct.pack("HBBI", *step) for step in steps)
        class Program(ctypes.Structure):
            _fields_ = [("count", ctypes.c_ushort), ("code", ctypes.c_char_p)]
        libc = ctypes.CDLL(None)
        assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(Program(len(steps), code))) == 0
        subprocess.run(sys.argv[1:], capture_output=True)
        log.setblocking(False)
        try:
            print(log.recv(1000))
        except BlockingIOError:
            print("nothing")
        """#

    @Test(
        "The timer's unit logs no lines about priorities of threads",
        .enabled(if: geteuid() == 0, "a directory for devices takes root"))
    func noLinesAboutPriorities() throws {
        let unit = String(
            decoding: try contents(prefix + "/lib/systemd/system/certprov-renew@.service"), as: UTF8.self)
        let environment = unit.split(separator: "\n").filter { $0.hasPrefix("Environment=") }.map { $0.dropFirst(12) }
        let devices =
            "mount -t tmpfs certprov /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9 && exec \"$@\""
        func logged(_ environment: [String]) throws -> String {
            try sandbox.run(
                ["unshare", "--mount", "sh", "-c", devices, "sh", "python3", "-c", Self.filtered, "env"] + environment
                    + [BuiltCommand.path, "connect", "localhost:1", "--provider", "pkcs12"]
                    + ["--set", "path=" + Fixtures.path("ec.p12"), "--set", "password-source=env:P12_PASSWORD"]
            ).require().stdout
        }
        #expect(try logged([]).contains("Failed to set thread priority"))
        #expect(try logged(environment.map(String.init)) == "nothing\n")
    }

    @Test func desktopsTakeTheHandlerOfRequests() throws {
        let path = prefix + "/share/applications/certprov-requests.desktop"
        try sandbox.run(["/usr/bin/desktop-file-validate", path]).expect(stdout: "", stderr: "")
        let text = String(decoding: try contents(path), as: UTF8.self)
        #expect(text.contains("\nExec=\(prefix)/bin/certprov requests open "), "\(text)")
    }

    @Test("systemd takes the units and drop-ins of the book's pages on files for other programs, TPMs and ACME")
    func systemdTakesTheUnitsOfTheBook() throws {
        let units = sandbox.path + "/units"
        let dropIns = units + "/certprov-renew@web.service.d"
        try FileManager.default.createDirectory(atPath: dropIns, withIntermediateDirectories: true)
        let template = try contents(prefix + "/lib/systemd/system/certprov-renew@.service")
        try sandbox.write(template, to: units + "/certprov-renew@web.service")
        let rights = try #require(
            try Page("Documentation/OtherPrograms.md").blocks("ini").first { $0.hasPrefix("[Service]\n") })
        try sandbox.write(rights, to: dropIns + "/files.conf")
        let tpm = try Page("Documentation/Tokens.md").blocks("ini")
        try #require(tpm.count == 1)
        try sandbox.write(tpm[0], to: dropIns + "/tpm.conf")
        let often = try Page("Documentation/Renewal.md").blocks("ini")
        try #require(often.count == 2)
        let timer = try contents(prefix + "/lib/systemd/system/certprov-renew@.timer")
        try sandbox.write(timer, to: units + "/certprov-renew@web.timer")
        let timerDropIns = units + "/certprov-renew@web.timer.d"
        try FileManager.default.createDirectory(atPath: timerDropIns, withIntermediateDirectories: true)
        try sandbox.write(often[0], to: timerDropIns + "/often.conf")
        try sandbox.write(
            often[1].replacing("/usr/bin/certprov", with: prefix + "/bin/certprov"), to: dropIns + "/often.conf")
        let challenges = try Page("Documentation/ACME.md").blocks("ini")
        try #require(challenges.count == 3)
        for (number, dropIn) in challenges.enumerated() {
            try sandbox.write(dropIn, to: dropIns + "/acme\(number).conf")
        }
        try expectSystemdTakes(["certprov-renew@web.service", "certprov-renew@web.timer"], in: units)
    }

    @Test func theUnitsNameTheProgramWhereItWillBe() throws {
        let bin = URL(filePath: BuiltCommand.path).deletingLastPathComponent().path
        let staged = sandbox.path + "/stage"
        try sandbox.run([Self.script, bin, staged + "/usr"], with: ["DESTDIR": staged]).expect()
        let unit = try contents(staged + "/usr/lib/systemd/system/certprov-renew@.service")
        #expect(String(decoding: unit, as: UTF8.self).contains("\nExecStart=/usr/bin/certprov renew --config "))
    }

    @Test func uninstallLeavesNothing() throws {
        try sandbox.run([Self.script, "--remove", prefix]).expect()
        let files = try FileManager.default.subpathsOfDirectory(atPath: prefix).filter {
            mode(prefix + "/" + $0) != nil
        }
        let left = files.filter { !FileManager.default.fileExists(atPath: prefix + "/" + $0 + "/.") }
        #expect(left.isEmpty)
    }
}
