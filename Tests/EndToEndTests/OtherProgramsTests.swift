import Foundation
import Glibc
import TestSupport
import Testing

/// `Files.`: the real programs of Documentation/OtherPrograms.md, with their blocks as they are but for paths and ports.
@Suite(.enabled(if: TestLength.hasSeconds), .timeLimit(.minutes(30))) struct OtherProgramsTests {
    /// One of the programs.
    struct Program: Sendable, CustomTestStringConvertible {
        var heading: String
        var language: String
        /// The block is put into the place of `BLOCK`; `HOME` and `PORT` stand for those of the test.
        var file = "BLOCK"
        var name = "server.conf"
        /// Runs until SIGTERM, as a user who can read the key by the group only.
        var start: String
        var reload: String
        /// Exits with 0 if the server is trusted; prints nothing.
        var request =
            "curl --silent --max-time 60 --output answer.$$ --cacert ca.pem --cert client.pem --key client.key https://localhost:PORT/"
        var protocolOptions = ""
        /// It closes its port for a moment when it reloads, as the page says.
        var dropsRequests = false
        /// A further file, which names that with the block.
        var main = ""
        var testDescription: String { heading }

        /// The directory of its programs.
        static let postgres = "$(ls -d /usr/lib/postgresql/*/bin | tail -1)"

        static let all = [
            Program(
                heading: "nginx", language: "nginx",
                file: """
                    daemon off; pid HOME/pid; error_log stderr; events {}
                    http { access_log off; client_body_temp_path HOME/t1; proxy_temp_path HOME/t2; fastcgi_temp_path HOME/t3;
                        uwsgi_temp_path HOME/t4; scgi_temp_path HOME/t5;
                    BLOCK
                    }
                    """,
                start: "nginx -c HOME/server.conf -e stderr", reload: "kill -HUP $(cat HOME/pid)"),
            Program(
                heading: "haproxy", language: "haproxy",
                file: """
                    global
                        log stderr local0
                    defaults
                        mode http
                        timeout connect 60s
                        timeout client 60s
                        timeout server 60s
                    BLOCK
                    """,
                start: "haproxy -W -p HOME/pid -f HOME/server.conf", reload: "kill -USR2 $(head -1 HOME/pid)"),
            Program(
                heading: "stunnel", language: "ini",
                file: """
                    foreground = yes
                    pid = HOME/pid
                    BLOCK
                    """,
                start: "stunnel4 HOME/server.conf", reload: "kill -HUP $(cat HOME/pid)", dropsRequests: true),
            Program(
                heading: "PostgreSQL", language: "",
                start: "\(postgres)/postgres -D HOME/data -p PORT -k HOME -c config_file=HOME/server.conf",
                reload: "kill -HUP $(head -1 HOME/data/postmaster.pid)",
                request:
                    "openssl s_client -starttls postgres -connect localhost:PORT -CAfile ca.pem -verify_return_error </dev/null >/dev/null 2>&1",
                protocolOptions: "-starttls postgres"),
        ]

        /// The program of a package of PyPI, which `make test` installs.
        static let envoy = Program(
            heading: "Envoy", language: "yaml", name: "server.yaml",
            start: "HOME/envoy -c HOME/main.yaml --log-level warn --disable-hot-restart --concurrency 1", reload: "",
            main: """
                node: {id: web, cluster: web}
                static_resources:
                  listeners:
                  - address: {socket_address: {address: "::", port_value: PORT, ipv4_compat: true}}
                    filter_chains:
                    - transport_socket:
                        name: tls
                        typed_config:
                          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
                          common_tls_context:
                            tls_certificate_sds_secret_configs:
                            - {name: identity, sds_config: {path_config_source: {path: HOME/server.yaml}}}
                      filters:
                      - name: http
                        typed_config:
                          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                          stat_prefix: tls
                          route_config:
                            virtual_hosts:
                            - name: all
                              domains: ["*"]
                              routes: [{match: {prefix: /}, direct_response: {status: 200}}]
                          http_filters:
                          - name: router
                            typed_config:
                              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router

                """)
        static let envoyProgram = ProcessInfo.processInfo.environment["CERTPROV_TEST_ENVOY"]
    }

    private let sandbox: Sandbox
    private let port: ReservedPort
    private var home: String { sandbox.path + "/home" }

    init() throws { (sandbox, port) = (try Sandbox(), try ReservedPort()) }

    private func localised(_ text: String) -> String {
        text.replacing(#/\/etc\/(nginx|haproxy|stunnel|postgresql|envoy)/#, with: home)
            .replacing("/usr/local/bin", with: home).replacing("8443", with: "\(port)").replacing(
                "PORT", with: "\(port)"
            )
            .replacing("HOME", with: home)
    }

    /// Makes the certificate of the server with a serial number.
    private func issue(_ serial: Int) throws {
        try sandbox.shell(
            """
            set -e; cd "$HOME"; umask 022
            openssl req -newkey rsa:2048 -noenc -subj /CN=localhost -keyout server.key -out server.csr
            printf 'subjectAltName=DNS:localhost\nextendedKeyUsage=serverAuth,clientAuth\n' >server.ext
            openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -days 9 -set_serial "$1" -extfile server.ext -out server.pem
            openssl pkcs12 -export -in server.pem -inkey server.key -passout pass: -out new.p12
            chmod 600 new.p12; mv new.p12 web.p12
            """, "\(serial)"
        ).require()
    }

    private func prepare(_ program: Program) throws {
        let page = try Page("Documentation/OtherPrograms.md")
        let block = try #require(page.blocks(program.language, under: program.heading).first)
        try sandbox.write(
            localised(program.file.replacing("BLOCK", with: block)) + "\n", to: "home/\(program.name)", mode: 0o644)
        try sandbox.write(localised(program.main), to: "home/main.yaml", mode: 0o644)
        let answer = """
            #!/bin/sh
            while IFS= read -r line && [ "$line" != "$(printf '\\r')" ]; do :; done
            printf 'HTTP/1.0 200 OK\\r\\nContent-Length: 3\\r\\nConnection: close\\r\\n\\r\\nok\\n'

            """
        try sandbox.install(answer, to: "home/answer", mode: "755")
        let settings = try #require(page.blocks("properties").first).split(separator: "\n")
            .filter { $0.hasPrefix("Files.") }.joined(separator: "\n")
            .replacing("/etc/nginx", with: home).replacing("www-data", with: "nogroup")
            .replacing("nginx.service", with: home + "/reload")
        try sandbox.write(
            "CertificateProvider = pkcs12\nCertificateProvider.pkcs12.path = \(home)/web.p12\n"
                + "CertificateProvider.pkcs12.usage = both\n\(settings)",
            to: "home/web.properties")
        // A directory that the service may enter, and in which it may write its own files.
        try sandbox.shell(
            """
            set -e; chmod 711 "$HOME/.."; chmod 1777 "$HOME"; cd "$HOME"; umask 022
            openssl req -x509 -newkey rsa:2048 -noenc -days 9 -subj /CN=CA -keyout ca.key -out ca.pem
            openssl req -x509 -newkey rsa:2048 -noenc -days 9 -subj /CN=client -keyout client.key -out client.pem
            chmod 600 ca.key client.key; cp client.pem clients-ca.pem
            """
        ).require()
        guard program.heading == "PostgreSQL" else { return }
        try sandbox.shell(
            asService("\(Program.postgres)/initdb -D \"$HOME/data\" -A trust --no-sync >/dev/null 2>&1")
        ).require()
    }

    /// Makes `reload` do this.
    private func tell(_ commands: String) throws {
        try sandbox.install("#!/bin/sh\n\(commands)\n", to: "home/reload", mode: "755")
    }

    /// Without root's rights: the key can be read by the group alone.
    private func asService(_ command: String) -> String {
        "cd /; exec setpriv --reuid=nobody --regid=nogroup --clear-groups sh -c '\(command.replacing("$HOME", with: home))'"
    }

    private func servedSerial(_ program: Program) throws -> Int? {
        let shown = try sandbox.shell(
            """
            openssl s_client \(program.protocolOptions) -connect localhost:\(port) -servername localhost </dev/null 2>/dev/null |
                openssl x509 -noout -serial 2>/dev/null
            """)
        return Int(shown.stdout.dropFirst("serial=".count).prefix(while: \.isHexDigit), radix: 16)
    }

    private func waitUntilServed(_ serial: Int, _ program: Program, _ server: Subprocess) throws {
        let deadline = ContinuousClock.now + .seconds(600)
        while try servedSerial(program) != serial {
            try #require(ContinuousClock.now < deadline, "serial \(serial) is not served")
            usleep(50_000)
        }
    }

    @Test("Envoy does, and sees them by itself", .enabled(if: Program.envoyProgram != nil))
    func envoyRenewals() throws {
        let program = try #require(Program.envoyProgram)
        // The service has no way into the folder of the build.
        try #require(try sandbox.shell("install -m 755 \"$1\" \"$HOME/envoy\"", program).status == 0)
        try renewals(program: .envoy)
    }

    @Test("A program serves each of five renewed certificates, and no request fails", arguments: Program.all)
    func renewals(program: Program) throws {
        try prepare(program)
        let certprov = ["--config", home + "/web.properties"]
        try issue(1)
        // Nothing runs yet that could be told.
        try tell("")
        try #require(try sandbox.certprov(["fetch"] + certprov).status == 0)
        try tell(localised(program.reload))
        #expect(mode(home + "/identity/current/key.pem") == 0o640)

        let server = try sandbox.start(["/bin/sh", "-c", asService("exec " + localised(program.start))])
        defer {
            server.kill(SIGTERM)
            _ = server.wait()
        }
        try waitUntilServed(1, program, server)
        let load = try sandbox.start([
            "/bin/sh", "-c",
            """
            cd "$HOME"
            while [ ! -e enough ]; do
                if \(localised(program.request)); then echo ok >>done; else echo $? >>failed; fi
            done
            """,
        ])
        defer {
            _ = FileManager.default.createFile(atPath: home + "/enough", contents: nil)
            _ = load.wait()
        }
        for serial in 2...6 {
            let before = try lines("done")
            try issue(serial)
            try sandbox.certprov(["fetch", "--force"] + certprov).require()
            try waitUntilServed(serial, program, server)
            // Some requests see this certificate.
            let deadline = ContinuousClock.now + .seconds(600)
            while try lines("done") < before + 3 {
                let failed = try lines("failed")
                try #require(
                    ContinuousClock.now < deadline && (failed == 0 || program.dropsRequests), "requests fail: \(failed)"
                )
                usleep(20_000)
            }
        }
        let failed = try lines("failed")
        #expect(failed == 0 || program.dropsRequests, "\(failed) requests failed")
        // Nothing is to be done, so that nothing is told.
        try tell("exit 1")
        try sandbox.certprov(["renew"] + certprov).expect()
    }

    private func lines(_ name: String) throws -> Int {
        guard let data = FileManager.default.contents(atPath: "\(home)/\(name)") else { return 0 }
        return data.count { $0 == 0x0a }
    }

    @Test("A failed reload is an error, and is made up for by the next renew")
    func aFailedReload() throws {
        try tell("echo \"$1\" >>\(home)/told; exit $(cat \(home)/status)")
        let file = try sandbox.configure(
            "Files.directory = \(home)/out", "Files.reload = \(home)/reload", to: "files.properties")
        try sandbox.write("1", to: "home/status")
        let failed = try sandbox.certprov(["fetch", "--json", "--config", file])
        #expect(failed.status == 69, "\(failed)")
        let message = try #require(try failed.errorDocuments().first?["message"].string)
        #expect(try failed.document("Identity")["files"].keys == ["certificate", "chain"], "\(failed)")
        #expect(message.contains("failed with status 1. The files are there"), "\(message)")
        let check = try sandbox.certprov(["check", "--config", file])
        #expect(check.stdout.contains("Programs have not been told of the files"), "\(check)")
        for count in 2...3 {
            try sandbox.write(count == 2 ? "1" : "0", to: "home/status")
            let renewed = try sandbox.certprov(["renew", "--config", file]).expect(count == 2 ? 69 : 0)
            #expect(renewed.stdout.contains("\nreloaded: \(home)/reload\n") == (count == 3), "\(renewed)")
            #expect(renewed.stdout.contains("not due"), "\(renewed)")
            #expect(try lines("told") == count)
        }
        let done = try sandbox.certprov(["renew", "--json", "--config", file])
        #expect(try done.document("Renewal")["files"].keys == ["certificate", "chain"])
        #expect(try !done.document("Renewal").keys.contains("reloaded"))
        #expect(try lines("told") == 3)
        // A file that was changed by hand, and one that went.
        try sandbox.write("damaged", to: "\(home)/out/current/chain.pem")
        #expect(try sandbox.certprov(["check", "--config", file]).stdout.contains("not those of the stored identity"))
        #expect(try sandbox.certprov(["renew", "--config", file]).status == 0)
        #expect(try lines("told") == 4)
        #expect(try sandbox.certprov(["check", "--config", file]).stdout.contains("has the stored identity"))
        try sandbox.certprov(["delete", "--yes", "--config", file]).expect(
            stderr: "the files of \(home)/out/current stay, since programs may read them")
        try FileManager.default.removeItem(atPath: "\(home)/reload")
        let missing = try sandbox.certprov(["check", "--config", file]).stdout
        #expect(missing.contains("\(home)/reload is missing, or cannot be executed"), "\(missing)")
    }

    @Test("check fails with the status of fetch, where that could not write the files or tell of them")
    func checkIsAsFetch() throws {
        func run(_ command: String, _ lines: String..., options: [String] = []) throws -> Output {
            let file = try sandbox.write(
                (lines + [
                    "CertificateProvider = pkcs12", "CertificateProvider.pkcs12.path = \(Fixtures.path("ec.p12"))",
                    "CertificateProvider.pkcs12.password-source = env:P12_PASSWORD",
                ]).joined(separator: "\n"), to: "files.properties")
            return try sandbox.certprov([command, "--config", file] + options)
        }
        try FileManager.default.createDirectory(atPath: "\(home)/open", withIntermediateDirectories: false)
        let open = try sandbox.write("", to: "home/open/file")
        chmod("\(home)/open", 0o777)
        try sandbox.write("", to: "home/empty")
        chmod("\(home)/empty", 0o600)
        for (lines, status) in [
            (["Files.directory = \(home)/none/out"], 73), (["Files.directory = \(home)/open"], 73),
            (["Files.directory = \(open)"], 73),
            (["Files.directory = \(home)/out", "Files.reload = \(home)/none"], 69),
            (
                [
                    "Files.directory = \(home)/out", "Files.key = true", "Files.formats = pkcs12",
                    "Files.p12-password-source = file:\(home)/empty",
                ], 78
            ),
        ] as [([String], Int32)] {
            let text = lines.joined(separator: "\n")
            for command in ["check", "fetch", "check"] {
                try run(command, text).expect(status, about: "\(command) \(text)")
            }
        }
        let directory = "Files.directory = \(home)/out"
        #expect(try run("renew", directory).status == 0)
        #expect(try run("check", directory).status == 0)
        try run("fetch", directory, options: ["--out", "\(home)/out"]).expect(64, stderr: "Files.directory")
    }

    @Test(
        "check knows by its capabilities whether files can get another owner and group",
        .enabled(if: geteuid() == 0, "only root can pass a capability on"))
    func theOwnerTakesACapability() throws {
        let file = try sandbox.configure(
            pkcs12: Fixtures.path("ec.p12"), "Files.directory = \(home)/out", "Files.owner = 12345",
            "Files.group = 12346", to: "owner.properties")
        for (user, options, mayGive) in [
            ("65534", ["--reuid", "65534", "--inh-caps", "+chown", "--ambient-caps", "+chown"], true),
            ("65534", ["--reuid", "65534"], false), ("0", ["--bounding-set", "-chown", "--inh-caps", "-chown"], false),
            ("0", [], true),
        ] {
            try sandbox.shell("chown -R \"$2\" \"$1\"", sandbox.path, user).expect()
            let output = try sandbox.run(
                ["setpriv", "--clear-groups"] + options + [BuiltCommand.path, "check", "--config", file])
            #expect(output.stdout.contains("which takes the capability CAP_CHOWN") == !mayGive, "\(options) \(output)")
            #expect(output.status == (mayGive ? 0 : 73), "\(options) \(output)")
        }
    }

    @Test(
        "Files go through no directory of another user: none of a property file below one, and no link of its owner",
        .enabled(if: geteuid() == 0, "only root can give a directory away"))
    func theOwnersAbove() throws {
        func configuration(_ name: String, _ directory: String, _ fixture: String) throws -> String {
            try sandbox.configure(
                pkcs12: Fixtures.path(fixture), "Files.directory = \(home)/\(directory)", "Files.key = true",
                to: "\(name).properties")
        }
        try sandbox.shell("mkdir -p \"$HOME/app/tls\" \"$HOME/nginx\"").require()
        let nginx = try configuration("nginx", "nginx/identity", "ec.p12")
        let app = try configuration("app", "app/tls/identity", "rsa.p12")
        for file in [nginx, app] {
            try sandbox.certprov("fetch", "--config", file).expect()
        }
        let before = try FileManager.default.destinationOfSymbolicLink(atPath: "\(home)/nginx/identity/current")
        // The directory is given to the application, whose user leads elsewhere.
        try sandbox.shell(
            """
            set -e; cd "$HOME"; chown 65534 app app/tls
            """
        ).require()
        for command in ["check", "renew", "fetch"] {
            let refused = try sandbox.certprov(command, "--config", app)
            #expect(
                refused.status == 73 && (refused.stdout + refused.stderr).contains("belongs to another user"),
                "\(refused)")
        }
        try sandbox.shell(
            """
            set -e; cd "$HOME"; mv app/tls app/moved; ln -s ../nginx app/tls
            """
        ).require()
        for arguments in [
            ["renew", "--config", app],
            ["fetch", "--out", "\(home)/app/tls/identity"] + adHoc(Fixtures.path("rsa.p12")),
        ] {
            try sandbox.certprov(arguments).expect(73, stderr: "does not follow it")
        }
        #expect(try FileManager.default.destinationOfSymbolicLink(atPath: "\(home)/nginx/identity/current") == before)
        // A person at a terminal may write there, through no link.
        try sandbox.certprov(["fetch", "--out", "\(home)/app/moved/out"] + adHoc(Fixtures.path("rsa.p12"))).expect()
    }
}
