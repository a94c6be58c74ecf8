import Foundation
import Glibc
import TestSupport
import Testing

/// The book's pages about other projects' services: their blocks are used as they are, with the paths and the port of the test.
@Suite(.enabled(if: TestLength.hasSeconds), .timeLimit(.minutes(20))) struct ServicePagesTests {
    private let sandbox: Sandbox
    private var home: String { sandbox.path + "/home" }

    init() throws { sandbox = try Sandbox() }

    // MARK: - nginx

    private func localised(_ block: String, port: ReservedPort) -> String {
        block.replacing("/etc/nginx", with: home).replacing("/etc/certprov", with: home).replacing("%i", with: "web")
            .replacing("/usr/bin/certprov", with: BuiltCommand.path).replacing("8443", with: "\(port)")
    }

    /// The value of the first line `name=`.
    private func value(_ name: String, of units: [String]) throws -> String {
        let lines = units.flatMap { $0.split(separator: "\n") }
        return String(try #require(lines.first { $0.hasPrefix("\(name)=") }).dropFirst(name.count + 1))
    }

    /// Makes `web.p12` anew, and what its clients are known by.
    private func issue(_ serial: Int) throws {
        let made = try sandbox.shell(
            """
            set -e; cd "$HOME"; umask 077
            openssl req -x509 -newkey rsa:2048 -noenc -days 9 -subj /CN=localhost -set_serial "$1" -keyout k -out c
            openssl pkcs12 -export -in c -inkey k -passout pass: -out new.p12
            mv new.p12 web.p12; mv c server.pem
            """, "\(serial)")
        try #require(made.status == 0, "\(made)")
    }

    @Test("nginx serves the identity with the files of the page, and a renewed one after the path unit's reload")
    func nginx() throws {
        let page = try Page("Documentation/Command.md")
        let port = try ReservedPort()
        let units = page.blocks("ini").map { localised($0, port: port) }
        let server = localised(try #require(page.blocks("nginx").first), port: port)
        let write = try value("ExecStartPost", of: units)
        let commands = page.blocks("sh").flatMap { localised($0, port: port).split(separator: "\n").map(String.init) }
        try #require(commands.first == write.replacing(BuiltCommand.path, with: "certprov"))
        try #require(commands.dropFirst().first?.hasSuffix("certprov-renew@web.timer nginx-identity.path") == true)
        try issue(1)
        try sandbox.write(
            "CertificateProvider = pkcs12\nCertificateProvider.pkcs12.path = \(home)/web.p12\n",
            to: "home/web.properties")
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map { "\($0)_temp_path \(home)/\($0);" }
        try sandbox.write(
            """
            daemon off; pid \(home)/pid; error_log stderr; events {}
            http { access_log off; \(temporary.joined(separator: " "))
            \(server)}
            """, to: "home/nginx.conf")
        let prepared = try sandbox.shell(
            """
            set -e; cd "$HOME"; \(write)
            openssl req -x509 -newkey rsa:2048 -noenc -days 9 -subj /CN=client -keyout client.key -out clients-ca.pem
            """)
        try #require(prepared.status == 0, "\(prepared)")
        let nginx = try sandbox.start(["/usr/sbin/nginx", "-c", home + "/nginx.conf", "-e", "stderr"])
        defer {
            nginx.kill(SIGTERM)
            _ = nginx.wait()
        }

        func answer(_ options: String) throws -> String {
            let url = "https://localhost:\(port)/"
            return try sandbox.shell(
                """
                cd "$HOME"; curl --silent --show-error --output answer --write-out '%{http_code}' --cacert server.pem \
                    --retry 30 --retry-connrefused --retry-delay 1 --retry-max-time 60 \(options) \(url)
                """
            ).stdout
        }
        let certificate = "--cert clients-ca.pem --key client.key"
        #expect(try answer("") == "400")
        #expect(try ["200", "403", "404"].contains(answer(certificate)))

        // The timer's next run: nothing has changed, and then there is a new certificate.
        let watch = try LinkWatch(try value("PathChanged", of: units))
        try #require(try sandbox.shell(write).status == 0)
        #expect(watch.events() == 0)
        try issue(2)
        try #require(try sandbox.shell("\(write) --force").status == 0)
        #expect(watch.events() > 0)
        #expect(try value("ExecStart", of: units) == "/usr/bin/systemctl reload nginx")
        kill(try #require(pid_t(String(decoding: contents(home + "/pid"), as: UTF8.self).filter(\.isNumber))), SIGHUP)
        // The former workers take connections until they have ended. Without a trusted certificate there is no answer.
        let deadline = ContinuousClock.now + .seconds(600)
        var last = ""
        while last.count != 3 || last == "000", ContinuousClock.now < deadline {
            last = try answer(certificate)
            usleep(50_000)
        }
        #expect(["200", "403", "404"].contains(last))
    }

    // MARK: - A TPM

    /// The setup of the page on tokens, but for the token.
    static let tokenSetup = """
        (umask 077; echo 123456 >pin)
        openssl req -x509 -newkey rsa:2048 -noenc -keyout ca.key -out ca.pem -days 2 -subj /CN=CA
        openssl req -newkey rsa:2048 -noenc -keyout server.key -out server.csr -subj /CN=localhost
        echo subjectAltName=DNS:localhost >server.ext
        openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -days 2 -extfile server.ext -out server.pem
        openssl s_server -www -accept 8443 -cert server.pem -key server.key -CAfile ca.pem -Verify 1 \\
            -verify_return_error >server.log 2>&1 & server=$!
        """

    @Test("A TPM becomes a token by the commands of the page, and its key makes a handshake")
    func tpm() throws {
        let page = try Page("Documentation/Tokens.md")
        // Its TPM, by a resource manager as the kernel has one; the page makes a token of its own.
        let host = try TokenHost(.tabrmd)
        var variables = host.variables.filter { $0.key != "TPM2_PKCS11_STORE" && $0.key != "LD_PRELOAD" }
        variables["TPM2_PKCS11_STORE"] = host.sandbox.path + "/home/tpm2_pkcs11"
        let typist = Page.root.appending(path: "Tests/TokenHosts/typist").path
        var setup = Self.tokenSetup
        for line in try #require(page.blocks("sh").first).components(separatedBy: "\n") where !line.hasPrefix("apt ") {
            let line = localisedModule(String(line).replacing("/var/lib/myservice", with: host.sandbox.path + "/home"))
            let answers = line.contains("--init-pin") ? "12345678 123456 123456" : "12345678 12345678"
            setup += line.hasPrefix("pkcs11-tool ") ? "\nexport M; \(typist) '\(line)' \(answers)" : "\n\(line)"
        }
        var steps = page.steps
        try #require(steps.removeFirst().command.hasPrefix("softhsm2-util ") && steps.count == 5)
        for index in steps.indices {
            steps[index].command.replace("/usr/lib/softhsm/libsofthsm2.so", with: "$M")
            // It is another model.
            if index < steps.count - 1 { steps[index].output = ["…"] }
        }
        try host.sandbox.expect(steps, after: setup, with: variables)
    }

    private func localisedModule(_ line: String) -> String {
        #if arch(arm64)
            line.replacing("x86_64-linux-gnu", with: "aarch64-linux-gnu")
        #else
            line
        #endif
    }
}

/// The events that systemd 252 gets for a path unit's `PathChanged=`: those of the link and of its target.
private final class LinkWatch {
    private let descriptor: Int32

    init(_ path: String) throws {
        descriptor = inotify_init1(Int32(IN_NONBLOCK) | Int32(IN_CLOEXEC))
        try #require(descriptor >= 0)
        let events = UInt32(
            IN_DELETE_SELF | IN_MOVE_SELF | IN_ATTRIB | IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_FROM
                | IN_MOVED_TO)
        for mask in [events | UInt32(IN_DONT_FOLLOW), events] {
            try #require(inotify_add_watch(descriptor, path, mask) >= 0)
        }
    }

    deinit { close(descriptor) }

    /// How many bytes of events have come.
    func events() -> Int {
        var buffer = [UInt8](repeating: 0, count: 4096)
        return max(0, read(descriptor, &buffer, buffer.count))
    }
}
