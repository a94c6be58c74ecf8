import CertificateProviding
import Foundation
import TestSupport
import Testing

/// Signatures that tokens make, verified by two libraries that have nothing to do with them.
@Suite(.timeLimit(.minutes(20))) struct SigningTests {
    @Test(arguments: KeyCase.all) func everySchemeVerifies(_ test: KeyCase) async throws {
        let identity = try await TokenSetup(test.module, .main, test.kind).identity()
        #expect(identity.key.location == .token && identity.key.exporter == nil)
        #expect(identity.key.signatureSchemes == test.schemes)
        for scheme in identity.key.signatureSchemes {
            // OpenSSL's command reads no empty file for Ed25519.
            for message in [scheme == .ed25519 ? [0] : [], Array("drawer".utf8), [UInt8](repeating: 7, count: 5000)] {
                let signature = try await identity.key.signature(for: message, using: scheme)
                #expect(identity.key.publicKey.isValidSignature(signature, for: message, using: scheme), "\(scheme)")
                try OpenSSLVerifier.verify(signature, of: message, scheme, by: identity.key.publicKey)
            }
        }
    }

    /// A file of 100 MB is hashed outside, and the token gets its digest.
    @Test("A token signs the digests that the caller has made", arguments: KeyCase.all)
    func everyDigestVerifies(_ test: KeyCase) async throws {
        let key = try await TokenSetup(test.module, .main, test.kind).identity().key
        #expect(key.use == .signing)
        guard let signer = key.digestSigner else {
            // The schemes of the others depend on their mechanisms.
            #expect(test.kind == .ed25519 || !TestModule.softHSMs.contains(test.module))
            return
        }
        #expect(test.kind != .ed25519 && Set(signer.digestSchemes).isSubset(of: key.signatureSchemes))
        if TestModule.softHSMs.contains(test.module) { #expect(signer.digestSchemes == key.signatureSchemes) }
        let message = Array("drawer".utf8)
        for scheme in signer.digestSchemes {
            let digest = try #require(scheme.digestAlgorithm).digest(of: message)
            let signature = try await signer.signature(forDigest: digest, using: scheme)
            #expect(key.publicKey.isValidSignature(signature, for: message, using: scheme), "\(scheme)")
            try scheme.opensslVerify(signature, ofDigest: digest, by: key.publicKey)
            let short = await failure { _ = try await signer.signature(forDigest: digest.dropLast(), using: scheme) }
            #expect(short?.code == .malformedData)
        }
        let other = await failure { _ = try await signer.signature(forDigest: [1], using: .ed25519) }
        #expect(other?.code == .unsupportedAlgorithm)
    }

    @Test(arguments: KeyCase.all) func anotherSchemeIsRefused(_ test: KeyCase) async throws {
        let key = try await TokenSetup(test.module, .main, test.kind).identity().key
        let other: SignatureScheme = test.kind == .p256 ? .ecdsaP384SHA384 : .ecdsaP256SHA256
        #expect(await failure { _ = try await key.signature(for: [1], using: other) }?.code == .unsupportedAlgorithm)
    }

    /// Sixteen tasks share a key, 200 signatures each, of messages of their own.
    @Test(arguments: TestModule.installed) func manyTasksSignAtOnce(module: TestModule) async throws {
        let key = try await TokenSetup(module).identity().key
        let scheme = try #require(key.signatureSchemes.first)
        // A TPM takes milliseconds for each.
        let rounds = module == .tpm ? 20 : 200
        try await withThrowingTaskGroup(of: Int.self) { tasks in
            for task in 0..<16 {
                tasks.addTask {
                    var valid = 0
                    for round in 0..<rounds {
                        let message = Array("\(task) \(round)".utf8)
                        let signature = try await key.signature(for: message, using: scheme)
                        if key.publicKey.isValidSignature(signature, for: message, using: scheme) {
                            valid += 1
                        }
                    }
                    return valid
                }
            }
            var valid = 0
            for try await count in tasks { valid += count }
            #expect(valid == 16 * rounds)
        }
    }
}

extension KeyCase {
    /// The schemes that the module has for the key.
    var schemes: [SignatureScheme] {
        switch kind {
        case .p256: [.ecdsaP256SHA256]
        case .p384: [.ecdsaP384SHA384]
        case .p521: [.ecdsaP521SHA512]
        case .ed25519: [.ed25519]
        case .rsa2048:
            [
                .rsaPSSRSAESHA256, .rsaPSSRSAESHA384, .rsaPSSRSAESHA512, .rsaPKCS1SHA256, .rsaPKCS1SHA384,
                .rsaPKCS1SHA512,
            ]
        }
    }
}

enum OpenSSLVerifier {
    /// - Throws: When `openssl` does not find the signature valid.
    static func verify(
        _ signature: [UInt8], of message: [UInt8], _ scheme: SignatureScheme, by key: PublicKeyInfo
    ) throws {
        let folder = try TemporaryDirectory()
        let base64 = Data(key.derRepresentation).base64EncodedString(options: .lineLength64Characters)
        let publicKey = try folder.write(
            "-----BEGIN PUBLIC KEY-----\n\(base64)\n-----END PUBLIC KEY-----\n".utf8, to: "key")
        let (signed, signature) = (try folder.write(message, to: "message"), try folder.write(signature, to: "sig"))
        if scheme == .ed25519 {
            try Subprocess.run([
                "openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", publicKey, "-in", signed, "-sigfile",
                signature,
            ])
            return
        }
        let hash =
            scheme.description.hasSuffix("256")
            ? "-sha256" : scheme.description.hasSuffix("384") ? "-sha384" : "-sha512"
        let pss = ["-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:digest"]
        try Subprocess.run(
            ["openssl", "dgst", hash, "-verify", publicKey, "-signature", signature]
                + (scheme.description.contains("pss") ? pss : []) + [signed])
    }
}
