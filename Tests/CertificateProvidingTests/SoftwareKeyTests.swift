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

    @Test(arguments: KeyType.allCases) func aKeyFitsItsTypeAlone(type: KeyType) throws {
        let key = try SoftwareKey.generate(type, location: .store).publicKey
        #expect(KeyType.allCases.filter { $0.fits(key) } == [type])
    }

    @Test func decryptsOnlyWhatIsForAnRSAKey() async throws {
        let directory = try TemporaryDirectory()
        try directory.write("content".utf8, to: "content")
        for command in [
            "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out whole",
            "pkcs8 -topk8 -nocrypt -in whole -outform DER -out pkcs8", "pkey -in whole -pubout -out public",
            "pkeyutl -encrypt -pubin -inkey public -in content -out encrypted",
        ] {
            try Subprocess.run(["openssl"] + command.split(separator: " ").map(String.init), in: directory.path)
        }
        let key = try SoftwareKey(pkcs8: SecretBytes(copying: directory.read("pkcs8")), location: .file)
        let encrypted = try directory.read("encrypted")
        let decrypter = try #require(key.decrypter)
        #expect(try await decrypter.decrypt(encrypted) == SecretBytes(copying: Array("content".utf8)))
        for damaged in [[], Array(encrypted.dropLast()), encrypted + [0], [UInt8](repeating: 0xff, count: 256)] {
            let error = await #expect(throws: CertificateProviderError.self) { try await decrypter.decrypt(damaged) }
            #expect(error?.code == .malformedData)
        }
        for kind in TestAuthority.KeyKind.allCases where kind != .rsa2048 {
            #expect(try Self.authority.get().issue("signer", kind: kind).key.decrypter == nil)
        }
    }

    @Test func refusesAMixedPair() throws {
        let authority = try Self.authority.get()
        let (one, other) = (try authority.issue("one"), try authority.issue("other"))
        #expect {
            try Identity(certificateChain: one.certificateChain, key: other.key, provenance: one.provenance)
        } throws: { ($0 as? CertificateProviderError)?.code == .keyMismatch }
    }

    @Test(arguments: ["prime256v1", "secp384r1", "secp521r1"])
    func fitsACertificateWithACompressedPoint(curve: String) async throws {
        let directory = try TemporaryDirectory()
        for command in [
            "ecparam -name \(curve) -genkey -noout -out whole", "ec -in whole -conv_form compressed -out key",
            "req -x509 -new -key key -subj /CN=x -outform DER -out der",
            "pkcs8 -topk8 -nocrypt -in whole -outform DER -out pkcs8",
        ] {
            try Subprocess.run(["openssl"] + command.split(separator: " ").map(String.init), in: directory.path)
        }
        let certificate = try X509Certificate(derRepresentation: directory.read("der"))
        let key = try SoftwareKey(pkcs8: SecretBytes(copying: directory.read("pkcs8")), location: .file)
        #expect(certificate.publicKey.derRepresentation.count < key.publicKey.derRepresentation.count)
        let identity = try Identity(
            certificateChain: [certificate], key: key, provenance: .init(provider: ProviderID("test")))
        try await identity.verifyPossession()
    }
}
