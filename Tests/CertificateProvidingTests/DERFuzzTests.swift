import CertificateProviding
import SwiftASN1
import TestSupport
import Testing
import X509

/// Damaged certificates and keys, the same ones in every run.
@Suite struct DERFuzzTests {
    private static let identities = Result {
        let authority = try TestAuthority()
        return try TestAuthority.KeyKind.allCases.map { try authority.issue("seed, \"näme\"", kind: $0) }
    }

    /// Runs `body` on damaged seeds and returns how often it did not throw.
    private func fuzz(
        _ seeds: [[UInt8]], _ seed: UInt64, atLeast count: Int, _ codes: [ProviderError.Code],
        _ body: ([UInt8]) throws(ProviderError) -> Void
    ) -> Int {
        var mutator = Mutator(seeds: seeds, seed: seed)
        var rounds = FuzzRounds(atLeast: count)
        var accepted = 0
        while rounds.next() {
            let bytes = mutator.next()
            do throws(ProviderError) {
                try body(bytes)
                accepted += 1
            } catch {
                #expect(codes.contains(error.code), "\(error) in \(bytes.hexEncoded)")
            }
        }
        return accepted
    }

    @Test func certificates() throws {
        let party = try TestParty("names")
        let upn = try GeneralName.OtherName(
            typeID: [1, 3, 6, 1, 4, 1, 311, 20, 2, 3], value: ASN1Any(erasing: ASN1UTF8String("a@b")))
        let names = SubjectAlternativeNames([
            .dnsName("a"), .ipAddress(ASN1OctetString(contentBytes: [1, 2, 3, 4])), .rfc822Name("a@b"),
            .uniformResourceIdentifier("x://y"), .directoryName(party.name), .registeredID([1, 2]), .otherName(upn),
        ])
        let named = try party.certify(nil, [Certificate.Extension(names, critical: false)])
        let seeds =
            try Self.identities.get().flatMap { $0.certificateChain.map(\.derRepresentation) }
            + [named.derRepresentation]
        let accepted = fuzz(seeds, 3, atLeast: 3000, [.malformedData]) { bytes throws(ProviderError) in
            let certificate = try X509Certificate(derRepresentation: bytes)
            _ = certificate.permits(.client)
            _ = CertificateChain.build(from: certificate, among: [certificate])
            _ = try? certificate.certificate()
            for name in certificate.subjectAlternativeNames {
                _ = name.normalized
                #expect(!name.description.unicodeScalars.contains { $0.value < 0x20 || $0.value == 0x7f })
            }
            _ = try? CertificateRequest.Names(subject: "", subjectAlternativeNames: certificate.subjectAlternativeNames)
            #expect(!certificate.subject.unicodeScalars.contains { $0.value < 0x20 || $0.value == 0x7f })
        }
        #expect(accepted > 10, "the check reaches what it is about")
    }

    @Test("Damaged lists of alternative names are read or refused as malformed")
    func listsOfNames() {
        let seeds = [#"dns:a.example, ip:2001:db8::1,"uri:https://a.example/x,y" ,upn:a@b"#, #""email:\"a\\"@b""#]
        let accepted = fuzz(seeds.map { Array($0.utf8) }, 6, atLeast: 3000, [.malformedData]) {
            bytes throws(ProviderError) in
            let names = try AlternativeName.list(String(decoding: bytes, as: UTF8.self))
            // Names of configurations can be in a request.
            _ = try CertificateRequest.Names(subject: "", subjectAlternativeNames: names)
        }
        #expect(accepted > 5, "the check reaches what it is about")
    }

    @Test("Damaged public keys are read or refused as malformed")
    func publicKeys() throws {
        let keys = try Self.identities.get().map(\.key.publicKey)
        let accepted = fuzz(keys.map(\.derRepresentation), 4, atLeast: 3000, [.malformedData]) {
            bytes throws(ProviderError) in
            let key = try PublicKeyInfo(derRepresentation: bytes)
            _ = key.displayName
            for scheme in [SignatureScheme.ecdsaP256SHA256, .ed25519, .rsaPSSRSAESHA256] {
                #expect(!key.isValidSignature(bytes, for: [1], using: scheme))
            }
        }
        #expect(accepted > 10, "the check reaches what it is about")
    }

    @Test("Damaged private keys are read or refused as malformed or unsupported")
    func privateKeys() throws {
        let seeds = try Self.identities.get().map { identity in
            let key = try #require(identity.key.exporter)
            return try key.pkcs8Representation().withUnsafeBytes { Array($0) }
        }
        let accepted = fuzz(seeds, 5, atLeast: 2000, [.malformedData, .unsupportedAlgorithm]) {
            bytes throws(ProviderError) in
            let pkcs8 = SecretBytes(copying: bytes)
            _ = try? PublicKeyInfo(ofPrivateKey: pkcs8)
            _ = try SoftwareKey(pkcs8: pkcs8, location: .file)
        }
        #expect(accepted > 5, "the check reaches what it is about")
    }
}
