import CertificateProviding
import TestSupport
import Testing

@Suite struct SoftwareKeyTests {
    static let authority = Result { try TestAuthority() }

    @Test(arguments: TestAuthority.KeyKind.allCases)
    func signsWithEveryschemeItOffers(kind: TestAuthority.KeyKind) async throws {
        let identity = try Self.authority.get().issue("signer", kind: kind)
        let message = Array("to be signed".utf8)
        #expect(!identity.key.signatureSchemes.isEmpty)
        for scheme in identity.key.signatureSchemes {
            let signature = try await identity.key.signature(for: message, using: scheme)
            #expect(identity.certificate.publicKey.isValidSignature(signature, for: message, using: scheme))
            #expect(!identity.certificate.publicKey.isValidSignature(signature, for: message + [0], using: scheme))
        }
        try await identity.verifyPossession()
    }

    @Test func refusesAMixedPair() throws {
        let authority = try Self.authority.get()
        let (one, other) = (try authority.issue("one"), try authority.issue("other"))
        #expect {
            try Identity(certificateChain: one.certificateChain, key: other.key, provenance: one.provenance)
        } throws: { ($0 as? CertificateProviderError)?.code == .keyMismatch }
    }
}
