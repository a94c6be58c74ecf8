import CertificateProviding
import Foundation
import OpenSSLSupport
import PEMFileProvider
import TestSupport
import Testing

/// Private keys in every form that OpenSSL and GnuTLS write.
@Suite(.timeLimit(.minutes(20))) struct KeyFormTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    struct Form: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var kind: TestAuthority.KeyKind
        /// A command that reads the key in `key.pem` and writes `other.pem`.
        var command: [String]
        var isEncrypted = false
        var label: String
    }

    private static func pkcs8(_ name: String, _ kind: TestAuthority.KeyKind, _ arguments: String...) -> Form {
        Form(
            testDescription: "\(kind.rawValue), \(name)", kind: kind,
            command: ["openssl", "pkcs8", "-topk8", "-in", "key.pem", "-out", "other.pem", "-passout", "pass:right"]
                + arguments,
            isEncrypted: true, label: "ENCRYPTED PRIVATE KEY")
    }

    /// PKCS#8 with a cipher of certtool.
    private static func certtool(_ cipher: String, _ kind: TestAuthority.KeyKind = .p256) -> Form {
        Form(
            testDescription: "\(kind.rawValue), certtool with \(cipher)", kind: kind,
            command: [
                "certtool", "--to-p8", "--load-privkey", "key.pem", "--password", "right", "--pkcs-cipher", cipher,
                "--outfile", "other.pem",
            ], isEncrypted: true, label: "ENCRYPTED PRIVATE KEY")
    }

    static let forms: [Form] = [
        Form(
            testDescription: "RSA, PKCS#1", kind: .rsa2048,
            command: ["openssl", "rsa", "-traditional", "-in", "key.pem", "-out", "other.pem"], label: "RSA PRIVATE KEY"
        ),
        Form(
            testDescription: "EC, SEC1", kind: .p256,
            command: ["openssl", "ec", "-in", "key.pem", "-out", "other.pem"],
            label: "EC PRIVATE KEY"),
        Form(
            testDescription: "EC 384, SEC1", kind: .p384,
            command: ["openssl", "ec", "-in", "key.pem", "-out", "other.pem"],
            label: "EC PRIVATE KEY"),
        Form(
            testDescription: "RSA, PKCS#8", kind: .rsa2048,
            command: ["openssl", "pkey", "-in", "key.pem", "-out", "other.pem"],
            label: "PRIVATE KEY"),
        Form(
            testDescription: "Ed25519, PKCS#8", kind: .ed25519,
            command: ["openssl", "pkey", "-in", "key.pem", "-out", "other.pem"],
            label: "PRIVATE KEY"),
        Form(
            testDescription: "RSA, Proc-Type with AES", kind: .rsa2048,
            command: [
                "openssl", "rsa", "-traditional", "-aes256", "-passout", "pass:right", "-in", "key.pem", "-out",
                "other.pem",
            ],
            isEncrypted: true, label: "RSA PRIVATE KEY"),
        Form(
            testDescription: "EC, Proc-Type with 3DES", kind: .p256,
            command: ["openssl", "ec", "-des3", "-passout", "pass:right", "-in", "key.pem", "-out", "other.pem"],
            isEncrypted: true, label: "EC PRIVATE KEY"),
        pkcs8("PBES2 with AES", .p256, "-v2", "aes-256-cbc"),
        pkcs8("PBES2 with AES and SHA-512", .rsa2048, "-v2", "aes-128-cbc", "-v2prf", "hmacWithSHA512"),
        pkcs8("PBES2 with 3DES", .p256, "-v2", "des3"),
        pkcs8("PBES2 with scrypt", .p256, "-scrypt"),
        pkcs8("PBES1 of PKCS#12 with 3DES", .p256, "-v1", "PBE-SHA1-3DES"),
        pkcs8("PBES1 with DES", .rsa2048, "-v1", "PBE-MD5-DES", "-provider", "legacy", "-provider", "default"),
        pkcs8("Ed25519 in PBES2", .ed25519, "-v2", "aes256"),
        certtool("aes-128"), certtool("aes-192"), certtool("aes-256", .rsa2048), certtool("3des", .p521),
        certtool("3des-pkcs12"), certtool("rc2-40"), certtool("arcfour", .ed25519),
        Form(
            testDescription: "RSA, certtool with text", kind: .rsa2048,
            command: ["certtool", "--key-info", "--infile", "key.pem", "--outfile", "other.pem"],
            label: "RSA PRIVATE KEY"),
    ]

    @Test("A private key is read in each form, and a wrong password is said", arguments: forms)
    func keysAreRead(_ form: Form) async throws {
        let identity = try TestAuthority().issue("client", kind: form.kind)
        try directory.write(try identity.keyPEM, to: "key.pem")
        try Subprocess.run(form.command, in: directory.path)
        chmod(directory["other.pem"], 0o600)
        let key = String(decoding: try directory.read("other.pem"), as: UTF8.self)
        #expect(key.contains("-----BEGIN \(form.label)-----"))
        // In either order in one file, with parameters and text between.
        let parameters = try String(
            decoding: Subprocess.run(["openssl", "ecparam", "-name", "prime256v1"]), as: UTF8.self)
        for text in [parameters + key + "\nchain:\n" + identity.chainPEM, identity.chainPEM + key] {
            let path = try directory.write(text, to: "both.pem")
            func provider(_ password: String?) throws -> PEMFileProvider {
                try .testing(
                    ["certificate": path].merging(password == nil ? [:] : ["key-password-source": "env:PW"]) { $1 },
                    .testing(variables: password.map { ["PW": $0] } ?? [:]))
            }
            let read = try await provider(form.isEncrypted ? "right" : nil).fetch()
            #expect(read.certificateChain == identity.certificateChain)
            #expect(read.key.publicKey == identity.key.publicKey)
            guard form.isEncrypted else { continue }
            for (password, advice) in [("wrong", "Check 'key-password-source'"), (nil, "Set 'key-password-source'")] {
                let error = await failure { try await provider(password).fetch() }
                #expect(
                    error?.code == .wrongPassword && error?.message.contains(advice) == true, "\(error?.message ?? "")")
                #expect(error?.message.contains("\(path), line ") == true)
            }
        }
    }

    /// GnuTLS writes one byte more than other programs of half of all EC keys, so that several are made of each curve.
    @Test(
        "A private key that certtool has made is read, plain and encrypted",
        arguments: [
            ["rsa", "--sec-param", "medium"], ["ecdsa", "--sec-param", "high"], ["ecdsa", "--sec-param", "ultra"],
            ["ecdsa", "--curve", "secp384r1"], ["ed25519"],
        ], [false, true])
    func keysOfCerttool(_ type: [String], isEncrypted: Bool) async throws {
        let (directory, authority) = (try TemporaryDirectory(), try TestAuthority())
        for _ in 0..<(type[0] == "ecdsa" ? 4 : 1) {
            try Subprocess.run(
                ["certtool", "--generate-privkey", "--outfile", "key.pem", "--key-type"] + type
                    + (isEncrypted ? ["--pkcs8", "--password", "right"] : []), in: directory.path)
            let publicKey = try Subprocess.run(
                ["openssl", "pkey", "-in", "key.pem", "-passin", "pass:right", "-pubout", "-outform", "DER"],
                in: directory.path)
            try directory.write(try authority.certify(publicKey, as: "web").pemRepresentation, to: "web.pem")
            var parameters = ["certificate": directory["web.pem"], "key": directory["key.pem"]]
            if isEncrypted { parameters["key-password-source"] = "env:PW" }
            let identity = try await PEMFileProvider.testing(parameters, .testing(variables: ["PW": "right"])).fetch()
            #expect(identity.key.publicKey.derRepresentation == publicKey)
            guard isEncrypted else { continue }
            let wrong = try PEMFileProvider.testing(parameters, .testing(variables: ["PW": "wrong"]))
            #expect(await code { try await wrong.fetch() } == .wrongPassword)
        }
    }

    @Test("A wrong password after which the padding is right by chance is a wrong password")
    func paddingByChance() async throws {
        try directory.write(try TestAuthority().issue("client").chainPEM, to: "web.pem")
        // A block that the wrong password decrypts to no key.
        let script = """
            umask 077
            iv=00112233445566778899AABBCCDDEEFF
            key=$(openssl enc -aes-128-cbc -md md5 -pass pass:wrong -S 0011223344556677 -P 2>/dev/null | sed -n 's/^key=//p')
            {
                printf -- '-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,%s\n\n' "$iv"
                printf 'no key, and no structure' | openssl enc -aes-128-cbc -K "$key" -iv "$iv" | base64
                echo '-----END EC PRIVATE KEY-----'
            } >key.pem
            """
        try Subprocess.run(["sh", "-c", script], in: directory.path)
        let provider = try PEMFileProvider.testing(
            ["certificate": directory["web.pem"], "key": directory["key.pem"], "key-password-source": "env:PW"],
            .testing(variables: ["PW": "wrong"]))
        #expect(await code { try await provider.fetch() } == .wrongPassword)
    }

    @Test("A key in a form that is not for files is refused with the way round")
    func otherForms() async throws {
        let identity = try TestAuthority().issue("client")
        for (label, advice) in [
            ("TSS2 PRIVATE KEY", "tpm:/"), ("OPENSSH PRIVATE KEY", "ssh-keygen -p -m PKCS8"),
            ("DSA PRIVATE KEY", "not supported"),
        ] {
            let key = try identity.keyPEM.replacing("PRIVATE KEY", with: label)
            let path = try directory.write(key + identity.chainPEM, to: "both.pem")
            let error = await failure { try await PEMFileProvider.testing(["certificate": path]).fetch() }
            #expect(
                error?.code == .unsupportedAlgorithm && error?.message.contains(advice) == true,
                "\(error?.message ?? "")")
            #expect(error?.message.contains("\(path), line 1: ") == true)
        }
    }

    @Test("A key whose password is derived at too great a cost is refused before the work")
    func costIsBounded() async throws {
        let identity = try TestAuthority().issue("client")
        try directory.write(try identity.keyPEM, to: "key.pem")
        try Subprocess.run(
            [
                "openssl", "pkcs8", "-topk8", "-in", "key.pem", "-outform", "DER", "-out", "key.der", "-passout",
                "pass:x", "-iter",
                "8388608",
            ], in: directory.path)
        var der = try directory.read("key.der")
        let iterations: [UInt8] = [2, 4, 0, 0x80, 0, 0]
        let start = try #require((0..<der.count - 6).first { Array(der[$0..<$0 + 6]) == iterations })
        der[start + 2] = 0x7f
        let text =
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\n\(Data(der).base64EncodedString())\n-----END ENCRYPTED PRIVATE KEY-----\n"
        let path = try directory.write(text + identity.chainPEM, to: "both.pem")
        let error = await failure {
            try await PEMFileProvider.testing(
                ["certificate": path, "key-password-source": "env:PW"], .testing(variables: ["PW": "x"])
            ).fetch()
        }
        #expect(error?.code == .malformedData && error?.message.contains("iterations") == true)
    }

    @Test(
        "A key that openssl pkey reads is read, however it is written",
        arguments: [
            { $0 }, { $0.replacing("\n", with: "\r\n") }, { $0.replacing("\n", with: " \n") },
            { $0.replacing("KEY-----\n", with: "KEY-----\t\n") }, { String($0.dropLast()) },
            { "Key of web:\n" + $0 + "end\n" },
            { $0.split(separator: "\n").map { $0.hasPrefix("--") ? "\($0)\n" : " \($0)\n" }.joined() },
            { text in
                let lines = text.split(separator: "\n")
                return "\(lines[0])\n\(lines.dropFirst().dropLast().joined())\n\(lines[lines.count - 1])\n"
            },
            { String($0.dropLast(30)) }, { $0.replacing("M", with: "*") },
        ] as [@Sendable (String) -> String])
    func keysBesideOpenSSL(_ write: @Sendable (String) -> String) async throws {
        let identity = try TestAuthority().issue("client")
        let certificate = try directory.write(identity.chainPEM, to: "chain.pem")
        let key = try directory.write(write(try identity.keyPEM), to: "key.pem")
        let openSSL = try Subprocess(["openssl", "pkey", "-noout", "-in", key], .captured(), seconds: 60).wait()
        let ours = await failure {
            try await PEMFileProvider.testing(["certificate": certificate, "key": key]).fetch()
        }
        #expect((ours == nil) == (openSSL.status == 0), "\(ours?.message ?? "")")
        #expect(ours == nil || ours?.code == .malformedData)
    }
}
