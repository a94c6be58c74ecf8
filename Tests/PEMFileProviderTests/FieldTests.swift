import CertificateProviding
import Foundation
import PEMFileProvider
import TestSupport
import Testing

/// Files from the field, where there is a folder of them beside the checkout.
@Suite struct FieldTests {
    private static let folder = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent().appending(path: "shared/testdata/field").path

    @Test(
        "Chains in any order, and with encrypted keys beside, are used with their key",
        .enabled(if: FileManager.default.fileExists(atPath: folder + "/key.pem")),
        arguments: [
            ("chain.pem", true), ("root-first.pem", true), ("begin-blank-second.pem", true),
            ("encrypted-key-last.pem", true), ("encrypted-key-first.pem", true),
            ("encrypted-key-last.pem", false), ("encrypted-key-first.pem", false),
        ])
    func chains(_ file: String, hasKeyApart: Bool) async throws {
        let directory = try TemporaryDirectory()
        for name in [file, "key.pem"] {
            try directory.write(Array(try Data(contentsOf: URL(filePath: Self.folder + "/" + name))), to: name)
        }
        var parameters = ["certificate": directory[file], "key-password-source": "env:PW"]
        if hasKeyApart { parameters["key"] = directory["key.pem"] }
        let provider = try PEMFileProvider.testing(parameters, .testing(variables: ["PW": "x"]))
        let chain = try await provider.fetch().certificateChain
        #expect(chain.map(\.subject) == ["CN=device", "CN=Device ICA"])
    }
}
