import CertificateProviding
import Foundation
import PKCS11TokenProvider
import TestSupport
import Testing

/// Keys that decrypt, in a token of each module: what OpenSSL's command has encrypted for them.
@Suite(.timeLimit(.minutes(20))) struct TokenDecryptionTests {
    @Test(arguments: [TokenHost.Module.softhsm, .nss, .remote, .tpm, .tabrmd, .remoteTabrmd])
    func aTokenDecryptsByWhatItsKeysOffer(module: TokenHost.Module) async throws { try await decrypt(module) }

    @Test(.enabled(if: TokenHost.runsOpencryptoki, TokenHost.whyNoOpencryptoki))
    func opencryptokiDecryptsByWhatItsKeysOffer() async throws { try await decrypt(.opencryptoki) }

    /// A process has one p11-kit, and its configuration is that of the token.
    private func decrypt(_ module: TokenHost.Module) async throws {
        let host = try TokenHost(module)
        var variables = host.variables
        (variables["CERTPROV_TEST_DECRYPTION"], variables["CERTPROV_TEST_PIN"]) = (module.rawValue, host.pin)
        try await Subprocess.runTests(
            ["withinTheProcessOfTheToken"], of: "EndToEndTests.TokenDecryptionTests/withinTheProcessOfTheToken",
            with: variables.map { "\($0)=\($1)" }, through: host.entrance)
        #expect(try host.leftInTPM().isEmpty)
    }

    private static let module = ProcessInfo.processInfo.environment["CERTPROV_TEST_DECRYPTION"]
        .flatMap(TokenHost.Module.init)

    private func store() throws -> any KeyStore {
        let environment = ProviderEnvironment.testing(keyStores: [(TokenKeyStore.descriptor, InMemoryStorage())])
        let pin = try #require(ProcessInfo.processInfo.environment["CERTPROV_TEST_PIN"])
        return try environment.keyStores.store("pkcs11:token=host?module-name=token", pinSource: .file(pin))
    }

    @Test(
        .serialized, .enabled(if: module != nil),
        arguments: [[.signing, .oaepDecryption], [.signing, .pkcs1Decryption], .signing] as [KeyUse])
    func withinTheProcessOfTheToken(use: KeyUse) async throws {
        let module = try #require(Self.module)
        let store = try store()
        let key = try await store.make(NewKey(.rsa2048, label: "decryption", use: use), NoUserInteraction()) { _ in }
        let reference = store.reference(to: key)
        let later = try self.store()
        let found = try #require(try later.storedKey(for: reference))
        for key in [key, found] {
            #expect((key.decrypter?.decryptionSchemes ?? []) == module.schemes(for: use))
            for scheme in key.signatureSchemes {
                let signature = try await key.signature(for: [1], using: scheme)
                #expect(key.publicKey.isValidSignature(signature, for: [1], using: scheme), "\(scheme)")
            }
            #expect(key.signatureSchemes.contains(.rsaPKCS1SHA256))
            if let decrypter = key.decrypter { try await check(decrypter, of: key.publicKey, module) }
        }
        try await store.destroy(reference, NoUserInteraction())
        await store.shutdown()
        await later.shutdown()
    }

    private func check(
        _ decrypter: any KeyDecrypting, of key: PublicKeyInfo, _ module: TokenHost.Module
    ) async throws {
        for scheme in decrypter.decryptionSchemes {
            // The version in Debian 12 does not decrypt an empty text by RSAES-PKCS1-v1_5.
            let empty = module == .opencryptoki && scheme == .rsaPKCS1 ? [] : [""]
            for text in empty + ["secret", String(repeating: "x", count: 100)] {
                let ciphertext = try scheme.opensslEncrypt(Array(text.utf8), for: key)
                #expect(
                    try await decrypter.decrypt(ciphertext, using: scheme) == SecretBytes(utf8: text),
                    "\(scheme), \(text.count) bytes")
            }
            // Of most, NSS makes random bytes by RSAES-PKCS1-v1_5.
            if module == .nss, scheme == .rsaPKCS1 { continue }
            let block = try DecryptionScheme.opensslEncryptWithWrongPadding(for: key)
            var damaged = [block, [UInt8](repeating: 0xff, count: 256), block.dropLast(), []]
            if scheme != .rsaPKCS1 {
                var flipped = try scheme.opensslEncrypt([1], for: key)
                flipped[100] ^= 1
                let other = scheme == .rsaOAEPSHA1 ? DecryptionScheme.rsaOAEPSHA256 : .rsaOAEPSHA1
                damaged += [flipped, try other.opensslEncrypt([1], for: key)]
            }
            let texts = await damaged.asyncMap { damaged in
                let error = await failure { try await decrypter.decrypt(damaged, using: scheme) }
                #expect(error?.code == .malformedData, "\(String(describing: error))")
                return error.map { "\($0) \($0.nativeCode ?? 0) \(String(describing: $0.underlying))" }
            }
            // Nothing tells one from the other.
            #expect(Set(texts).count == 1, "\(texts)")
        }
    }
}

extension TokenHost.Module {
    /// The schemes that a key offers that was made for a use. SoftHSM alone restricts a key to one kind of decryption, and
    /// tpm2-pkcs11 makes no key that may not decrypt.
    fileprivate func schemes(for use: KeyUse) -> [DecryptionScheme] {
        switch self {
        case .softhsm, .remote: use.decryptionSchemes.filter { $0 != .rsaOAEPSHA256 }
        case .tpm, .tabrmd, .remoteTabrmd: DecryptionScheme.known
        case .nss, .opencryptoki: use == .signing ? [] : DecryptionScheme.known
        }
    }
}

extension Sequence {
    fileprivate func asyncMap<T>(_ body: (Element) async throws -> T) async rethrows -> [T] {
        var all: [T] = []
        for element in self { all.append(try await body(element)) }
        return all
    }
}
