import CertificateProviding
import Enrolment
import Foundation
import IdentityStore
import Synchronization
import TestSupport
import Testing

@testable import ACMEProvider

/// The challenge device-attest-01, and the names of devices.
@Suite struct DeviceAttestationTests {
    private let person = NoUserInteraction()
    private static let python = URL(filePath: #filePath).deletingLastPathComponent()
        .appending(path: "../../.build/fido2/bin/python").standardized.path
    static let hasFIDO2 = FileManager.default.fileExists(atPath: python)

    /// A host whose key store has a TPM in software.
    private func host(_ flaw: InventedTPM.Flaw = .none) throws -> (Host, EnrollingProvider) {
        let host = try Host()
        host.server.behave { $0.challenges = ["device-attest-01"] }
        return (host, try provider(host, flaw))
    }

    private func provider(
        _ host: Host, _ flaw: InventedTPM.Flaw = .none, problem: ProviderError? = nil
    ) throws -> EnrollingProvider {
        let tpm = try InventedTPM(flaw)
        let store = SealedKeyStore(environment: host.environment())
        var environment = host.environment()
        environment.keyStores = KeyStores(schemes: ["tpm"]) { location in
            guard location.scheme == "tpm" else { return store }
            return AttestingKeyStore(store, tpm, problem)
        }
        return try host.provider(
            [
                "challenge": "device-attest-01", "identifiers": "permanent-identifier:SN-1", "http-root": nil,
                "key": "tpm:",
            ], in: environment)
    }

    @Test("A host without a shared secret gets a certificate for a key that proves where it lives, and renews it")
    func aKeyIsAttested() async throws {
        let (host, provider) = try host()
        let first = try await provider.getCertificate(person)
        let second = try await provider.getCertificate(person)
        #expect(first.key.publicKey != second.key.publicKey && host.server.mistakes == [])
        #expect(host.server.count(of: "chall") == 2)
    }

    @Test(
        "An independent verifier accepts the statement, and no other",
        .enabled(if: hasFIDO2, "make .build/fido2/bin/python"))
    func theStatementIsAccepted() async throws {
        let (host, provider) = try host()
        let identity = try await provider.getCertificate(person)
        let (authorization, account) = try host.server.state.withLock { state in
            (try #require(state.authorizations.values.first), try #require(state.accounts.values.first))
        }
        let coordinates = [account.key["x"], account.key["y"]].map { $0 ?? "" }
        let web = #"{"crv":"P-256","kty":"EC","x":"\#(coordinates[0])","y":"\#(coordinates[1])"}"#
        let thumbprint = ByteText.base64URL(DigestAlgorithm.sha256.digest(of: Array(web.utf8)))
        let key = try host.directory.write(identity.certificate.publicKey.derRepresentation, to: "key")
        let other = try host.directory.write(
            SoftwareKey.generate(.p256, location: .file).publicKey.derRepresentation, to: "other")
        func verdict(_ statement: [UInt8], _ text: String, _ key: String) throws -> String {
            let path = try host.directory.write(statement, to: "statement")
            let script = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "verify-statement.py")
                .path
            let output = try Subprocess.run([Self.python, "-B", script, path, text, key])
            return String(decoding: output, as: UTF8.self)
        }
        let statement = try #require(authorization.statement)
        let text = "\(authorization.token).\(thumbprint)"
        #expect(try verdict(statement, text, key) == "accepted\n")
        #expect(try verdict(statement, text + "x", key).hasPrefix("refused"))
        #expect(try verdict(statement, text, other).hasPrefix("refused"))
        var altered = statement
        let place = try #require(statement.firstRange(of: Array("certInfo".utf8))).upperBound + 60
        altered[place] ^= 1
        #expect(try verdict(altered, text, key).hasPrefix("refused"))
    }

    @Test("A key that cannot prove where it lives is an error before anything is made")
    func aSoftwareKey() async throws {
        let (host, _) = try host()
        let provider = try host.provider(
            ["challenge": "device-attest-01", "identifiers": "permanent-identifier:SN-1", "http-root": nil])
        let error = await failure { _ = try await provider.getCertificate(person) }
        #expect(
            error?.code == .configurationInvalid
                && error?.message.contains("a key of the key store 'store:' cannot prove where it lives") == true)
        #expect(host.server.count(of: "newOrder") == 0)
    }

    @Test("A key store with a mistake in its settings names it")
    func aKeyStoreThatDoesNotOpen() async throws {
        let host = try Host()
        let provider = try provider(host, problem: ProviderError(.configurationInvalid, "The CA must be https:."))
        let error = await failure { _ = try await provider.getCertificate(person) }
        #expect(error?.message.contains("The CA must be https:.") == true, "\(String(describing: error))")
        #expect(host.server.count(of: "newAccount") == 0)
    }

    @Test(
        "A statement that no server would accept is not sent, and says why",
        arguments: [
            (.certificateWithSubject, "has the subject"), (.otherData, "covers other data"),
            (.otherKey, "about another key"), (.damaged, "'certInfo' is damaged"), (.emptyChain, "has 0 certificates"),
        ] as [(InventedTPM.Flaw, String)])
    func aWrongStatement(flaw: InventedTPM.Flaw, reason: String) async throws {
        let (host, provider) = try host(flaw)
        let error = await failure { _ = try await provider.getCertificate(person) }
        #expect(error?.message.contains(reason) == true, "\(String(describing: error))")
        #expect(host.server.count(of: "chall") == 0)
        // The same order goes on once the mistake is gone.
        _ = try await self.provider(host).getCertificate(person)
        #expect(host.server.count(of: "newOrder") == 1 && host.server.mistakes == [])
    }

    @Test("A statement that the server refuses is final: no key and no order is left", arguments: [true, false])
    func aRefusedStatement(isRefusedAtOnce: Bool) async throws {
        let (host, provider) = try host()
        if isRefusedAtOnce {
            host.server.fail("chall", .status(400, problem: "badAttestationStatement"))
        } else {
            host.server.behave { $0.refusal = "badAttestationStatement" }
        }
        let error = await failure { _ = try await provider.getCertificate(person) }
        #expect(error?.code == .rejected, "\(String(describing: error))")
        #expect(error?.message.contains("badAttestationStatement, The test ") == true, "\(String(describing: error))")
        #expect(error?.message.contains("check that the server knows this device") == true)
        #expect(try await SealedKeyStore(environment: host.environment()).list().count == 1, "the key of the account")
        host.server.behave { $0.refusal = nil }
        _ = try await provider.getCertificate(person)
        #expect(host.server.count(of: "newOrder") == 2)
    }

    @Test(
        "Whatever fault a resource has once, the run ends, the next one succeeds, and no key is left over",
        arguments: ["authz", "chall", "order"], ACMEFaultTests.faults.indices)
    func aFaultIsSurvived(resource: String, fault: Int) async throws {
        let (host, provider) = try host()
        host.server.behave { $0.orderLooks = 1 }
        host.server.fail(resource, ACMEFaultTests.faults[fault].1)
        let first = await failure { _ = try await provider.getCertificate(person) }
        #expect(first.map { !$0.message.isEmpty && $0.code != .internal } != false, "\(String(describing: first))")
        let second = await failure { _ = try await self.provider(host).getCertificate(person) }
        #expect(second == nil, "after \(String(describing: first)): \(String(describing: second))")
        #expect(host.server.mistakes == [])
        // Those of the account and the identity, and the one that was in use if the second run has renewed.
        let keys = try await SealedKeyStore(environment: host.environment()).list().count
        #expect(keys == (first == nil ? 3 : 2))
    }

    @Test("An expired identity is ordered anew after a random wait, at most once an hour, whatever process asks")
    func recovery() async throws {
        let (host, first) = try host()
        _ = try await first.getCertificate(person)
        host.ahead.withLock { $0 += 400 * 86_400 }
        host.server.behave { $0.ahead += 400 * 86_400 }
        host.pauses.withLock { $0 = [] }
        // A server that is away costs nothing.
        host.server.behave { $0.showsAccounts = false }
        host.server.fail("newAccount", .status(503), .status(503), .status(503))
        #expect(await code { _ = try await self.provider(host).getCertificate(person) } == .unavailable)
        let waits = host.pauses.withLock(\.self)
        #expect(waits.first.map { $0 <= .seconds(60) && $0 > .zero } == true, "\(waits)")
        let busy = ProviderError(.unavailable, "The TPM is busy.")
        #expect(await code { _ = try await self.provider(host, problem: busy).getCertificate(person) } == .unavailable)
        host.server.fail("newOrder", .status(400, problem: "rejectedIdentifier"))
        #expect(await code { _ = try await self.provider(host).getCertificate(person) } == .rejected)
        let count = host.server.heard.count
        let error = await failure { _ = try await self.provider(host).getCertificate(person) }
        #expect(
            error?.code == .unavailable && error?.message.contains("at most once an hour") == true,
            "\(String(describing: error))")
        #expect((error?.retryAfter).map { $0 > .seconds(3500) && $0 <= .seconds(3600) } == true)
        #expect(host.server.heard.count == count)
        host.ahead.withLock { $0 += 3600 }
        let provider = try self.provider(host)
        let recovered = try await provider.getCertificate(person)
        #expect(recovered.certificate.status(at: host.environment().now()) == .valid)
        // A renewal is not bound, and a deletion forgets.
        _ = try await provider.getCertificate(person)
        try provider.deleteStoredCertificate()
        #expect(!host.records.contains { $0.hasPrefix("recovery-") })
    }

    @Test("An order that the server has ended counts, though its key is kept for the next one")
    func anEndedRecovery() async throws {
        let (host, first) = try host()
        _ = try await first.getCertificate(person)
        host.ahead.withLock { $0 += 400 * 86_400 }
        host.server.behave {
            $0.ahead += 400 * 86_400
            $0.refusal = "unauthorized"
        }
        #expect(await code { _ = try await self.provider(host).getCertificate(person) } == .rejected)
        let error = await failure { _ = try await self.provider(host).getCertificate(person) }
        #expect(error?.message.contains("at most once an hour") == true, "\(String(describing: error))")
        #expect(host.server.count(of: "newOrder") == 2)
        host.server.behave { $0.refusal = nil }
        host.ahead.withLock { $0 += 3600 }
        _ = try await provider(host).getCertificate(person)
        #expect(host.server.count(of: "newOrder") == 3)
    }

    @Test("An order that a recovery has begun is gone on with at once")
    func aRecoveryGoesOn() async throws {
        let (host, first) = try host()
        _ = try await first.getCertificate(person)
        host.ahead.withLock { $0 += 400 * 86_400 }
        host.server.behave { $0.ahead += 400 * 86_400 }
        host.server.fail("finalize", .status(503))
        #expect(await code { _ = try await self.provider(host).getCertificate(person) } == .unavailable)
        _ = try await provider(host).getCertificate(person)
        #expect(host.server.count(of: "newOrder") == 2)
    }

    @Test("Numbers and sizes have their shortest form, and members their order")
    func encoding() {
        let cases: [(CBOR, [UInt8])] = [
            (.integer(23), [0x17]), (.integer(24), [0x18, 24]), (.integer(-7), [0x26]), (.integer(-257), [0x39, 1, 0]),
            (.integer(65_536), [0x1a, 0, 1, 0, 0]), (.integer(.max), [0x1b, 0x7f] + Array(repeating: 0xff, count: 7)),
            (.integer(.min), [0x3b, 0x7f] + Array(repeating: 0xff, count: 7)), (.text("ä"), [0x62, 0xc3, 0xa4]),
            (.bytes(Array(repeating: 1, count: 256)), [0x59, 1, 0] + Array(repeating: 1, count: 256)),
            (
                .map(["aa": .array([]), "b": .integer(1), "a": .map([:])]),
                [0xa3, 0x61, 0x61, 0xa0, 0x61, 0x62, 1, 0x62, 0x61, 0x61, 0x80]
            ),
        ]
        for (value, bytes) in cases { #expect(value.encoded == bytes) }
    }

    // MARK: - Names

    @Test("The names of devices have the octets of their standards, and the whole value is sent")
    func names() async throws {
        let names = try ACMEIdentifier.list(
            "permanent-identifier:SN-1, permanent-identifier:SN-1/1.3.6.1.4.1.5, hardware-module:A7/1.3.6.1.4.1.1, dns:x.example,dns:X.example"
        )
        #expect(
            names.map { "\($0.type) \($0.value)" } == [
                "permanent-identifier SN-1", "permanent-identifier SN-1/1.3.6.1.4.1.5",
                "hardware-module A7/1.3.6.1.4.1.1", "dns x.example",
            ])
        let request = try await CertificateRequest(
            try CertificateRequest.Names(subject: "", subjectAlternativeNames: names.map(\.alternativeName)),
            key: TestAuthority().issue("x").key)
        let text = try Subprocess.run(["openssl", "asn1parse", "-inform", "DER"], input: request.derRepresentation)
        for name in [
            // [0] otherName: 1.3.6.1.5.5.7.8.3, SEQUENCE { UTF8String "SN-1" }; the same with the assigner; and
            // 1.3.6.1.5.5.7.8.4, SEQUENCE { hwType, OCTET STRING "A7" }.
            "A01406082B06010505070803A00830060C04534E2D31",
            "A01C06082B06010505070803A010300E0C04534E2D3106062B0601040105",
            "A01A06082B06010505070804A00E300C06062B060104010104024137",
        ] { #expect(String(decoding: text, as: UTF8.self).contains(name), "\(name)") }
    }

    @Test("The form of before makes the same request, and warns")
    func theFormerForm() throws {
        let names = try ACMEIdentifier.list("hardware-module:1.3.6.1.4.1.1:A7, hardware-module:A7/1.3.6.1.4.1.1")
        #expect(names.count == 1 && names[0].value == "A7/1.3.6.1.4.1.1" && names[0].isInFormerForm)
        #expect(
            try names[0].alternativeName == ACMEIdentifier.list("hardware-module:A7/1.3.6.1.4.1.1")[0].alternativeName)
        let host = try Host()
        let former = try host.provider(["identifiers": "hardware-module:1.3.6.1.4.1.1:A7"])
        #expect(host.log.text.contains("write the serial number first"))
        let present = try host.provider(["identifiers": "hardware-module:A7/1.3.6.1.4.1.1"])
        #expect(former.plan.storageName == present.plan.storageName)
    }
}

/// The keys of another store, which a TPM in software attests.
private struct AttestingKeyStore: KeyStore {
    let store: SealedKeyStore
    let tpm: InventedTPM
    /// Why it cannot be opened.
    let problem: ProviderError?
    init(_ store: SealedKeyStore, _ tpm: InventedTPM, _ problem: ProviderError?) {
        (self.store, self.tpm, self.problem) = (store, tpm, problem)
    }

    var properties: KeyStoreProperties {
        KeyStoreProperties(
            scheme: "store", location: .store, makes: store.makes, attestsKeys: problem?.code != .configurationInvalid)
    }

    private func attesting(_ key: any IdentityKey) -> any IdentityKey {
        TestKey(key, location: .store, uri: key.uri, use: key.use, attester: tpm.attester(of: key.publicKey))
    }

    func holds(keyURI: String) -> Bool { store.holds(keyURI: keyURI) }
    func check(_ interaction: any UserInteraction) async throws(ProviderError) {
        if let problem { throw problem }
        try await store.check(interaction)
    }
    func list() async throws(ProviderError) -> [KeyDescription] { try await store.list() }

    func make(
        _ new: NewKey, _ interaction: any UserInteraction,
        remember: @escaping @Sendable (any IdentityKey) async throws(ProviderError) -> Void
    ) async throws(ProviderError) -> any IdentityKey {
        if let problem { throw problem }
        return attesting(try await store.make(new, interaction, remember: remember))
    }

    func key(
        for key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> (any IdentityKey)? {
        try await store.key(for: key, interaction).map(attesting)
    }

    func storedKey(for key: KeyReference) throws(ProviderError) -> (any IdentityKey)? {
        try store.storedKey(for: key).map(attesting)
    }

    func destroy(_ key: KeyReference, _ interaction: any UserInteraction) async throws(ProviderError) -> Bool {
        try await store.destroy(key, interaction)
    }

    func destroyStored(_ key: KeyReference) throws(ProviderError) -> Bool { try store.destroyStored(key) }
}
