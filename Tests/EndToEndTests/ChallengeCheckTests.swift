import Foundation
import Glibc
import TestSupport
import Testing

/// `check` of an enrolment over ACME and of files for other programs: what this host and the timer's unit permit. A program stands for
/// systemctl.
@Suite(
    .enabled(if: geteuid() == 0, "only root can make a mount namespace"), .enabled(if: !BuiltCommand.isPlugged))
struct ChallengeCheckTests {
    private let sandbox: Sandbox

    init() throws { sandbox = try Sandbox() }

    /// - Parameters:
    ///   - unit: The properties that differ from those of the unit as it is installed; `nil` for a host without systemd.
    private func check(
        _ parameters: [String], files: [String] = [], unit: [String: String]?, isActive: Bool = true
    ) throws -> Output {
        let names = ["directory=http://127.0.0.1:1/dir", "identifiers=dns:web.example"] + parameters
        let file = try sandbox.write(
            "CertificateProvider = acme\n" + names.map { "CertificateProvider.acme.\($0)\n" }.joined()
                + files.map { "Files.\($0)\n" }.joined(),
            to: "web.properties")
        let properties = [
            "User": "", "CapabilityBoundingSet": "", "AmbientCapabilities": "", "PrivateUsers": "yes",
            "ProtectSystem": "strict",
            "ProtectHome": "yes", "ReadWritePaths": "", "SystemCallFilter": "close fchmod read write",
            "ExecStart":
                "{ path=/usr/bin/certprov ; argv[]=/usr/bin/certprov renew --config \(file) ; ignore_errors=no ; status=0/0 }",
        ].merging(unit ?? [:]) { $1 }
        let shown =
            "Id=certprov-renew@web.service\nActiveState=inactive\n"
            + properties.map { "\($0.key)=\($0.value)\n" }.joined()
            + "\nId=certprov-renew@web.timer\nActiveState=\(isActive ? "active" : "inactive")\n"
        let units = try sandbox.write(shown, to: "units")
        try sandbox.install(
            "#!/bin/sh\n[ \"$1\" = show ] && [ -z \"$P12_PASSWORD\" ] && exec /bin/cat \(units)\n", to: "systemctl",
            mode: "755")
        let run = unit == nil ? "/run/none" : "/run/systemd/system"
        return try sandbox.shell(
            """
            exec unshare --mount sh -c 'mount -t tmpfs run /run && mkdir -p '"$1"' && mount --bind "$2" /usr/bin/systemctl && shift 2 &&
                exec "$@"' sh "$1" "$2" "$CERTPROV" check --json --config "$3"
            """, run, sandbox.path + "/systemctl", file)
    }

    private func item(_ what: String, _ output: Output) throws -> (severity: String?, text: String) {
        let items = try output.document("CheckReport")["items"].array.filter { $0["what"].string == what }
        #expect(items.count == 1, "\(output)")
        return (items.first?["severity"].string, items.first?["detail"].string ?? "")
    }

    private static let right = "cap_net_bind_service"

    @Test(
        "The unit as it is may not open port 80, with a drop-in for root or a user it may; that is an error where the timer is active",
        arguments: [
            ([:], ["CapabilityBoundingSet=CAP_NET_BIND_SERVICE", "PrivateUsers=no"], true),
            ([:], ["PrivateUsers=no"], false),
            (["CapabilityBoundingSet": "cap_chown cap_net_bind_service"], ["PrivateUsers=no"], true),
            (["PrivateUsers": "no"], ["CapabilityBoundingSet=CAP_NET_BIND_SERVICE"], true),
            (["PrivateUsers": "no", "CapabilityBoundingSet": right], [], true),
            (
                ["PrivateUsers": "no", "CapabilityBoundingSet": right, "User": "web"],
                ["AmbientCapabilities=CAP_NET_BIND_SERVICE"], true
            ),
            (
                ["PrivateUsers": "no", "CapabilityBoundingSet": right, "User": "web", "AmbientCapabilities": right], [],
                true
            ),
        ] as [([String: String], [String], Bool)], ["http-listen", "tls-listen"])
    func reservedPorts(row: ([String: String], [String], Bool), parameter: String) throws {
        let (unit, missing, isActive) = row
        let challenge = parameter == "http-listen" ? [] : ["challenge=tls-alpn-01"]
        let output = try check(challenge, unit: unit, isActive: isActive)
        let found = try item("acme \(parameter)", output)
        #expect(found.severity == (missing.isEmpty ? "ok" : isActive ? "error" : "warning"), "\(output)")
        for text in missing { #expect(found.text.contains(text), "\(found)") }
        if !missing.isEmpty { #expect(found.text.contains("certprov-renew@web.service may not open port"), "\(found)") }
    }

    @Test("A port that every user may open needs no right, and a process that has it is named")
    func otherPorts() throws {
        let port = try ReservedPort()
        let free = try check(["http-listen=127.0.0.1:\(port)"], unit: [:])
        #expect(!free.stdout.contains("acme http-listen"), "\(free)")
        let holder = try Subprocess(
            [
                "python3", "-c",
                "import socket,sys; s=socket.create_server(('',\(port))); print('up',flush=True); sys.stdin.read()",
            ],
            environment: ["PATH": "/usr/bin:/bin"])
        defer { holder.stop() }
        try #require(holder.readLine() == "up")
        let found = try item("acme http-listen", try check(["http-listen=127.0.0.1:\(port)"], unit: [:]))
        #expect(
            found.severity == "warning" && found.text.contains("python3 (process \(holder.pid)) has port"), "\(found)")
    }

    @Test("Without systemd, and for another property file's unit, the rights of this user count")
    func withoutAUnit() throws {
        for unit in [nil, ["ExecStart": "{ argv[]=/usr/bin/certprov renew --config /etc/certprov/web.properties ; }"]] {
            #expect(try item("acme http-listen", try check([], unit: unit)).severity == "ok")
        }
    }

    @Test(
        "The unit as it is may not write files for other programs, and root's own with one setting; that is an error where the timer is active",
        arguments: [
            ([], [:], ["ReadWritePaths="], true), ([], [:], ["ReadWritePaths="], false),
            (["owner=0", "group=root"], ["ReadWritePaths": "/etc/nginx"], [], true),
            (
                ["group=33"], [:],
                ["ReadWritePaths=", "PrivateUsers=no", "CapabilityBoundingSet=CAP_CHOWN", "SystemCallFilter=@chown"],
                true
            ),
            (
                ["owner=33"], ["PrivateUsers": "no", "CapabilityBoundingSet": "cap_chown"], ["SystemCallFilter=@chown"],
                true
            ),
            (
                ["owner=33"], ["PrivateUsers": "no", "SystemCallFilter": "~fchown ptrace"], ["SystemCallFilter=@chown"],
                true
            ),
            (
                ["owner=33"], ["SystemCallFilter": "~ptrace", "CapabilityBoundingSet": "cap_chown"],
                ["PrivateUsers=no"], true
            ),
            (["owner=33"], ["SystemCallFilter": "", "PrivateUsers": "no"], ["CapabilityBoundingSet=CAP_CHOWN"], true),
            (["group=33"], ["User": "web", "ReadWritePaths": "/etc"], [], true),
        ] as [([String], [String: String], [String], Bool)])
    func filesForOtherPrograms(row: (files: [String], unit: [String: String], missing: [String], isActive: Bool)) throws
    {
        let output = try check(
            [], files: ["directory=/etc/nginx/identity"] + row.files, unit: row.unit, isActive: row.isActive)
        guard !row.missing.isEmpty else {
            #expect(!output.stdout.contains("Files.directory timer"), "\(output)")
            return
        }
        let found = try item("Files.directory timer", output)
        #expect(found.severity == (row.isActive ? "error" : "warning"), "\(output)")
        #expect(found.text.contains("may not write the files of /etc/nginx/identity"), "\(found)")
        for text in row.missing { #expect(found.text.contains(text), "\(found)") }
    }

    @Test("A document root is to be there, and the unit to be permitted to write to it")
    func documentRoots() throws {
        func root(_ path: String, _ unit: [String: String]? = [:]) throws -> (severity: String?, text: String) {
            try item("acme http-root", try check(["http-root=\(path)"], unit: unit))
        }
        let www = sandbox.path + "/www"
        #expect(try root(www).text.contains("does not exist"))
        #expect(mkdir(www, 0o755) == 0)
        let refused = try root(www)
        #expect(refused.severity == "error" && refused.text.contains("ReadWritePaths=\(www)"), "\(refused)")
        #expect(try root(www, nil).severity == "ok")
        for places in [www, "/nowhere -\(www)", sandbox.path, "+/"] {
            #expect(try root(www, ["ReadWritePaths": places]).severity == "ok", "\(places)")
        }
        #expect(try root(www, ["ReadWritePaths": www + "2"]).severity == "error")
        #expect(try root(www, ["ProtectSystem": "no"]).severity == "ok")
        // The unit's root has no more rights than others.
        chown(www, 65_534, 65_534)
        let foreign = try root(www, ["ReadWritePaths": www])
        #expect(
            foreign.severity == "error"
                && foreign.text.contains("install -d -o root \(www)/.well-known/acme-challenge"), "\(foreign)")
        try sandbox.shell("install -d -o root \"$1\"", www + "/.well-known/acme-challenge").expect()
        #expect(try root(www, ["ReadWritePaths": www]).severity == "ok")
        // A link of the other user.
        #expect(rename(www + "/.well-known", sandbox.path + "/elsewhere") == 0)
        #expect(symlink(sandbox.path + "/elsewhere", www + "/.well-known") == 0)
        let link = try root(www, ["ReadWritePaths": www])
        #expect(link.severity == "error" && link.text.contains("symbolic link that another user"), "\(link)")
    }

    @Test("A hook is to be executable, and only root and this user may be able to change it")
    func hooks() throws {
        func hook(_ path: String) throws -> (severity: String?, text: String) {
            try item("acme dns-hook", try check(["challenge=dns-01", "dns-hook=\(path)"], unit: nil))
        }
        let path = sandbox.path + "/hook"
        #expect(try hook(path).severity == "error")
        try sandbox.write("#!/bin/sh\n", to: "hook", mode: 0o644)
        #expect(try hook(path).text.contains("cannot be executed"))
        chmod(path, 0o755)
        #expect(try hook(path).severity == "ok")
        chmod(path, 0o757)
        let open = try hook(path)
        #expect(open.severity == "warning" && open.text.contains("other users may write"), "\(open)")
    }
}
