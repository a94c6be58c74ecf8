import CertificateProviding
import TestSupport
import Testing

@Suite struct SoftwareKeyTests {
    static let authority = Result { try TestAuthority() }

    @Test(arguments: TestAuthority.KeyKind.allCases)
    func signsWithEverySchemeItOffers(kind: TestAuthority.KeyKind) async throws {
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

    private static let privateKeys = [
        "EC -pkeyopt ec_paramgen_curve:P-256", "EC -pkeyopt ec_paramgen_curve:P-384",
        "EC -pkeyopt ec_paramgen_curve:P-521", "RSA -pkeyopt rsa_keygen_bits:2048",
        "RSA -pkeyopt rsa_keygen_bits:2049", "RSA -pkeyopt rsa_keygen_bits:2056",
        "RSA-PSS -pkeyopt rsa_keygen_bits:2048", "ED25519",
    ]

    private func key(_ options: String) throws -> SoftwareKey {
        let directory = try TemporaryDirectory()
        let command = "openssl genpkey -algorithm \(options) -outform DER -out key"
        try Subprocess.run(command.split(separator: " ").map(String.init), in: directory.path)
        try Subprocess.openssl(
            "pkcs8", "-topk8", "-nocrypt", "-inform", "DER", "-in", "key", "-outform", "DER", "-out", "pkcs8",
            in: directory.path)
        return try SoftwareKey(pkcs8: SecretBytes(copying: directory.read("pkcs8")), location: .file)
    }

    @Test("The signature of a digest is one of the message, also for openssl", arguments: privateKeys)
    func signsDigests(options: String) async throws {
        let key = try key(options)
        #expect(key.digestSchemes == key.signatureSchemes.filter { $0 != .ed25519 })
        guard let signer = key.digestSigner else {
            #expect(options == "ED25519")
            let error = await failure {
                try await key.signature(forDigest: [UInt8](repeating: 1, count: 64), using: .ed25519)
            }
            #expect(
                error?.code == .unsupportedAlgorithm && error?.message.hasSuffix("let it sign the message.") == true)
            return
        }
        let message = Array("to be signed".utf8)
        for scheme in signer.digestSchemes {
            let digest = try #require(scheme.digestAlgorithm).digest(of: message)
            let signature = try await signer.signature(forDigest: digest, using: scheme)
            #expect(key.publicKey.isValidSignature(signature, for: message, using: scheme), "\(scheme)")
            try scheme.opensslVerify(signature, ofDigest: digest, by: key.publicKey)
            for wrong in [[], Array(digest.dropLast()), digest + [0]] {
                let error = await failure { try await signer.signature(forDigest: wrong, using: scheme) }
                #expect(error?.code == .malformedData)
                #expect(error?.message.contains("has \(wrong.count) bytes instead of \(digest.count)") == true)
            }
        }
        for other in [.ed25519, SignatureScheme(rawValue: 0xfe00)] {
            #expect(
                await failure { try await signer.signature(forDigest: [UInt8](repeating: 1, count: 32), using: other) }?
                    .code == .unsupportedAlgorithm)
        }
    }

    /// RSASSA-PSS with SHA-512 needs 130 bytes for the digest, the salt and the marks around them.
    @Test func aKeyThatIsTooSmallForASchemeSignsNoDigest() async throws {
        let key = try key("RSA -pkeyopt rsa_keygen_bits:1024")
        let error = await failure {
            try await key.signature(forDigest: [UInt8](repeating: 1, count: 64), using: .rsaPSSRSAESHA512)
        }
        #expect(error?.code == .unsupportedAlgorithm && error?.message.contains("too small") == true)
    }

    @Test("A key has the uses of its type, and no other can be set", arguments: privateKeys)
    func hasTheUsesOfItsType(options: String) throws {
        var key = try key(options)
        let all: KeyUse = [.signing, .pkcs1Decryption, .oaepDecryption]
        #expect(key.use == (options.hasPrefix("RSA ") ? all : .signing))
        key.use = .oaepDecryption
        #expect(key.use == (options.hasPrefix("RSA ") ? .oaepDecryption : []))
        #expect(key.signatureSchemes.isEmpty && key.digestSigner == nil)
    }

    @Test("A key without a record of its uses has those that work")
    func theUseOfAKeyIsWhatWorks() throws {
        var key = try SoftwareKey.generate(.rsa2048, location: .store)
        for use in [.signing, .oaepDecryption, [.signing, .pkcs1Decryption], key.use] as [KeyUse] {
            key.use = use
            #expect(TestKey(key, decrypter: key.decrypter).use == use)
        }
    }

    @Test(arguments: KeyType.allCases) func aKeyFitsItsTypeAlone(type: KeyType) throws {
        let key = try SoftwareKey.generate(type, location: .store).publicKey
        #expect(KeyType.allCases.filter { $0.fits(key) } == [type])
    }

    /// Ciphertexts of OpenSSL's command.
    @Test("An RSA key decrypts ciphertexts by openssl and refuses damaged ones", arguments: DecryptionScheme.known)
    func decryptsOnlyWhatIsForAnRSAKey(scheme: DecryptionScheme) async throws {
        let directory = try TemporaryDirectory()
        try directory.write("content".utf8, to: "content")
        for command in [
            "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out whole",
            "pkcs8 -topk8 -nocrypt -in whole -outform DER -out pkcs8", "pkey -in whole -pubout -out public",
            "pkeyutl -encrypt -pubin -inkey public -in content -out encrypted \(scheme.opensslOptions)",
        ] {
            try Subprocess.run(["openssl"] + command.split(separator: " ").map(String.init), in: directory.path)
        }
        let key = try SoftwareKey(pkcs8: SecretBytes(copying: directory.read("pkcs8")), location: .file)
        let encrypted = try directory.read("encrypted")
        let decrypter = try #require(key.decrypter)
        #expect(decrypter.decryptionSchemes == DecryptionScheme.known)
        #expect(try await decrypter.decrypt(encrypted, using: scheme) == SecretBytes(utf8: "content"))
        for damaged in [[], Array(encrypted.dropLast()), encrypted + [0], [UInt8](repeating: 0xff, count: 256)] {
            #expect(await failure { try await decrypter.decrypt(damaged, using: scheme) }?.code == .malformedData)
        }
        // By another scheme, all failures look the same.
        for other in decrypter.decryptionSchemes where other != scheme {
            let foreign =
                other == .rsaPKCS1
                ? try DecryptionScheme.opensslEncryptWithWrongPadding(for: key.publicKey) : encrypted
            #expect(await failure { try await decrypter.decrypt(foreign, using: other) }?.code == .malformedData)
        }
        let own = try key.publicKey.encrypt(SecretBytes(utf8: "content"), using: scheme)
        try directory.write(own, to: "own")
        let command = "openssl pkeyutl -decrypt -inkey whole -in own \(scheme.opensslOptions)"
        let output = try Subprocess.run(command.split(separator: " ").map(String.init), in: directory.path)
        #expect(output == Array("content".utf8))
        for kind in TestAuthority.KeyKind.allCases where kind != .rsa2048 {
            #expect(try Self.authority.get().issue("signer", kind: kind).key.decrypter == nil)
        }
    }

    @Test("A key decrypts only by the schemes that its use permits")
    func decryptsByTheSchemesOfItsUse() async throws {
        var key = try SoftwareKey.generate(.rsa2048, location: .store)
        for (use, schemes) in [
            (KeyUse.oaepDecryption, [.rsaOAEPSHA256, .rsaOAEPSHA1]), ([.signing, .pkcs1Decryption], [.rsaPKCS1]),
            (.signing, []),
        ] as [(KeyUse, [DecryptionScheme])] {
            key.use = use
            #expect((key.decrypter?.decryptionSchemes ?? []) == schemes && use.decryptionSchemes == schemes)
            for scheme in DecryptionScheme.known + [DecryptionScheme(rawValue: "x")] where !schemes.contains(scheme) {
                #expect(
                    await failure { try await key.decrypt([UInt8](repeating: 1, count: 256), using: scheme) }?.code
                        == .unsupportedAlgorithm)
            }
        }
    }

    @Test("Only an RSA key encrypts, and only content that fits")
    func encryptsWhatFitsForRSAAlone() throws {
        let key = try SoftwareKey.generate(.rsa2048, location: .store).publicKey
        for (scheme, overhead) in zip(DecryptionScheme.known, [66, 42, 11]) {
            let longest = [UInt8](repeating: 7, count: 256 - overhead)
            #expect(try key.encrypt(SecretBytes(copying: longest), using: scheme).count == 256)
            #expect(
                failure { try key.encrypt(SecretBytes(copying: longest + [7]), using: scheme) }?.code
                    == .operationNotAllowed)
        }
        let ec = try SoftwareKey.generate(.p256, location: .store).publicKey
        for (key, scheme) in [(ec, .rsaOAEPSHA256), (key, DecryptionScheme(rawValue: "x"))] {
            #expect(failure { try key.encrypt(SecretBytes(utf8: "x"), using: scheme) }?.code == .unsupportedAlgorithm)
        }
    }

    @Test("An identity with a key that does not match the certificate is refused")
    func refusesAMixedPair() throws {
        let authority = try Self.authority.get()
        let (one, other) = (try authority.issue("one"), try authority.issue("other"))
        #expect(
            failure {
                try Identity(certificateChain: one.certificateChain, key: other.key, provenance: one.provenance)
            }?.code == .keyMismatch)
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
