import CertificateProviding
import PKCS12FileProvider
import TestSupport
import Testing

/// Files as `openssl pkcs12 -export` writes them, with every algorithm that is met.
@Suite struct EncryptionTests {
    /// Of each kind a key and a certificate for it, PEM. Held in memory: a directory in a static would never be removed.
    private static let source = Result {
        let directory = try TemporaryDirectory()
        for (name, options) in keys {
            try Subprocess.run(
                ["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=\(name)", "-keyout", "\(name).key"]
                    + ["-out", "\(name).crt", "-newkey"] + options, in: directory.path)
        }
        return try Dictionary(
            uniqueKeysWithValues: keys.keys.map { name in
                (name, (key: try directory.read("\(name).key"), certificate: try directory.read("\(name).crt")))
            })
    }

    private static let keys = [
        "rsa2048": ["rsa:2048"], "rsa3072": ["rsa:3072"], "p256": ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
        "p384": ["ec", "-pkeyopt", "ec_paramgen_curve:P-384"], "p521": ["ec", "-pkeyopt", "ec_paramgen_curve:P-521"],
        "ed25519": ["ed25519"], "rsa1024": ["rsa:1024"],
        "pss": ["rsa-pss", "-pkeyopt", "rsa_keygen_bits:2048"],
    ]

    /// Writes a file with the certificate and key `name`.
    private func export(
        _ options: [String], name: String = "p256", password: String = "secret"
    ) throws -> TemporaryDirectory {
        let directory = try TemporaryDirectory()
        let source = try #require(try Self.source.get()[name])
        try directory.write(source.key, to: "key")
        try directory.write(source.certificate, to: "crt")
        try directory.write(Array(password.utf8) + [0x0a], to: "password")
        try Subprocess.run(
            ["openssl", "pkcs12", "-export", "-inkey", "key", "-in", "crt", "-name", name]
                + ["-passout", "file:password", "-out", "out.p12"] + options,
            in: directory.path)
        return directory
    }

    static let encryptions: [[String]] = [
        [], ["-legacy"], ["-nomac"], ["-iter", "1"], ["-iter", "1", "-maciter"], ["-keypbe", "NONE"],
        ["-certpbe", "NONE"], ["-keypbe", "NONE", "-certpbe", "NONE"],
        ["-keypbe", "NONE", "-certpbe", "NONE", "-nomac"],
        ["-legacy", "-keypbe", "PBE-SHA1-RC2-40", "-certpbe", "PBE-SHA1-RC2-40"],
        ["-legacy", "-keypbe", "PBE-SHA1-RC2-128", "-certpbe", "PBE-SHA1-RC4-128"],
        ["-keypbe", "PBE-SHA1-3DES", "-certpbe", "PBE-SHA1-2DES"],
        ["-legacy", "-keypbe", "PBE-MD5-DES", "-certpbe", "PBE-SHA1-DES"],
        ["-keypbe", "AES-128-CBC", "-certpbe", "AES-192-CBC", "-macalg", "sha384"],
        ["-keypbe", "AES-256-CBC", "-certpbe", "DES-EDE3-CBC", "-macalg", "sha1"],
        ["-keypbe", "CAMELLIA-256-CBC", "-certpbe", "ARIA-128-CBC", "-macalg", "sha512"],
        ["-macalg", "sha224"], ["-macalg", "sha3-256"], ["-macalg", "md5"],
    ]

    @Test(
        .enabled(if: TestLength.hasSeconds, "it takes seconds"),
        arguments: encryptions)
    func opens(options: [String]) async throws {
        let path = try export(options)
        let provider = try PKCS12FileProvider.testing(path["out.p12"], password: "secret")
        let list = await provider.listIdentities()
        #expect(list.failures.isEmpty)
        #expect(list.identities.map(\.alias) == ["p256"])
        #expect(try await provider.fetch().certificate.subject == "CN=p256")

        let everythingInTheClear = options.contains("-nomac") && options.contains("NONE")
        let wrong = try PKCS12FileProvider.testing(path["out.p12"], password: "wrong")
        if everythingInTheClear {
            _ = try await wrong.fetch()
        } else {
            let code = try await wrong.failure().code
            #expect(code == (options.contains("-nomac") ? .malformedData : .wrongPassword))
        }
    }

    @Test(arguments: ["rsa2048", "rsa3072", "p256", "p384", "p521", "ed25519", "pss"])
    func takesEveryKindOfKey(name: String) async throws {
        let path = try export([], name: name)
        let identity = try await PKCS12FileProvider.testing(path["out.p12"], password: "secret").fetch()
        #expect(identity.certificate.subject == "CN=\(name)")
        try await identity.verifyPossession()
    }

    @Test func listsAWeakKeyButDoesNotFetchIt() async throws {
        let path = try export([], name: "rsa1024")
        let provider = try PKCS12FileProvider.testing(path["out.p12"], password: "secret")
        let list = await provider.listIdentities()
        #expect(list.identities.count == 1 && list.failures.isEmpty)
        let error = try await provider.failure()
        #expect(error.code == .unsupportedAlgorithm && error.message.contains("1024 bits"))
    }

    /// As BER permits, and OpenSSL reads (X.690, section 8.1.3.5).
    @Test func aKeyWithALengthThatIsLongerThanNeedBeIsRead() async throws {
        let identity = try Samples.identity("long")
        let der = try identity.pkcs8
        let place = try #require(der.firstRange(of: [0x04, 0x6d, 0x30, 0x6b]))
        let long = [UInt8(0x04), 0x6e, 0x30, 0x81] + der[(place.upperBound - 1)...]
        let key = PFXBuilder.element(0x30, der[3..<place.lowerBound] + long)
        #expect(throws: ProviderError.self) { try PublicKeyInfo(ofPrivateKey: SecretBytes(copying: key)) }
        let builder = PFXBuilder()
        let file = try FileFixture(builder.file([builder.key(key), builder.certificate(identity.certificate)]))
        for _ in 0..<20 { try await PKCS12FileProvider.testing(file.path).fetch().verifyPossession() }
    }

    static let unusable = [
        ("DSA", ["genpkey", "-genparam", "-algorithm", "DSA", "-pkeyopt", "dsa_paramgen_bits:1024"]),
        ("1.3.132.0.10", ["EC", "-pkeyopt", "ec_paramgen_curve:secp256k1"]),
        ("1.3.36.3.3.2.8.1.1.7", ["EC", "-pkeyopt", "ec_paramgen_curve:brainpoolP256r1"]),
        ("explicit parameters", ["EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-pkeyopt", "ec_param_enc:explicit"]),
        ("X25519", ["X25519"]), ("X448", ["X448"]), ("Ed448", ["ED448"]),
        ("512 bits", ["RSA", "-pkeyopt", "rsa_keygen_bits:512"]),
    ]

    @Test(arguments: unusable) func namesAKeyThatItCannotUse(name: String, options: [String]) async throws {
        let directory = try TemporaryDirectory()
        if options.first == "genpkey" {
            try Subprocess.run(["openssl"] + options + ["-out", "parameters"], in: directory.path)
            try Subprocess.openssl("genpkey", "-paramfile", "parameters", "-out", "pem", in: directory.path)
        } else {
            try Subprocess.run(["openssl", "genpkey", "-out", "pem", "-algorithm"] + options, in: directory.path)
        }
        try Subprocess.openssl(
            "pkcs8", "-topk8", "-nocrypt", "-in", "pem", "-outform", "DER", "-out", "key", in: directory.path)
        let builder = PFXBuilder()
        let bags = [
            builder.key(try directory.read("key"), name: "odd", id: [1]),
            builder.certificate(try Samples.identity("other").certificate),
        ]
        let file = try FileFixture(builder.file(bags))
        let provider = try PKCS12FileProvider.testing(file.path)
        let list = await provider.listIdentities()
        #expect(list.identities.isEmpty)
        let error = try await provider.failure()
        if name == "512 bits" {
            // An RSA key of any size can be told from the others; this one has no certificate.
            #expect(error.code == .notFound, "\(error)")
        } else {
            #expect(error.code == .unsupportedAlgorithm && error.message.contains(name), "\(error)")
            #expect(list.failures.count == 1)
        }
    }

    static let passwords = [
        "a", "with space", "Mötley Crüe", "пароль", "密码", "\u{1F511}\u{1F600}", "e\u{301}", "€", "\u{FFFD}",
        String(repeating: "x", count: 300), "quote'\"\\$",
    ]

    @Test(arguments: passwords, [[], ["-legacy"], ["-nomac", "-keypbe", "AES-256-CBC"]])
    func opensWithAnyPassword(password: String, options: [String]) async throws {
        let path = try export(options, password: password)
        let identity = try await PKCS12FileProvider.testing(path["out.p12"], password: password).fetch()
        #expect(identity.certificate.subject == "CN=p256")
    }

    @Test(
        "A file without a password opens with none and with an empty one", arguments: [nil, ""] as [String?],
        [[], ["-legacy"], ["-nomac"]])
    func absentAndEmptyOpenTheSame(given: String?, options: [String]) async throws {
        let path = try export(options, password: "")
        _ = try await PKCS12FileProvider.testing(path["out.p12"], password: given).fetch()
        let wrong = try await PKCS12FileProvider.testing(path["out.p12"], password: "x").failure()
        #expect([.wrongPassword, .malformedData].contains(wrong.code))
    }

    @Test func saysThatAPasswordIsMissing() async throws {
        let path = try export([])
        let error = try await PKCS12FileProvider.testing(path["out.p12"]).failure()
        #expect(error.code == .wrongPassword && error.message.contains("set 'password-source'"))
    }

    @Test(arguments: ["sEcReT-ünd-\u{1F511}", "wrong-\u{1F511}"]) func neverShowsThePassword(password: String)
        async throws
    {
        let path = try export([], password: "sEcReT-ünd-\u{1F511}")
        let provider = try PKCS12FileProvider.testing(path["out.p12"], password: password)
        let list = await provider.listIdentities()
        let result = await Result { () async throws(ProviderError) in
            try await provider.getCertificate(NoUserInteraction())
        }
        var text = ""
        dump(result, to: &text)
        dump(list, to: &text)
        dump(provider, to: &text)
        text += "\(result) \(list) \(String(reflecting: result)) \(String(reflecting: list))"
        #expect(!text.contains(password))
    }
}
