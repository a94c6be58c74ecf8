import Foundation
import Glibc
import TestSupport
import Testing

/// A token of SoftHSM in a sandbox, whose file `pin` has its PIN.
struct SoftToken: Sendable {
    static let library = "/usr/lib/softhsm/libsofthsm2.so"

    private let sandbox: Sandbox
    private let label: String
    private let pin: String

    /// Makes an empty one.
    init(in sandbox: Sandbox, _ label: String = "demo", pin: String = "123456") throws {
        (self.sandbox, self.label, self.pin) = (sandbox, label, pin)
        try #require(mkdir(sandbox.path + "/tokens", 0o700) == 0)
        try sandbox.write("directories.tokendir = \(sandbox.path)/tokens\nlog.level = ERROR\n", to: "softhsm2.conf")
        try sandbox.write(pin + "\n", to: "pin")
        try sandbox.run(
            ["softhsm2-util", "--init-token", "--free", "--label", label, "--pin", pin, "--so-pin", "12345678"],
            with: variables
        ).require()
    }

    /// By which programs find it. `PIN` is its PIN.
    var variables: [String: String] { ["SOFTHSM2_CONF": sandbox.path + "/softhsm2.conf", "PIN": pin] }

    /// Its objects, as OpenSC's tool sees them.
    func listing() throws -> String {
        try sandbox.run(
            ["pkcs11-tool", "--module", Self.library, "--token-label", label, "--login", "--pin", pin, "-O"],
            with: variables
        ).require().stdout
    }

    /// The lines that begin an object.
    func objects() throws -> [Substring] { try listing().split(separator: "\n").filter { $0.contains(" Object; ") } }

    /// Serves it by p11-kit, as a network's would be: SoftHSM itself does not bear to be killed while it writes.
    ///
    /// - Returns: The server, and the variables for programs that use ``P11KitClient``.
    func serve() throws -> (server: Subprocess, remote: [String: String]) {
        let socket = sandbox.path + "/p11-kit"
        let server = try Subprocess([
            "SOFTHSM2_CONF=\(sandbox.path)/softhsm2.conf", "p11-kit", "server", "-f", "-n", socket, "-p", Self.library,
            "pkcs11:token=\(label)",
        ])
        try #require(server.readLine() != nil)
        return (server, variables.merging(["P11_KIT_SERVER_ADDRESS": "unix:path=" + socket]) { $1 })
    }

    /// Removes the record of the PIN: two logins in a row that were killed leave it in doubt.
    func forgetLogins() throws {
        for name in try FileManager.default.subpathsOfDirectory(atPath: sandbox.path)
        where name.split(separator: "/").last?.hasPrefix("pins-") == true { unlink("\(sandbox.path)/\(name)") }
    }
}
