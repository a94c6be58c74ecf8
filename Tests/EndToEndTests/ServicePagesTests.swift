import Foundation
import Glibc
import TestSupport
import Testing

/// The book's pages about other projects' services: their blocks are used as they are, with the paths and the port of the test.
@Suite(.enabled(if: TestLength.hasSeconds), .timeLimit(.minutes(20))) struct ServicePagesTests {
    private let sandbox: Sandbox
    private var home: String { sandbox.path + "/home" }

    init() throws { sandbox = try Sandbox() }

    // MARK: - A TPM

    /// The setup of the page on tokens, but for the token. The page has the command for the file with the PIN.
    static func tokenSetup(_ page: Page) throws -> String {
        let pin = try #require(page.text.firstMatch(of: #/`(\(umask 077; [^`]+ >pin\))`/#)?.1)
        return """
            \(pin)
            openssl req -x509 -newkey rsa:2048 -noenc -keyout ca.key -out ca.pem -days 2 -subj /CN=CA
            openssl req -newkey rsa:2048 -noenc -keyout server.key -out server.csr -subj /CN=localhost
            echo subjectAltName=DNS:localhost >server.ext
            openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -days 2 -extfile server.ext -out server.pem
            openssl s_server -www -accept 8443 -cert server.pem -key server.key -CAfile ca.pem -Verify 1 \\
                -verify_return_error >server.log 2>&1 & server=$!
            """
    }

    @Test("A TPM becomes a token by the commands of the page, and its key makes a handshake")
    func tpm() throws {
        let page = try Page("Documentation/Tokens.md")
        // Its TPM, by a resource manager as the kernel has one; the page makes a token of its own.
        let host = try TokenHost(.tabrmd)
        var variables = host.variables.filter { $0.key != "TPM2_PKCS11_STORE" && $0.key != "LD_PRELOAD" }
        variables["TPM2_PKCS11_STORE"] = host.sandbox.path + "/home/tpm2_pkcs11"
        let typist = Page.root.appending(path: "Tests/TokenHosts/typist").path
        var setup = try Self.tokenSetup(page)
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

    // MARK: - nginx and curl

    @Test("nginx and curl sign with the key of a token by the blocks of the page, and with its file of the PIN")
    func engines() throws {
        let page = try Page("Documentation/Tokens.md")
        let heading = "nginx, curl and haproxy"
        let nginx = try #require(page.blocks("nginx", under: heading).first).components(separatedBy: "\n\n")
        let curl = try #require(page.blocks("sh", under: heading).first)
        try #require(nginx.count == 2)
        let configuration = try sandbox.write(
            "directories.tokendir = \(home)/tokens\nlog.level = ERROR\n", to: "softhsm2.conf")
        let variables = ["SOFTHSM2_CONF": configuration]
        // All but the handshake, which has another server.
        var steps = page.steps
        try #require(steps.removeLast().command.hasPrefix("certprov connect "))
        steps.append(Transcript.Step(command: "certprov fetch $T --out \(home)/identity", output: ["…"]))
        let setup = try Self.tokenSetup(page).components(separatedBy: "\n").prefix(2).joined(separator: "\n")
        try sandbox.expect(steps, after: "mkdir -m 700 tokens\n" + setup, with: variables)

        let port = try ReservedPort()
        func localised(_ text: String) -> String {
            text.replacing(#/\/etc\/(nginx|demo)/#, with: home).replacing("DIR/", with: "\(home)/identity/")
                .replacing("8443", with: "\(port)")
        }
        try sandbox.write(
            localised(
                """
                daemon off; pid \(home)/pid; user root; worker_processes 1; error_log stderr;
                env SOFTHSM2_CONF; \(nginx[0])
                events {}
                http {
                    access_log off; client_body_temp_path \(home)/t1; proxy_temp_path \(home)/t2;
                    fastcgi_temp_path \(home)/t3; uwsgi_temp_path \(home)/t4; scgi_temp_path \(home)/t5;
                    server {
                        listen 8443 ssl;
                        \(nginx[1])
                        ssl_client_certificate \(home)/ca.pem;
                        ssl_verify_client on;
                        return 200 "client $ssl_client_s_dn";
                    }
                }

                """), to: "home/nginx.conf")
        // The certificate of the server is that of the client.
        try sandbox.write("insecure\nsilent\nshow-error\n", to: "home/.curlrc")
        let module = ["PKCS11_MODULE_PATH": "/usr/lib/softhsm/libsofthsm2.so"]
        let server = try sandbox.start(
            ["nginx", "-c", home + "/nginx.conf", "-e", "stderr"], with: variables.merging(module) { $1 })
        defer {
            server.kill(SIGTERM)
            _ = server.wait()
        }
        try sandbox.shell(
            """
            cd "$HOME"
            for look in $(seq 600); do [ -s pid ] && break; sleep 0.1; done
            \(localised(curl))
            """, with: variables
        ).expect(stdout: "client CN=client")
    }

    private func localisedModule(_ line: String) -> String {
        #if arch(arm64)
            line.replacing("x86_64-linux-gnu", with: "aarch64-linux-gnu")
        #else
            line
        #endif
    }
}
