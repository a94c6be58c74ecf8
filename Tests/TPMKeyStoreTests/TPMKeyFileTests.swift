import CertificateProviding
import Foundation
import PEMFileProvider
import TestSupport
import Testing

@testable import TPMKeyStore

/// The form `TSS2 PRIVATE KEY`: what this store writes and reads, with OpenSSL's provider tpm2 and tpm2-tools as peers.
@Suite(.serialized, .enabled(if: TestLength.hasSeconds), .timeLimit(.minutes(20))) struct TPMKeyFileTests {
    private let store: TPMStore
    private let directory: TemporaryDirectory

    init() throws { (store, directory) = (try TPMStore(), try TemporaryDirectory()) }

    private func write(_ key: any IdentityKey, to name: String) throws {
        let wrapped = try #require(key.wrapped)
        #expect(wrapped.label == "TSS2 PRIVATE KEY")
        try write(wrapped.der.withUnsafeBytes { Array($0) }, to: name)
    }

    private func write(_ der: [UInt8], to name: String) throws {
        let text = Data(der).base64EncodedString(options: [.lineLength64Characters, .endLineWithLineFeed])
        try directory.write(
            "-----BEGIN TSS2 PRIVATE KEY-----\n\(text)\n-----END TSS2 PRIVATE KEY-----\n".utf8, to: name)
    }

    /// The public key of a file, by OpenSSL.
    private func publicKey(_ name: String) throws -> PublicKeyInfo {
        try store.tpm.run(
            "openssl", "pkey", "-provider", "tpm2", "-provider", "default", "-in", name, "-pubout", "-outform", "DER",
            "-out", "public.der", in: directory.path)
        return try PublicKeyInfo(derRepresentation: try directory.read("public.der"))
    }

    private func key(_ name: String, _ publicKey: PublicKeyInfo) throws -> (any IdentityKey)? {
        let uri = "tpm:" + directory[name]
        return try store.store(uri).storedKey(for: KeyReference(publicKey: publicKey, uri: uri))
    }

    /// Bytes of the template, whose hash chooses the storage key: with another one, no other program would find the key.
    @Test func theStorageKeyIsThatOfOtherPrograms() throws {
        let template: [UInt8] = [
            0, 26, 0, 0x23, 0, 0x0b, 0, 3, 4, 0x72, 0, 0, 0, 6, 0, 128, 0, 0x43, 0, 0x10, 0, 3, 0, 0x10, 0, 0, 0, 0,
        ]
        #expect(TPMPublicArea.storageKey.bytes == template)
    }

    @Test("OpenSSL's provider tpm2 reads a key of this store, and signs", arguments: [KeyType.p256, .p384, .rsa2048])
    func openSSLReadsAKey(type: KeyType) async throws {
        let key = try await store.make(type)
        try write(key, to: "key.pem")
        #expect(try publicKey("key.pem") == key.publicKey)
        try directory.write("a text".utf8, to: "text")
        let digest = type == .p384 ? "sha384" : "sha256"
        try store.tpm.run(
            "openssl", "pkeyutl", "-provider", "tpm2", "-provider", "default", "-sign", "-rawin", "-digest", digest,
            "-inkey", "key.pem", "-in", "text", "-out", "signature", in: directory.path)
        let scheme: SignatureScheme =
            type == .p256 ? .ecdsaP256SHA256 : type == .p384 ? .ecdsaP384SHA384 : .rsaPKCS1SHA256
        #expect(
            key.publicKey.isValidSignature(
                try directory.read("signature"), for: Array("a text".utf8), using: scheme))
    }

    @Test(
        "A key file of OpenSSL's provider tpm2 is read, and the key signs",
        arguments: [("EC", "group:P-256"), ("EC", "group:P-384"), ("RSA", "bits:2048")])
    func aKeyOfOpenSSL(algorithm: String, option: String) async throws {
        try store.tpm.run(
            "openssl", "genpkey", "-provider", "tpm2", "-provider", "default", "-out", "key.pem", "-algorithm",
            algorithm,
            "-pkeyopt", option, in: directory.path)
        try #require(chmod(directory["key.pem"], 0o600) == 0)
        let publicKey = try publicKey("key.pem")
        let key = try #require(try key("key.pem", publicKey))
        #expect(key.uri == "tpm:" + directory["key.pem"])
        for scheme in key.signatureSchemes {
            let signature = try await key.signature(for: [1], using: scheme)
            #expect(key.publicKey.isValidSignature(signature, for: [1], using: scheme), "\(scheme)")
        }
        #expect(key.signatureSchemes.count == (algorithm == "RSA" ? 3 : 1))
        let other = try SoftwareKey.generate(.p256, location: .store).publicKey
        #expect(try self.key("key.pem", other) == nil)
        #expect(try store.tpm.leftovers().isEmpty)
    }

    @Test func aKeyOfTPM2Tools() async throws {
        let tpm = store.tpm
        try tpm.run("tpm2_createprimary", "-G", "ecc", "-c", "parent", in: directory.path)
        try tpm.run("tpm2_evictcontrol", "-c", "parent", "0x81000001", in: directory.path)
        try tpm.run("tpm2_flushcontext", "-t")
        try tpm.run(
            "tpm2_create", "-C", "0x81000001", "-G", "ecc", "-u", "public", "-r", "private", in: directory.path)
        try tpm.run("tpm2_flushcontext", "-t")
        // Debian's version has it the wrong way round: without the option, it says that the key has a password.
        for option in [[], ["-p"]] {
            let words = ["tpm2_encodeobject", "-C", "0x81000001", "-u", "public", "-r", "private", "-o", "key.pem"]
            try Subprocess.run(["TPM2TOOLS_TCTI=\(tpm.tcti)"] + words + option, in: directory.path)
            try #require(chmod(directory["key.pem"], 0o600) == 0)
            let block = try PEMFile(try directory.read("key.pem"), named: "key.pem").blocks[0]
            if option.isEmpty {
                await expect(.unsupportedAlgorithm, "emptyAuth") { _ = try block.blob() }
            } else {
                let key = try #require(try key("key.pem", try block.blob().publicArea.publicKey()))
                #expect(try await key.signsValidly())
            }
        }
    }

    @Test("The provider pem uses a key file with a certificate, also when both are replaced")
    func aCertificateForAKeyFile() async throws {
        let authority = try TestAuthority()
        func issue(_ name: String) async throws -> X509Certificate {
            let key = try await store.make()
            let leaf = try authority.certify(key.publicKey.derRepresentation, as: name)
            try write(key, to: "key.pem")
            try directory.write(
                [leaf, authority.intermediate].map(\.pemRepresentation).joined().utf8, to: "certificate.pem")
            return leaf
        }
        let first = try await issue("first")
        var environment = ProviderEnvironment.testing()
        environment.keyStores = try ProviderRegistry(keyStores: [.tpm]).keyStores(
            ["tpm": ProviderParameters(["tcti": .init(store.tpm.tcti)])]
        ) { _ in .testing() }
        let provider = try ProviderDescriptor.pem.makeProvider(
            environment,
            ProviderParameters([
                "certificate": .init(directory["certificate.pem"]), "key": .init("tpm:" + directory["key.pem"]),
            ]))
        let identity = try await provider.getCertificate(NoUserInteraction())
        #expect(identity.certificate == first && identity.key.location == KeyLocation(rawValue: "tpm"))
        let second = try await issue("second")
        let renewed = try #require(try provider.getStoredCertificate())
        #expect(renewed.certificate == second)
        #expect(try await renewed.key.signsValidly())
        // Without the key store, the provider says how to name the file.
        let plain = try ProviderDescriptor.pem.makeProvider(
            environment,
            ProviderParameters([
                "certificate": .init(directory["certificate.pem"]), "key": .init(directory["key.pem"]),
            ]))
        await expect(.unsupportedAlgorithm, "tpm:" + directory["key.pem"]) {
            _ = try await plain.getCertificate(NoUserInteraction())
        }
    }

    // MARK: - Refusals

    @Test func otherUsersCanReadTheFile() async throws {
        let key = try await store.make()
        try write(key, to: "key.pem")
        try #require(chmod(directory["key.pem"], 0o644) == 0)
        await expect(.configurationInvalid, "open to other users") { _ = try self.key("key.pem", key.publicKey) }
        await expect(.fileNotFound, "missing.pem") { _ = try self.key("missing.pem", key.publicKey) }
    }

    @Test("A file of another TPM, and of one that was cleared", arguments: [false, true])
    func aFileOfAnotherTPM(isCleared: Bool) async throws {
        let key = try await (isCleared ? store : TPMStore()).make()
        try write(key, to: "key.pem")
        if isCleared { try store.tpm.run("tpm2_clear", "-c", "p") }
        await expect(.notFound, "made in another TPM, or the TPM was cleared") {
            _ = try self.key("key.pem", key.publicKey)
        }
        #expect(try store.tpm.leftovers().isEmpty)
    }

    /// A key of tpm2-tools whose file says nothing of the option.
    private func make(_ options: String) throws -> PublicKeyInfo {
        try store.tpm.run(
            "sh", "-ec",
            """
            tpm2_createprimary -G ecc -c parent; tpm2_flushcontext -t
            tpm2_evictcontrol -c parent 0x81000001
            tpm2_createpolicy --policy-pcr -l sha256:0 -L policy; tpm2_flushcontext -l
            tpm2_create -C 0x81000001 -G ecc -u public -r private \(options); tpm2_flushcontext -t
            tpm2_load -C 0x81000001 -u public -r private -c key; tpm2_readpublic -c key -f der -o public.der; tpm2_flushcontext -t
            tpm2_encodeobject -C 0x81000001 -u public -r private -o key.pem -p; chmod 600 key.pem
            tpm2_flushcontext -t; tpm2_flushcontext -l
            """, in: directory.path)
        return try PublicKeyInfo(derRepresentation: try directory.read("public.der"))
    }

    @Test func aKeyWithAPolicyThatItsFileLacks() throws {
        let key = try make("-L policy -a 'fixedtpm|fixedparent|sensitivedataorigin|sign'")
        #expect(failure { try self.key("key.pem", key) }?.message.contains("asks for a policy") == true)
    }

    /// Each wrong one brings the TPM nearer to its lockout.
    @Test("A key with a password that its file lacks is refused, and its empty password is sent once")
    func aKeyWithAPasswordThatItsFileLacks() async throws {
        let publicKey = try make("-p secret")
        func counter() throws -> String {
            try store.tpm.run("sh", "-c", "tpm2_getcap properties-variable | grep LOCKOUT_COUNTER")
        }
        for reason in ["TPM2_Sign", "rejected before", "rejected before"] {
            let key = try #require(try key("key.pem", publicKey))
            await expect(.unsupportedAlgorithm, reason) { _ = try await key.signsValidly() }
            #expect(try counter().contains("0x1"))
        }
        #expect(try store.tpm.leftovers().isEmpty)
    }

    /// A key file with other fields. Tags are `[n]`, explicit.
    private func der(_ fields: [UInt8], parent: [UInt8] = [2, 4, 0x40, 0, 0, 1], _ blob: TPMKeyBlob) -> [UInt8] {
        func node(_ tag: UInt8, _ content: [UInt8]) -> [UInt8] {
            content.count < 128
                ? [tag, UInt8(content.count)] + content
                : [tag, 0x82, UInt8(content.count >> 8), UInt8(content.count & 0xff)] + content
        }
        let oid: [UInt8] = [6, 6, 0x67, 0x81, 5, 10, 1, 3]
        return node(0x30, oid + fields + parent + node(4, blob.publicArea.bytes) + node(4, blob.privatePart))
    }

    @Test func whatAKeyFileMustNotAskFor() async throws {
        let key = try #require(try await store.make() as? TPMKey)
        let open: [UInt8] = [0xa0, 3, 1, 1, 0xff]
        let cases: [(fields: [UInt8], words: String)] = [
            (open + [0xa1, 2, 0x30, 0], "policy"), (open + [0xa2, 3, 4, 1, 0], "sealed for import"),
            (open + [0xa3, 2, 0x30, 0], "policy"), (open + [0xa5, 3, 1, 1, 1], "RSA parent"), ([], "emptyAuth"),
            ([0xa0, 3, 1, 1, 0], "emptyAuth"),
        ]
        for (fields, words) in cases {
            try write(der(fields, key.blob), to: "key.pem")
            await expect(.unsupportedAlgorithm, words) { _ = try self.key("key.pem", key.publicKey) }
        }
        for parent: [UInt8] in [[2, 4, 0x40, 0, 0, 0x0b], [2, 5, 1, 0x40, 0, 0, 1]] {
            try write(der(open, parent: parent, key.blob), to: "key.pem")
            await expect(.unsupportedAlgorithm, "another parent") { _ = try self.key("key.pem", key.publicKey) }
        }
        // A description is nothing to refuse, and TRUE has several forms.
        for isTrue: UInt8 in [1, 0xff] {
            try write(der([0xa0, 3, 1, 1, isTrue] + [0xa4, 3, 12, 1, 0x61], key.blob), to: "key.pem")
            #expect(try await self.key("key.pem", key.publicKey)?.signsValidly() == true)
        }
        #expect(try TPMKeyBlob(derRepresentation: key.blob.derRepresentation).privatePart == key.blob.privatePart)
    }

    @Test("A key whose file hides its password counts as wrong once, and the owner authorisation stays a right one")
    func aHiddenPassword() async throws {
        try store.tpm.run(
            "openssl", "genpkey", "-provider", "tpm2", "-provider", "default", "-out", "key.pem", "-algorithm", "EC",
            "-pkeyopt", "group:P-256", "-pkeyopt", "user-auth:secret", in: directory.path)
        let block = try PEMFile(try directory.read("key.pem"), named: "key.pem").blocks[0]
        var der = try #require(block.secret?.withUnsafeBytes { Array($0) })
        der[try #require(der.firstRange(of: [0xa0, 3, 1, 1, 0])).upperBound - 1] = 0xff
        try write(der, to: "key.pem")
        try store.tpm.run("tpm2_changeauth", "-c", "owner", "right")
        func keyStore(_ place: String) throws -> any KeyStore {
            try store.store(place, ["owner-source": "env:OWNER"], variables: ["OWNER": "right"])
        }
        let uri = "tpm:" + directory["key.pem"]
        let publicKey = try TPMKeyBlob(derRepresentation: der).publicArea.publicKey()
        let key = try #require(
            try keyStore(uri).storedKey(for: KeyReference(publicKey: publicKey, uri: uri)))
        for words in ["rejects the empty password of the key", "It was rejected before"] {
            await expect(.unsupportedAlgorithm, words) { _ = try await key.signsValidly() }
        }
        #expect(try store.tpm.run("tpm2_getcap", "properties-variable").contains("LOCKOUT_COUNTER: 0x1\n"))
        let own = try await keyStore("tpm:").make(NewKey(.p256, label: "test"), NoUserInteraction()) { _ in }
        #expect(try await own.signsValidly())
    }

    @Test func aKeyThatDoesNotSign() async throws {
        let key = try await store.make(.rsa2048, use: .pkcs1Decryption)
        try write(key, to: "key.pem")
        await expect(.unsupportedAlgorithm, "attribute sign") {
            _ = try await self.key("key.pem", key.publicKey)?.signsValidly()
        }
    }

    @Test("A key file that is cut off or changed is an error, at each byte") func aDamagedKeyFile() async throws {
        let key = try #require(try await store.make() as? TPMKey)
        let whole = key.blob.derRepresentation
        for count in 0..<whole.count {
            await expect(.malformedData, "damaged or cut off") {
                _ = try TPMKeyBlob(derRepresentation: Array(whole.prefix(count)))
            }
        }
        // The TPM finds each change of the private part.
        let start = whole.count - key.blob.privatePart.count
        for position in stride(from: start, to: whole.count, by: TestLength.rounds(16, full: 4, soak: 1)) {
            var changed = whole
            changed[position] ^= 0x10
            try write(changed, to: "key.pem")
            do {
                _ = try await self.key("key.pem", key.publicKey)?.signsValidly()
                Issue.record("byte \(position)")
            } catch let error as ProviderError {
                let codes: [ProviderError.Code] = [.notFound, .malformedData, .unsupportedAlgorithm]
                #expect(codes.contains(error.code), "\(position): \(error)")
            }
        }
        #expect(try store.tpm.leftovers().isEmpty)
        // No change of the public part makes it another key of the same file.
        for position in 0..<start {
            var changed = whole
            changed[position] ^= 1
            try write(changed, to: "key.pem")
            _ = try? self.key("key.pem", key.publicKey)
        }
    }
}

extension PEMBlock {
    fileprivate func blob() throws -> TPMKeyBlob {
        try TPMKeyBlob(derRepresentation: secret?.withUnsafeBytes { Array($0) } ?? [])
    }
}
