import CertificateProviding
import Foundation
import Signing

/// A time-stamp server by `openssl ts`, for as long as this object lives.
final class StampServer {
    private let process = Process()
    let server: TimeStampServer

    /// - Parameter host: Its directory is that of the server, and goes with it.
    init(_ host: SigningHost) async throws {
        let script = """
            import http.server, subprocess

            class Handler(http.server.BaseHTTPRequestHandler):
                def do_POST(self):
                    with open("query", "wb") as file:
                        file.write(self.rfile.read(int(self.headers["Content-Length"])))
                    command = "openssl ts -reply -config tsa.cnf -queryfile query -out reply"
                    subprocess.run(command.split(), check=True, stderr=subprocess.DEVNULL)
                    self.send_response(200)
                    self.send_header("Content-Type", "application/timestamp-reply")
                    self.end_headers()
                    with open("reply", "rb") as file:
                        self.wfile.write(file.read())

                def log_message(self, *arguments):
                    pass

            server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
            with open("port", "w") as file:
                print(server.server_port, file=file)
            server.serve_forever()
            """
        let folder = host.directory.path
        let configuration = """
            [tsa]
            default_tsa = own
            [own]
            serial = \(folder)/serial
            signer_cert = \(folder)/tsa.pem
            signer_key = \(folder)/tsa.key
            signer_digest = sha256
            default_policy = 1.2.3.4.1
            digests = sha256
            ess_cert_id_alg = sha256
            """
        try Data((configuration + "\n").utf8).write(to: host.file("tsa.cnf"))
        try host.run([
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-noenc", "-keyout", "tsa.key", "-out", "tsa.pem",
            "-days", "1", "-subj", "/CN=Time stamps", "-addext", "keyUsage=critical,digitalSignature", "-addext",
            "extendedKeyUsage=critical,timeStamping",
        ])
        process.executableURL = URL(filePath: "/usr/bin/env")
        process.arguments = ["python3", "-c", script]
        process.currentDirectoryURL = host.directory
        process.environment = host.environment
        process.standardInput = FileHandle.nullDevice
        try process.run()
        let port = host.file("port")
        func number() -> String? {
            (try? String(contentsOf: port, encoding: .utf8)).flatMap {
                $0.hasSuffix("\n") ? String($0.dropLast()) : nil
            }
        }
        try await until("the time-stamp server listens") { [process] in number() != nil || !process.isRunning }
        let anchors = try CertificateFile.read(host.file("tsa.pem").path)
        var server = try TimeStampServer("http://127.0.0.1:\(number() ?? "")/", anchors: anchors)
        server.timeout = .seconds(600)
        self.server = server
    }

    deinit {
        guard process.isRunning else { return }
        kill(process.processIdentifier, SIGKILL)
        process.waitUntilExit()
    }
}
