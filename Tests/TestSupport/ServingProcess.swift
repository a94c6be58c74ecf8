import Foundation
import Glibc

/// A TLS server with the identity and the trust of a property file, `SigningService serve`, for as long as this object lives.
public final class ServingProcess: Sendable {
    private let directory: TemporaryDirectory
    private let process: Subprocess
    private let port: String

    /// Returns when the server listens.
    ///
    /// - Parameters:
    ///   - arguments: The program and its first arguments; `serve` and the rest are added.
    ///   - start: Starts it, with captured output.
    public init(
        _ program: [String], configuredBy file: String, start: ([String]) throws -> Subprocess
    ) throws {
        directory = try TemporaryDirectory()
        process = try start(program + ["serve", file, directory["port"]])
        var port = ""
        while port.isEmpty {
            guard !process.hasEnded else {
                throw Subprocess.Failure(description: "the server does not start: \(process.wait())")
            }
            usleep(2000)
            port = (try? String(contentsOfFile: directory["port"], encoding: .utf8)) ?? ""
        }
        self.port = port
    }

    /// The serial number, in hexadecimal digits, of the certificate that the server has for OpenSSL's client; `nil` for a handshake
    /// that fails.
    ///
    /// - Parameters:
    ///   - options: The client's certificate and key, as options of `openssl s_client`.
    ///   - authorities: The file with the CAs that the server's certificate must be from.
    public func serialNumber(for options: [String], trustedBy authorities: String) throws -> String? {
        let script = """
            port=$1 authorities=$2; shift 2
            openssl s_client -connect "127.0.0.1:$port" -servername localhost -verify_hostname localhost \\
                -CAfile "$authorities" -verify_return_error -ign_eof "$@" </dev/null >answer 2>&1
            grep -q hello answer && openssl x509 -noout -serial <answer
            """
        let output = try Subprocess(
            ["/bin/sh", "-c", script, "sh", port, authorities] + options, in: directory.path, .captured(), seconds: 300
        ).wait()
        guard output.status == 0 else { return nil }
        return output.stdout.trimmingCharacters(in: .whitespacesAndNewlines).replacing("serial=", with: "")
    }

    /// Ends the server as a service manager does, and returns what it has logged.
    @discardableResult
    public func stop() -> Output {
        process.send(SIGTERM)
        return process.wait()
    }
}
