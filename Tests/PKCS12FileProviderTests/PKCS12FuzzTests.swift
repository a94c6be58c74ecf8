import CertificateProviding
import Foundation
import OpenSSLSupport
import TestSupport
import Testing

@testable import PKCS12FileProvider

/// Damaged PKCS#12 files, the same ones in every run. Whatever is in them, the answer is an identity or a typed error.
@Suite struct PKCS12FuzzTests {
    /// Files without encryption, where a change reaches the innermost structure, and some with.
    private static func seeds() throws -> [[UInt8]] {
        var seeds: [[UInt8]] = []
        for kind in TestAuthority.KeyKind.allCases {
            let identity = try Samples.identity("seed", kind: kind)
            for isIndefinite in [false, true] {
                let builder = PFXBuilder(isIndefinite: isIndefinite)
                let bags = try builder.bags(of: identity, name: "näme", id: [1, 2])
                seeds.append(builder.file(bags))
                seeds.append(builder.file(parts: bags.map { builder.data([builder.nested([$0])]) }))
            }
        }
        let builder = PFXBuilder()
        let identity = try Samples.identity("seed")
        seeds.append(
            try builder.file(parts: [builder.data(try builder.bags(of: identity))]) { content in
                try PBMAC1().macData(content, password: "secret")
            })
        let directory = try TemporaryDirectory()
        let key = PEM.text("PRIVATE KEY", try identity.pkcs8)
        try directory.write(Array((identity.certificate.pemRepresentation + key).utf8), to: "pem")
        for options in [["-nomac"], ["-legacy"], ["-nomac", "-keypbe", "NONE"]] {
            try Subprocess.run(
                ["openssl", "pkcs12", "-export", "-in", "pem", "-passout", "pass:secret", "-iter", "1", "-out", "p12"]
                    + options, in: directory.path)
            seeds.append(try directory.read("p12"))
        }
        let field = FieldFiles.rows.compactMap { try? Data(contentsOf: URL(filePath: $0.path)) }
        // Most of the time goes to those without encryption; large ones only cost time.
        return Array([[[UInt8]]](repeating: seeds, count: 8).joined())
            + field.filter { $0.count < 8192 }.map(Array.init)
    }

    private enum PEM {
        static func text(_ type: String, _ der: [UInt8]) -> String {
            "-----BEGIN \(type)-----\n\(Data(der).base64EncodedString(options: .lineLength64Characters))\n-----END \(type)-----\n"
        }
    }

    private static let codes: [ProviderError.Code] = [
        .malformedData, .wrongPassword, .unsupportedAlgorithm, .keyMismatch, .notFound,
    ]

    @Test(.enabled(if: TestLength.hasSeconds, "it takes seconds"))
    func onlyEverThrowTypedErrors() throws {
        let library = OpenSSLLibrary()
        let password = SecretBytes(utf8: "secret")
        var mutator = Mutator(seeds: try Self.seeds(), seed: 20_260_101)
        var outcomes: [ProviderError.Code?: Int] = [:]
        var rounds = FuzzRounds(atLeast: 2500)
        while rounds.next() {
            let file = mutator.next()
            do throws(ProviderError) {
                var decoder = PKCS12Decoder(library: library, password: password)
                let contents = try decoder.decode(file)
                let (identities, failures) = contents.identities(fallbackAlias: "file")
                for error in failures + contents.unusable {
                    #expect(Self.codes.contains(error.code), "\(error) in \(file.hexEncoded)")
                }
                for identity in identities {
                    _ = identity.isCalled("seed")
                    _ = try? SoftwareKey(pkcs8: identity.key.pkcs8, location: .file)
                }
                outcomes[identities.isEmpty ? .notFound : nil, default: 0] += 1
            } catch {
                #expect(Self.codes.contains(error.code), "\(error) in \(file.hexEncoded)")
                outcomes[error.code, default: 0] += 1
            }
        }
        // The loop does reach the code behind the structure.
        #expect(outcomes[nil, default: 0] > 20 && outcomes[.malformedData, default: 0] > 20, "\(outcomes)")
    }
}
