import Foundation
import Glibc
import TestSupport
import Testing

/// One property file for a fleet: the command gets another identity on each host.
@Suite struct FleetTests {
    private let sandbox: Sandbox

    init() throws { sandbox = try Sandbox() }

    private static let hasHosts =
        geteuid() == 0 && (try? Subprocess.run(["unshare", "--net", "--uts", "--mount", "true"])) != nil

    private func configure(_ server: ESTServer) throws -> String {
        try sandbox.write(ESTServer.password, to: "password")
        return try sandbox.write(
            """
            CertificateProvider = mdm
            CertificateProvider.mdm.protocol = est
            CertificateProvider.mdm.url = https://localhost:\(server.port)
            CertificateProvider.mdm.trust-anchors = \(server.directory["ca.pem"])
            CertificateProvider.mdm.username = \(ESTServer.user)
            CertificateProvider.mdm.password-source = file:\(sandbox.path)/password
            CertificateProvider.mdm.subject = CN=%{fqdn},OU=%{env:UNIT},O=Example
            CertificateProvider.mdm.subject-alternative-names = dns:%{fqdn}, uri:urn:uuid:%{machine-id}

            """, to: "fleet.properties")
    }

    /// Starts a program on another host: in a network of its own, by which it reaches this host's port alone.
    private static let host = #"""
        import os, socket, subprocess, sys, threading
        port, name, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
        here = os.path.abspath(name + ".socket")
        def pump(source, target):
            while data := source.recv(65536): target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        def relay(listener, family, address):
            while True:
                one, other = listener.accept()[0], socket.socket(family)
                other.connect(address)
                for pair in ((one, other), (other, one)):
                    threading.Thread(target=pump, args=pair, daemon=True).start()
        def serve(family, address, *target):
            listener = socket.socket(family)
            listener.bind(address)
            listener.listen()
            threading.Thread(target=relay, args=(listener, *target), daemon=True).start()
        if os.environ.pop("INSIDE", None):
            serve(socket.AF_INET, ("127.0.0.1", port), socket.AF_UNIX, here)
            sys.exit(subprocess.call(command))
        serve(socket.AF_UNIX, here, socket.AF_INET, ("127.0.0.1", port))
        with open(name + ".hosts", "w") as hosts:
            hosts.write(f"127.0.0.1 localhost\n127.0.1.1 {name}.fleet.example {name}\n")
        with open(name + ".id", "w") as identifier: identifier.write(f"{name:0>32}\n".replace("one", "0e1").replace("two", "0e2"))
        script = """
            set -e; mount --make-rprivate /; ip link set lo up; hostname "$1"
            mount --bind "$1.hosts" /etc/hosts; mount --bind "$1.id" /etc/machine-id; shift; exec "$@"
            """
        sys.exit(subprocess.call(
            ["unshare", "--net", "--uts", "--mount", "sh", "-c", script, "sh", name, sys.executable] + sys.argv,
            env=dict(os.environ, INSIDE="1")))
        """#

    @Test("Two hosts with one property file get two certificates, each with its own names", .enabled(if: hasHosts))
    func twoHosts() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let file = try configure(server)
        let script = try sandbox.write(Self.host, to: "host.py")
        for (name, unit) in [("one", "a, b"), ("two", "x+CN=admin")] {
            let fetch = [
                BuiltCommand.path, "fetch", "--json", "--config", file, "--out", "\(sandbox.path)/\(name).out",
            ]
            let output = try sandbox.run(
                [
                    "sh", "-c", #"cd "$1" && shift && exec python3 "$@""#, "sh", sandbox.path, script, "\(server.port)",
                    name,
                ]
                    + fetch, with: ["UNIT": unit, "XDG_STATE_HOME": "\(sandbox.path)/state/\(name)"])
            let identity = try output.document("Identity")["identity"]
            #expect(identity["subject"].string?.hasPrefix("CN=\(name).fleet.example,OU=") == true, "\(output)")
            let names = identity["subjectAlternativeNames"].array.compactMap(\.string)
            #expect(names.first == "dns:\(name).fleet.example" && names.count == 2, "\(names)")
            let shown = String(
                decoding: try Subprocess.run([
                    "openssl", "x509", "-in", "\(sandbox.path)/\(name).out/current/certificate.pem", "-noout",
                    "-subject",
                    "-nameopt", "multiline",
                ]), as: UTF8.self)
            let lines = shown.split(separator: "\n").map { $0.trimmingCharacters(in: .whitespaces) }
            #expect(lines.count == 4 && lines.contains("organizationalUnitName    = \(unit)"), "\(lines)")
        }
        #expect(server.issued == 2)
    }

    @Test(
        "A host whose name is not a host name, or not its own, gets no certificate", .enabled(if: hasHosts),
        arguments: ["a,CN=admin", "a+CN=admin", "a\"b", "a\\b", "*", "localhost", "(none)"])
    func aBadHostName(name: String) async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let script = "import os, socket, sys; socket.sethostname(sys.argv[1]); os.execv(sys.argv[2], sys.argv[2:])"
        try sandbox.run(
            [
                "unshare", "--uts", "/usr/bin/python3", "-c", script, name, BuiltCommand.path, "fetch", "--config",
                configure(server),
            ], with: ["UNIT": "web"]
        ).expect(78, stderr: "fleet.properties:7: The key 'CertificateProvider.mdm.subject' ")
        #expect(server.issued == 0)
    }

    /// Shows in the identity's source what it has got.
    private static let plugin = #"""
        #!/usr/bin/python3
        import json, os, sys
        kinds = {"subject": "distinguished-name", "names": "names", "url": "server-url", "note": "string", "directory": "path"}
        hello = {"version": 1, "id": "corp", "provider": {"displayName": "Corp", "summary": "Its CA.", "parameters": [
            {"name": name, "type": kind, "summary": "One."} for name, kind in kinds.items()]}}
        for line in sys.stdin:
            message = json.loads(line)
            request, result = message.get("request"), {}
            if request is None: continue
            if request == "hello": result = hello
            if request == "configure": parameters = message["params"]["parameters"]
            if request == "stored": result = {"identity": None}
            if request == "obtain":
                source = json.dumps([parameters.get(name) for name in ("subject", "names", "url", "note")])
                result = {"identity": dict(json.loads(os.environ["IDENTITY"]), source=source)}
            print(json.dumps({"id": message["id"], "result": result}), flush=True)

        """#

    @Test("A plugin gets the values of this host where a value takes them, each quoted for its kind")
    func aPluginOfTheFleet() throws {
        try sandbox.installPlugin("corp", Self.plugin)
        func base64(_ name: String, _ arguments: String...) throws -> String {
            try Data(Subprocess.run(["openssl"] + arguments + ["-in", Fixtures.path(name), "-outform", "DER"]))
                .base64EncodedString()
        }
        let identity =
            #"{"chain":["\#(try base64("ec.pem", "x509"))","\#(try base64("intermediate.pem", "x509"))"],"#
            + #""key":{"pkcs8":{"secret":"\#(try base64("ec.key", "pkcs8", "-topk8", "-nocrypt"))"},"location":"file"}}"#
        let variables = ["IDENTITY": identity, "UNIT": "a, b/c+CN=admin", "HOST": "web.example"]
        func fetch(_ name: String, _ value: String) throws -> Output {
            let parameter = "CertificateProvider.corp.\(name) = \(value)"
            let file = try sandbox.write(
                """
                PluginDirectory = \(sandbox.path)/plugins
                CertificateProvider = corp
                CertificateProvider.corp.environment = IDENTITY
                CertificateProvider.corp.names = dns:%{env:HOST},dns:www.%{env:HOST}
                CertificateProvider.corp.url = https://ca.example/%{env:UNIT}
                CertificateProvider.corp.subject = CN=%{env:HOST},OU=%{env:UNIT}
                \(parameter)

                """, to: "corp.properties")
            return try sandbox.certprov(["fetch", "--log-format", "json", "--config", file], with: variables)
        }
        let output = try fetch("note", "%%{env:HOST}").expect()
        let got = [
            #"CN=web.example,OU=a\2C\20b/c\2BCN\3Dadmin"#, "dns:web.example,dns:www.web.example",
            "https://ca.example/a%2C%20b%2Fc%2BCN%3Dadmin", "%{env:HOST}",
        ]
        let issued = try JSON(parsing: String(try #require(output.stderr.split(separator: "\n").last)))
        #expect(try JSON(parsing: issued["server"].string ?? "").array.map(\.string) == got, "\(output)")
        for (name, value) in [
            ("note", "%{env:HOST}"), ("directory", "/srv/%{env:HOST}"), ("timeout", "%{host}"),
        ] {
            try fetch(name, value).expect(
                78, stderr: "corp.properties:7: The key 'CertificateProvider.corp.\(name)' takes no host variable")
        }
    }

    @Test("check and explain show the values of this host") func theValuesAreShown() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let file = try configure(server)
        try sandbox.write(
            try String(contentsOfFile: file, encoding: .utf8).replacing("%{fqdn}", with: "%{env:HOST}"),
            to: "fleet.properties")
        let variables = ["HOST": "web.example", "UNIT": "a,b"]
        let values = [
            "CertificateProvider.mdm.subject": "CN=web.example,OU=a\\2Cb,O=Example"
        ]
        let report = try sandbox.certprov(["check", "--json", "--config", file], with: variables).document(
            "CheckReport")
        let explanation = try sandbox.certprov(["explain", "--json", "--config", file], with: variables)
            .document("Explanation")
        for (key, value) in values {
            #expect(report["items"].array.contains { $0["what"].string == key && $0["detail"].string == value })
            #expect(explanation["values"].array.contains { $0["key"].string == key && $0["value"].string == value })
        }
        try sandbox.certprov("explain", "--config", file, with: variables).expect(
            stdout: "CertificateProvider.mdm.subject = CN=web.example,OU=a\\2Cb,O=Example\n")
        try sandbox.certprov("check", "--config", file).expect(
            78,
            stdout:
                "fleet.properties:7: The key 'CertificateProvider.mdm.subject' has %{env:HOST}, and this variable is not set"
        )
    }
}
