import Foundation
import TestSupport
import Testing

/// A vendor's library that prints on both streams.
@Suite struct NoisyModuleTests {
    private let sandbox: Sandbox
    private let library: String

    init() throws {
        library = try FaultyModuleLibrary.path()
        sandbox = try Sandbox()
        try sandbox.makeFaultyToken()
    }

    private func certprov(_ arguments: String...) throws -> Output {
        try sandbox.run(command(arguments), with: variables)
    }

    private var variables: [String: String] {
        ["FAULTY_MODULE_TOKEN": sandbox.path + "/home", "FAULTY_MODULE_NOISE": "1"]
    }

    private func command(_ arguments: [String], pin: String = "pin") -> [String] {
        [BuiltCommand.path] + arguments + [
            "--uri", "pkcs11:token=remote", "--set", "module-path=\(library)", "--set",
            "pin-source=file:\(sandbox.path)/\(pin)",
        ]
    }

    @Test("Output of a noisy module does not mix with the command's")
    func nothingIsHeardOfIt() throws {
        #expect(try certprov("list", "--json").expect(stderr: "").document("IdentityList")["items"].array.count == 1)
        let fetched = try certprov("fetch")
        #expect(fetched.status == 0 && !fetched.description.contains("noise"), "\(fetched)")
    }

    @Test("With -v, output of a noisy module is on standard error")
    func whoAsksHearsItOnStandardError() throws {
        let output = try certprov("list", "--json", "-v")
        #expect(try output.document("IdentityList")["items"].array.count == 1)
        #expect(output.stderr.contains("noise on stdout") && output.stderr.contains("noise on stderr"), "\(output)")
    }

    /// The command's own words are heard all the same.
    @Test("Errors of the command are shown with a noisy module")
    func whatIsWrongIsSaid() throws {
        try sandbox.write("9999\n", to: "wrong")
        let output = try sandbox.run(command(["fetch"], pin: "wrong"), with: variables).expect(
            77, stderr: "rejects the PIN")
        #expect(!output.description.contains("noise"))
        let configuration = try sandbox.write(
            """
            CertificateProvider = pkcs11
            CertificateProvider.pkcs11.uri = pkcs11:token=remote?pin-value=1234
            CertificateProvider.pkcs11.module-path = \(library)

            """, to: "token.properties")
        try sandbox.run(
            [BuiltCommand.path, "list", "--config", configuration], with: variables
        ).expect(stderr: "pin-value")
    }

    /// Neither a result nor an error finds its way to a stream that was closed.
    @Test(arguments: [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"]) func aClosedStream(closed: String) throws {
        let words = command(["list", "--json"]).map { "'\($0)'" }.joined(separator: " ")
        let output = try sandbox.shell("\(words) \(closed)", with: variables).expect(
            closed.contains(" >&-") || closed.hasPrefix(">&-") ? 73 : 0)
        #expect(!output.description.contains("noise"))
    }
}
