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
