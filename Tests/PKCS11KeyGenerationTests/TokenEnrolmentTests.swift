import CertificateProviding
import Enrolment
import Foundation
import RemoteMDMProvider
import TestSupport
import Testing

@testable import PKCS11TokenProvider

/// Enrolment into a token, with the tests' EST server.
@Suite(.serialized, .timeLimit(.minutes(20))) struct TokenEnrolmentTests {
    private let tokens: EmptyTokens

    init() throws { tokens = try EmptyTokens.shared.get() }

    /// This host: what it has stored outlives its providers.
    private struct Host {
        let tokens: EmptyTokens
        let server: ESTServer
        let storage = InMemoryStorage()
        let tokenStorage = InMemoryStorage()

        func provider(
            _ token: EmptyTokens.Name, label: String = "", _ settings: [String: String] = [:], isAway: Bool = false
        ) throws -> EnrollingProvider {
            let variables = [
                "PASSWORD": ESTServer.password, "WRONG": "wrong", "CHALLENGE": "secret",
                "OTHERPIN": EmptyTokens.otherPIN, "PIN": EmptyTokens.pin, "EMPTY": "",
            ]
            var environment = ProviderEnvironment.testing(
                storage: storage, variables: variables, keyStores: [(TokenKeyStore.descriptor, tokenStorage)])
            if isAway {
                // No slot has a token of that name.
                environment.keyStores = KeyStores(schemes: ["pkcs11", "store"]) {
                    [stores = environment.keyStores] location throws(ProviderError) in
                    try stores.store(
                        location.uri.replacing("token=\(token.rawValue)", with: "token=away"),
                        pinSource: location.pinSource)
                }
            }
            var parameters = [
                "protocol": "est", "url": "https://localhost:\(server.port)/\(label)",
                "trust-anchors": server.directory["ca.pem"], "username": ESTServer.user,
                "password-source": "env:PASSWORD", "subject": "CN=client,O=Example", "timeout": "600",
                "key": "pkcs11:token=\(token.rawValue)?module-path=\(tokens.module)", "key-pin-source": "env:PIN",
            ]
            parameters.merge(settings) { $1 }
            let given = parameters.filter { !$0.value.isEmpty }.mapValues { ProviderParameters.Value($0) }
            let provider = try RemoteMDMProvider.make(environment: environment, parameters: ProviderParameters(given))
            return provider
        }
    }

    private func host(_ options: String...) async throws -> Host {
        Host(tokens: tokens, server: try await ESTServer.start(["--auth", "basic"] + options))
    }

    @Test func theKeyIsMadeInTheToken() async throws {
        let host = try await host()
        for (made, type) in ["p256", "rsa2048", "p384"].enumerated() {
            let storage = Host(tokens: tokens, server: host.server)
            let settings = ["key-type": type, "subject": "CN=\(type)"]
            let identity = try await storage.provider(.esttypes, settings).getCertificate(NoUserInteraction())
            try host.server.verify(identity)
            #expect(identity.key.location == .token && identity.key.exporter == nil)
            // The private and the public key, and the certificate under their id; and once its issuer's.
            #expect(try tokens.count(.esttypes) == 3 * (made + 1) + 1)
            let listing = try tokens.listing(.esttypes)
            #expect(listing.contains("label:      \(type)\n  subject:    DN: CN=\(type)"), "\(listing)")

            let stored = try #require(try storage.provider(.esttypes, settings).getStoredCertificate())
            #expect(stored.certificate == identity.certificate)
            try await stored.verifyPossession()
            let list = await (try storage.provider(.esttypes, settings)).listIdentities()
            #expect(list.identities.map(\.keyURI) == [identity.key.uri] && list.failures.isEmpty)
        }
    }

    /// The current certificate, whose key is in the token, is what the server knows the client by.
    @Test(arguments: ["1.2", "1.3"]) func aRenewalReplacesKeyAndCertificate(tls: String) async throws {
        let host = try await host("--tls", tls, "--binding", "required")
        let before = try tokens.count(.estrenewal)
        let first = try await host.provider(.estrenewal).getCertificate(NoUserInteraction())
        let renewing = try host.provider(.estrenewal, ["username": "", "password-source": ""])
        let second = try await renewing.getCertificate(NoUserInteraction())
        #expect(second.certificate.publicKey != first.certificate.publicKey)
        try host.server.verify(second)
        #expect(try host.server.requests().last?["operation"] as? String == "simplereenroll")
        // Both, until the new one is in use; and the issuer's certificate.
        #expect(try tokens.count(.estrenewal) == before + 7)
        try await first.verifyPossession()
        #expect(await (try host.provider(.estrenewal)).listIdentities().remarks.count == 1)
        for _ in 0..<2 {
            // One that is in use still is not destroyed.
            try await host.provider(.estrenewal).discardReplaced(by: first, NoUserInteraction())
            if try tokens.count(.estrenewal) != before + 4 { try await first.verifyPossession() }
            try await host.provider(.estrenewal).discardReplaced(by: second, NoUserInteraction())
            #expect(try tokens.count(.estrenewal) == before + 4)
        }
        await #expect(throws: ProviderError.self) { try await first.verifyPossession() }
        #expect(try renewing.getStoredCertificate()?.certificate == second.certificate)
        // The replacement was never reported: the next renewal destroys the old key, and so does a deletion.
        for _ in 0..<2 { _ = try await renewing.getCertificate(NoUserInteraction()) }
        #expect(try tokens.count(.estrenewal) == before + 7)
        let announced = try await renewing.announcedDeletions()
        #expect(announced.count == 4, "\(announced)")
        try renewing.deleteStoredCertificate()
        // The issuer's certificate may be others' issuer too.
        #expect(try tokens.count(.estrenewal) == before + 1)
    }

    @Test func aRefusalLeavesNothingInTheToken() async throws {
        let host = try await host()
        let refused = try host.provider(.estrefused, ["password-source": "env:WRONG"])
        await expect(code: .rejected) { _ = try await refused.getCertificate(NoUserInteraction()) }
        #expect(try tokens.count(.estrefused) == 0)
        for fault in ["fault-other-key", "fault-untrusted", "fault-expired"] {
            let provider = try host.provider(.estrefused, label: fault)
            await expect(code: .protocolError) { _ = try await provider.getCertificate(NoUserInteraction()) }
            #expect(try tokens.count(.estrefused) == 0, "\(fault)")
        }
        // Of a renewal: the identity that there is stays.
        let identity = try await host.provider(.estrefused).getCertificate(NoUserInteraction())
        let provider = try host.provider(.estrefused, label: "fault-other-key")
        await expect(code: .protocolError) { _ = try await provider.getCertificate(NoUserInteraction()) }
        #expect(try tokens.count(.estrefused) == 4)
        try await identity.verifyPossession()
    }

    @Test func aPendingRequestKeepsItsKey() async throws {
        let host = try await host("--pending", "1", "--retry-after", "3600")
        let first = try host.provider(.estpending)
        await expect(code: .pending) { _ = try await first.getCertificate(NoUserInteraction()) }
        #expect(try tokens.count(.estpending) == 2)
        let away = try host.provider(.estpending, isAway: true)
        await expect(code: .tokenNotPresent) { _ = try await away.getCertificate(NoUserInteraction()) }
        let identity = try await host.provider(.estpending).getCertificate(NoUserInteraction())
        try host.server.verify(identity)
        let requests = try host.server.requests().compactMap { $0["csr_sha256"] as? String }
        #expect(requests.count == 2 && Set(requests).count == 1)
        #expect(try tokens.count(.estpending) == 4)
    }

    @Test func aPendingRequestIsDeletedWithItsKey() async throws {
        let host = try await host("--pending", "9", "--retry-after", "3600")
        let provider = try host.provider(.estdelete)
        await expect(code: .pending) { _ = try await provider.getCertificate(NoUserInteraction()) }
        #expect(try tokens.count(.estdelete) == 2)
        #expect(try await provider.announcedDeletions().count == 1)
        try provider.deleteStoredCertificate()
        #expect(try tokens.count(.estdelete) == 0)
        #expect(try await provider.announcedDeletions().isEmpty)
        try provider.deleteStoredCertificate()
    }

    /// A deletion that was cut short has destroyed the private key first.
    @Test func theNextDeletionGoesOnWhereTheLastOneStopped() async throws {
        let host = try await host()
        for gone in [["privkey"], ["privkey", "pubkey"], ["privkey", "pubkey", "cert"]] {
            let provider = try host.provider(.estremains)
            _ = try await provider.getCertificate(NoUserInteraction())
            for type in gone { try tokens.destroy(type, labelled: "client", on: .estremains) }
            try host.provider(.estremains).deleteStoredCertificate()
            // The issuer's certificate may be others' issuer too.
            #expect(try tokens.count(.estremains) == 1, "\(gone)")
            #expect(try provider.getStoredCertificate() == nil)
        }
    }

    @Test func aStoredIdentityIsListedWhileItsTokenIsAway() async throws {
        let host = try await host()
        let settings = ["subject": "CN=away"]
        let identity = try await host.provider(.estaway, settings).getCertificate(NoUserInteraction())
        let away = try host.provider(.estaway, settings, isAway: true)
        let list = await away.listIdentities()
        #expect(list.identities.map(\.certificateChain.first) == [identity.certificate])
        #expect(list.identities.map(\.keyURI) == [identity.key.uri])
        #expect(list.failures.map(\.code) == [.tokenNotPresent])
        await expect(code: .tokenNotPresent) { _ = try away.getStoredCertificate() }
        let back = await (try host.provider(.estaway, settings)).listIdentities()
        #expect(back.identities.count == 1 && back.failures.isEmpty)
    }

    @Test func anIdentityMovesIntoATokenAndBack() async throws {
        let host = try await host()
        let inStore = ["key": "", "key-pin-source": ""]
        #expect(try await host.provider(.estmoved, inStore).getCertificate(NoUserInteraction()).key.location == .store)
        #expect(try await host.provider(.estmoved).getCertificate(NoUserInteraction()).key.location == .token)
        #expect(try tokens.count(.estmoved) == 4)
        // The PIN is configured no more, so that the old key cannot be had.
        let third = try await host.provider(.estmoved, inStore).getCertificate(NoUserInteraction())
        #expect(third.key.location == .store)
        #expect(try host.provider(.estmoved, inStore).getStoredCertificate()?.certificate == third.certificate)
    }

    @Test func aPINThatNobodyConfiguredIsAskedFor() async throws {
        let host = try await host()
        let silent = ["key-pin-source": "", "subject": "CN=asked"]
        let provider = try host.provider(.estasked, silent)
        await expect(code: .interactionRequired) { _ = try await provider.getCertificate(NoUserInteraction()) }
        let identity = try await provider.getCertificate(Person(EmptyTokens.pin))
        #expect(try provider.getStoredCertificate()?.certificate == identity.certificate)
        // Another process would have to ask again.
        await expect(code: .interactionRequired) { _ = try host.provider(.estasked, silent).getStoredCertificate() }
    }

    /// The PIN for one token is not sent to another, whose key is replaced.
    @Test func aPINIsForItsOwnToken() async throws {
        let host = try await host()
        let first = try await host.provider(.pinone).getCertificate(NoUserInteraction())
        let moved = try host.provider(.otherpin, ["key-pin-source": "env:OTHERPIN"])
        let error = try #require(failure { try moved.getStoredCertificate() })
        #expect(error.code == .interactionRequired && error.message.contains("'key' no longer names"))
        let second = try await moved.getCertificate(NoUserInteraction())
        #expect(second.key.uri?.contains("token=otherpin") == true)
        #expect(try moved.getStoredCertificate()?.certificate == second.certificate)
        let slots = try tokens.run("pkcs11-tool", "--module", EmptyTokens.library, "--list-token-slots")
        #expect(slots.contains("pinone") && !slots.lowercased().contains("count low"), "\(slots)")
        try await first.verifyPossession()
    }

    /// Debian's scepserver encrypts what it issues for the key in the token. With single DES, for which OpenSSL needs
    /// its legacy provider.
    @Test func aKeyThatDecryptsIsMadeForSCEP() async throws {
        let depot = try TemporaryDirectory()
        let server = try Subprocess([
            Self.tests + "/SCEPServer/scep-server", "--depot", depot.path, "-challenge", "secret", "-allowrenew", "0",
        ])
        let line = try #require(server.readLine())
        let port = try #require((try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Int])?["port"])
        let host = try await host()
        let settings = [
            "protocol": "scep", "url": "http://127.0.0.1:\(port)/scep", "trust-anchors": depot["ca.pem"],
            "username": "", "password-source": "", "challenge-source": "env:CHALLENGE", "subject": "CN=scep",
        ]
        let wrong = try host.provider(.scep, settings.merging(["challenge-source": "env:WRONG"]) { $1 })
        await expect(code: .rejected) { _ = try await wrong.getCertificate(NoUserInteraction()) }
        #expect(try tokens.count(.scep) == 0)

        let first = try await host.provider(.scep, settings).getCertificate(NoUserInteraction())
        try depot.write(Array(first.certificate.pemRepresentation.utf8), to: "leaf.pem")
        try Subprocess.openssl("verify", "-CAfile", "ca.pem", "leaf.pem", in: depot.path)
        try await first.verifyPossession()
        let listing = try tokens.listing(.scep)
        #expect(listing.contains("Usage:      decrypt, sign"), "\(listing)")
        let second = try await host.provider(.scep, settings).getCertificate(NoUserInteraction())
        #expect(second.certificate.publicKey != first.certificate.publicKey)
        #expect(try host.provider(.scep, settings).getStoredCertificate()?.certificate == second.certificate)
        try await host.provider(.scep, settings).discardReplaced(by: second, NoUserInteraction())
        // The CA's certificate is its root, which is not written.
        #expect(try tokens.count(.scep) == 3)
        withExtendedLifetime(server) {}
    }

    /// The module is a parameter of the key store, and not part of the URI.
    @Test func theModuleMayBeTheKeyStores() async throws {
        let host = try await host()
        let variables = ["PASSWORD": ESTServer.password, "PIN": EmptyTokens.pin]
        var environment = ProviderEnvironment.testing(storage: host.storage, variables: variables)
        let stores = try ProviderRegistry(keyStores: [TokenKeyStore.descriptor])
        environment.keyStores = try stores.keyStores([
            "pkcs11": ProviderParameters(["module-path": .init(tokens.module)])
        ]) {
            [storage = host.tokenStorage] _ in .testing(storage: storage, variables: variables)
        }
        let provider = try RemoteMDMProvider.make(
            environment: environment,
            parameters: ProviderParameters(
                [
                    "protocol": "est", "url": "https://localhost:\(host.server.port)",
                    "trust-anchors": host.server.directory["ca.pem"], "username": ESTServer.user,
                    "password-source": "env:PASSWORD", "subject": "CN=store,O=Example", "timeout": "600",
                    "key": "pkcs11:token=\(EmptyTokens.Name.estasked.rawValue)", "key-pin-source": "env:PIN",
                ].mapValues { .init($0) }))
        let identity = try await provider.getCertificate(NoUserInteraction())
        #expect(identity.key.location == .token && identity.key.exporter == nil)
        #expect(try provider.getStoredCertificate()?.certificate == identity.certificate)
        #expect(try await !provider.announcedDeletions().isEmpty)
        for _ in 0..<2 { try provider.deleteStoredCertificate() }
        #expect(try !tokens.listing(.estasked).contains("store"))
    }

    /// Of a key that does not decrypt the server hears nothing.
    @Test func aTokenThatDoesNotDecryptIsNotForSCEP() async throws {
        let host = try await host()
        let settings = [
            "protocol": "scep", "url": "http://127.0.0.1:1/scep", "trust-anchors": host.server.directory["ca.pem"],
            "username": "", "password-source": "", "key-type": "p256",
        ]
        #expect(throws: ProviderError.self) { _ = try host.provider(.decryption, settings) }
        let provider = try tokens.provider(.decryption)
        await expect(code: .unsupportedAlgorithm) {
            _ = try await provider.generateKey(
                .p256, label: "x", for: [.signing, .pkcs1Decryption], NoUserInteraction()
            ) {
                _ in
            }
        }
        let signing = try await provider.generateKey(.rsa2048, label: "x", NoUserInteraction())
        #expect(signing.decrypter == nil)
        let both = try await provider.generateKey(
            .rsa2048, label: "y", for: [.signing, .pkcs1Decryption], NoUserInteraction()
        ) {
            _ in
        }
        // SoftHSM says of it CKR_GENERAL_ERROR.
        await expect(code: .malformedData) {
            _ = try await both.decrypter?.decrypt([UInt8](repeating: 1, count: 256), using: .rsaPKCS1)
        }
    }

    /// A key that asks for the PIN each time decrypts as well, and its lookup costs no wrong PIN.
    @Test func aKeyThatAsksEachTimeDecrypts() async throws {
        try tokens.run(
            "pkcs11-tool", "--module", EmptyTokens.library, "--token-label", EmptyTokens.Name.confirmed.rawValue,
            "--login", "--pin", EmptyTokens.pin, "--keypairgen", "--key-type", "rsa:2048", "--label", "confirmed",
            "--id", "c1", "--usage-sign", "--usage-decrypt", "--always-auth")
        let store = try #require(try tokens.provider(.confirmed).keyStore)
        let reference = try #require(try await store.list().first?.reference)
        let key = try #require(try store.storedKey(for: reference))
        let decrypter = try #require(key.decrypter)
        #expect(decrypter.decryptionSchemes == [.rsaOAEPSHA1, .rsaPKCS1])
        for scheme in decrypter.decryptionSchemes {
            let ciphertext = try scheme.opensslEncrypt([1, 2, 3], for: key.publicKey)
            #expect(try await decrypter.decrypt(ciphertext, using: scheme) == SecretBytes(copying: [1, 2, 3]))
            await expect(code: .malformedData) {
                _ = try await decrypter.decrypt([UInt8](repeating: 1, count: 256), using: scheme)
            }
        }
        await expect(code: .unsupportedAlgorithm) {
            _ = try await decrypter.decrypt([UInt8](repeating: 1, count: 256), using: .rsaOAEPSHA256)
        }
        let token = try tokens.run("softhsm2-util", "--show-slots")
        #expect(!token.contains("PIN count low"))
    }

    private static let tests = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent().path

    @Test func aKeyThatCannotBeWrittenDownIsDestroyed() async throws {
        let host = try await host()
        host.storage.fail(with: ProviderError(.storeWriteFailed, "The disk is full."), whenReading: false)
        await expect(code: .storeWriteFailed) {
            _ = try await host.provider(.estrefused, ["subject": "CN=full"]).getCertificate(NoUserInteraction())
        }
        #expect(try !tokens.listing(.estrefused).contains("full"))
    }

    /// The identity by which the server knows the host at first, whose key is in a token as well; it outlives its purpose.
    @Test func theDevicesOwnCertificateMayBeInTheToken() async throws {
        let server = try await ESTServer.start("--auth", "certificate")
        let host = Host(tokens: tokens, server: server)
        try writeDevice(of: server, to: .device)
        let pin = try server.directory.write(EmptyTokens.pin.utf8, to: "pin")
        let device = "pkcs11:token=device;object=device?module-path=\(tokens.module)&pin-source=file:\(pin)"
        let settings = ["username": "", "password-source": "", "client-certificate": device]
        for _ in 0..<2 {
            let provider = try host.provider(.device, settings)
            let identity = try await provider.getCertificate(NoUserInteraction())
            try server.verify(identity)
            try await provider.discardReplaced(by: identity, NoUserInteraction())
            // Key pair, certificate and issuer.
            #expect(try tokens.count(.device) == 2 + 4)
        }
        let requests = try server.requests().compactMap { request -> String? in
            let certificate = request["client_certificate"] as? [String: Any]
            guard let operation = request["operation"] as? String, operation.hasPrefix("simple") else { return nil }
            return "\(operation) \(certificate?["subject"] ?? "")"
        }
        #expect(requests == ["simpleenroll CN=Device,O=Enrolment Test", "simplereenroll CN=client,O=Example"])
    }

    private func writeDevice(of server: ESTServer, to token: EmptyTokens.Name) throws {
        let directory = server.directory
        for (command, name) in [("x509", "manufacturer.pem"), ("pkey", "manufacturer.key")] {
            try Subprocess.openssl(
                command, "-in", name, "-outform", "DER", "-out", command + ".der", in: directory.path)
        }
        try tokens.write("cert", directory["x509.der"], labelled: "device", to: token)
        try tokens.write("privkey", directory["pkey.der"], labelled: "device", to: token)
    }

    /// `key` and `client-certificate` name the same one.
    @Test func thePINOfATokenIsAskedForOnce() async throws {
        let server = try await ESTServer.start("--auth", "certificate")
        try writeDevice(of: server, to: .asked)
        let provider = try Host(tokens: tokens, server: server).provider(
            .asked,
            [
                "username": "", "password-source": "", "key-pin-source": "",
                "client-certificate": "pkcs11:token=asked;object=device?module-path=\(tokens.module)",
            ])
        let person = Person(EmptyTokens.pin)
        try server.verify(try await provider.getCertificate(person))
        #expect(person.questions == ["PIN for the token 'asked'"])
    }

    /// Messages name the parameter that has the URI of the token.
    @Test("An error of the token names the enrolment's parameter")
    func whatIsWrongWithTheTokenIsSaidOfItsParameter() async throws {
        let host = try await host()
        let certificate = ["username": "", "password-source": ""]
        for (settings, text) in [
            (["key": "pkcs11:?module-path=\(tokens.module)"], "set 'key' to one of: "),
            (["key-pin-source": "env:EMPTY"], "correct 'key-pin-source'"),
            (
                certificate.merging(["client-certificate": "pkcs11:?module-path=\(tokens.module)"]) { $1 },
                "'client-certificate'"
            ),
        ] {
            let error = await failure { try await host.provider(.listed, settings).getCertificate(NoUserInteraction()) }
            #expect(error?.message.contains(text) == true, "\(String(describing: error))")
            #expect(error?.message.contains("'uri'") == false, "\(String(describing: error))")
        }
    }
}
