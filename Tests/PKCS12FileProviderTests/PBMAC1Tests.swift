import CertificateProviding
import PKCS12FileProvider
import SwiftASN1
import TestSupport
import Testing

@Suite struct PBMAC1Tests {
    struct Case: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var code: ProviderError.Code?
        var change: @Sendable (inout PBMAC1) -> Void

        init(
            _ what: String, _ code: ProviderError.Code?, _ change: @escaping @Sendable (inout PBMAC1) -> Void
        ) { (testDescription, self.code, self.change) = (what, code, change) }
    }

    static let cases = [
        Case("as it should be", nil) { _ in },
        Case("damaged", .wrongPassword) { $0.isDamaged = true },
        Case("another PRF", .wrongPassword) { $0.prf = [1, 2, 840, 113549, 2, 11] },
        Case("the default PRF, SHA-1", .wrongPassword) { $0.prf = nil },
        Case("another MAC", .wrongPassword) { $0.authentication = [1, 2, 840, 113549, 2, 10] },
        Case("another key size", .wrongPassword) { $0.keySize = PFXBuilder.integer(20) },
        Case("an unknown PRF", .unsupportedAlgorithm) { $0.prf = [1, 2, 3] },
        Case("an unknown MAC", .unsupportedAlgorithm) { $0.authentication = [1, 2, 3] },
        Case("scrypt", .unsupportedAlgorithm) { $0.derivation = [1, 3, 6, 1, 4, 1, 11591, 4, 11] },
        Case("no key size", .malformedData) { $0.keySize = nil },
        Case("a key of no bytes", .malformedData) { $0.keySize = PFXBuilder.integer(0) },
        Case("a key of one byte", .malformedData) { $0.keySize = PFXBuilder.integer(1) },
        Case("a key of 2^40 bytes", .malformedData) { $0.keySize = PFXBuilder.integer(1 << 40) },
        Case("a key of -1 bytes", .malformedData) { $0.keySize = PFXBuilder.integer(-1) },
        Case("10^9 iterations", .malformedData) { $0.iterations = PFXBuilder.integer(1_000_000_000) },
        Case("no iterations", .malformedData) { $0.iterations = PFXBuilder.integer(0) },
        Case("-1 iterations", .malformedData) { $0.iterations = PFXBuilder.integer(-1) },
        Case("a salt that is a number", .malformedData) { $0.salt = PFXBuilder.integer(4) },
        Case("no salt", .malformedData) { $0.salt = [] },
    ]

    @Test(arguments: cases, ["secret", "Zoë\u{1F600}", ""]) func decides(row: Case, password: String) async throws {
        let identity = try Samples.identity("pbmac1")
        var mac = PBMAC1()
        row.change(&mac)
        let builder = PFXBuilder()
        let file = try builder.file(parts: [builder.data(try builder.bags(of: identity))]) { content in
            try mac.macData(content, password: password)
        }
        let fixture = try FileFixture(file)
        let provider = try PKCS12FileProvider.testing(fixture.path, password: password)
        if let code = row.code {
            #expect(try await provider.failure().code == code)
        } else {
            #expect(try await provider.fetch().certificateChain == identity.certificateChain)
            let wrong = try PKCS12FileProvider.testing(fixture.path, password: password + "x")
            #expect(try await wrong.failure().code == .wrongPassword)
        }
    }
}
