import CertificateProviding
import PKCS12FileProvider
import SwiftASN1
import TestSupport
import Testing

/// RSA keys that other software makes, and that TLS cannot use here.
@Suite struct KeyLimitsTests {
    private let builder = PFXBuilder()

    /// A PKCS#12 file with an RSA key and a certificate for it. Nothing signs with the key.
    private func file(modulusBits bits: Int, isMultiPrime: Bool) throws -> (FileFixture, X509Certificate) {
        let modulus = PFXBuilder.element(2, [0, 0x80] + [UInt8](repeating: 0xff, count: bits / 8 - 1))
        let exponent = PFXBuilder.integer(65537)
        let algorithm = builder.sequence(PFXBuilder.oid([1, 2, 840, 113549, 1, 1, 1]), [5, 0])
        let spki = builder.sequence(
            algorithm, PFXBuilder.element(3, [0] + builder.sequence(modulus, exponent)))
        let numbers =
            [PFXBuilder.integer(isMultiPrime ? 1 : 0), modulus, exponent]
            + [[UInt8]](repeating: PFXBuilder.integer(3), count: 6)
            + (isMultiPrime ? [builder.sequence(builder.sequence([2, 1, 3], [2, 1, 3], [2, 1, 3]))] : [])
        let key = builder.sequence(
            PFXBuilder.integer(0), algorithm, builder.octets(builder.constructed(0x30, numbers)))
        let certificate = try Samples.identity("rsa").certificate.replacing(.publicKey, with: spki)
        let bags = [builder.key(key), builder.certificate(certificate)]
        return (try FileFixture(builder.file(bags)), certificate)
    }

    @Test("A key with three primes is refused with the reason, and is not listed as an identity")
    func threePrimes() async throws {
        let (fixture, _) = try file(modulusBits: 3072, isMultiPrime: true)
        let provider = try PKCS12FileProvider.testing(fixture.path)
        let error = try await provider.failure()
        #expect(error.code == .unsupportedAlgorithm && error.message.contains("more than two primes"), "\(error)")
        let list = await provider.listIdentities()
        #expect(list.identities.isEmpty && list.failures.map(\.code) == [.unsupportedAlgorithm], "\(list)")
    }

    @Test("A key that is too large is refused with the limit, and cannot be chosen")
    func tooLarge() async throws {
        let (fixture, certificate) = try file(modulusBits: 16384, isMultiPrime: false)
        let provider = try PKCS12FileProvider.testing(fixture.path)
        let error = try await provider.failure()
        #expect(error.code == .unsupportedAlgorithm, "\(error)")
        #expect(error.message.contains("has 16384 bits; at most 8192 are supported"), "\(error)")
        let list = await provider.listIdentities()
        #expect(list.identities.map(\.certificateChain) == [[certificate]])
        if case .failure(let error)? = list.choice {
            #expect(error.code == .unsupportedAlgorithm)
        } else {
            Issue.record("\(list)")
        }
    }
}
