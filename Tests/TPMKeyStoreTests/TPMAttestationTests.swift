import CertificateProviding
import Foundation
import TPMKeyStore
import TestSupport
import Testing

@testable import ACMEProvider

/// Statements of a software TPM about its keys, and the certificate of its attestation key.
@Suite(.serialized, .enabled(if: TestLength.hasSeconds), .timeLimit(.minutes(20))) struct TPMAttestationTests {
    private let data = [UInt8](0..<32)
    private static let root = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../..").standardized
    private static let python = root.appending(path: ".build/fido2/bin/python").path

    /// A statement about a new key, which a verifier would accept.
    @discardableResult
    private func attest(_ store: TPMStore, _ parameters: [String: String]) async throws -> KeyAttestation {
        let key = try await store.make(.p256, "tpm:", parameters)
        let statement = try await #require(key.attester).attestation(of: data)
        try statement.check(for: key.publicKey, of: data)
        return statement
    }

    @Test(
        "An independent verifier accepts the TPM's statement",
        .enabled(if: FileManager.default.fileExists(atPath: python)))
    func theStatementIsAccepted() async throws {
        let store = try TPMStore()
        let server = try AttestationServer(listing: store.tpm)
        let key = try await store.make(.p256, "tpm:", server.parameters)
        let text = "token.thumbprint"
        let statement = try await #require(key.attester).attestation(
            of: DigestAlgorithm.sha256.digest(of: Array(text.utf8)))
        let (object, publicKey) = (
            try server.directory.write(statement.object.encoded, to: "object"),
            try server.directory.write(key.publicKey.derRepresentation, to: "key")
        )
        let script = Self.root.appending(path: "Tests/ACMEProviderTests/verify-statement.py").path
        func verdict(_ text: String) throws -> String {
            String(
                decoding: try Subprocess.run([Self.python, "-B", script, object, text, publicKey]), as: UTF8.self)
        }
        #expect(try verdict(text) == "accepted\n")
        #expect(try verdict("another").hasPrefix("refused"))
    }

    @Test(
        "One attestation key serves all keys, until a month before its certificate ends, and until the TPM is cleared")
    func theAttestationKeyIsStored() async throws {
        var store = try TPMStore()
        let server = try AttestationServer(listing: store.tpm)
        for _ in 0..<2 { try await attest(store, server.parameters) }
        store.ahead = 334 * 86_400
        try await attest(store, server.parameters)
        #expect(server.count("certified") == 1)
        store.ahead = 336 * 86_400
        try await attest(store, server.parameters)
        #expect(server.count("certified") == 2)
        store.ahead = 0
        try await attest(store, server.parameters)
        #expect(server.count("certified") == 2)
        try store.tpm.run("tpm2_clear", "-c", "p")
        try await attest(store, server.parameters)
        #expect(server.count("certified") == 3)
        #expect(try store.tpm.leftovers().isEmpty)
    }

    @Test("After the key that it has attested last is destroyed, another attestation key is certified")
    func aRefusedStatement() async throws {
        let store = try TPMStore()
        let server = try AttestationServer(listing: store.tpm)
        let keyStore = try store.store("tpm:", server.parameters)
        var keys: [KeyReference] = []
        for _ in 0..<3 {
            let key = try await store.make(.p256, "tpm:", server.parameters)
            keys.append(KeyReference(publicKey: key.publicKey, uri: key.uri ?? ""))
            _ = try await #require(key.attester).attestation(of: data)
            // The key of an identity that was replaced.
            if keys.count == 2 { #expect(try await keyStore.destroy(keys[0], NoUserInteraction())) }
        }
        #expect(server.count("certified") == 1)
        #expect(try await keyStore.destroy(keys[2], NoUserInteraction()))
        try await attest(store, server.parameters)
        #expect(server.count("certified") == 2)
    }

    @Test("A persistent parent has an attestation key of its own")
    func aPersistentParent() async throws {
        let (store, directory) = (try TPMStore(), try TemporaryDirectory())
        let server = try AttestationServer(listing: store.tpm)
        try store.tpm.run("tpm2_createprimary", "-G", "ecc", "-c", directory["parent"])
        try store.tpm.run("tpm2_evictcontrol", "-c", directory["parent"], "0x81000001")
        try store.tpm.run("tpm2_flushcontext", "-t")
        try await attest(store, server.parameters.merging(["parent": "0x81000001"]) { $1 })
        try await attest(store, server.parameters)
        #expect(server.count("certified") == 2)
    }

    @Test("The certificate of the endorsement key is sent, without the padding after it")
    func theEndorsementCertificate() async throws {
        let store = try TPMStore()
        let server = try AttestationServer()
        let certificate = try TestAuthority().certify(store.tpm.endorsementKey(), as: "TPM").derRepresentation
        let path = try server.directory.write(
            certificate + [UInt8](repeating: 0xff, count: 100), to: "certificate")
        try store.tpm.run(
            "tpm2_nvdefine", "0x01c00002", "-C", "o", "-s", "\(certificate.count + 100)", "-a",
            "authread|authwrite|ownerread|ownerwrite|no_da")
        try store.tpm.run("tpm2_nvwrite", "0x01c00002", "-C", "o", "-i", path)
        await expect(.rejected, "the TPM is not listed") { try await attest(store, server.parameters) }
        try server.list(certificate)
        try await attest(store, server.parameters)
        #expect(try store.tpm.leftovers().isEmpty)
    }

    @Test(
        "A wrong answer of the CA is an error, the secret stays here, and nothing is left in the TPM",
        arguments: [
            ("no JSON", "is not the JSON"), ("another object", "is not the JSON"), ("huge", "limit of 65536 bytes"),
            ("URL alphabet", "is not the JSON"), ("no padding", "is not the JSON"), ("redirection", "307"),
            ("cut credential", "the size that it says"), ("cut secret", "the size that it says"),
            ("empty secret", "the size that it says"), ("long secret", "too long"),
            ("damaged credential", "not for this TPM"), ("damaged secret", "not for this TPM"),
            ("garbage secret", "not for this TPM"), ("another name", "not for this TPM"),
        ])
    func aWrongCredential(flaw: String, words: String) async throws {
        let store = try TPMStore()
        let server = try AttestationServer(listing: store.tpm, flaw: flaw)
        await expect(.protocolError, words) { try await attest(store, server.parameters) }
        #expect(server.count("asked the TPM") == 1 && server.count("certified") == 0)
        #expect(try store.tpm.leftovers().isEmpty)
    }

    @Test(
        "A wrong chain is an error and is not stored, and nothing is left in the TPM",
        arguments: [
            ("no chain", "is not the JSON"), ("huge chain", "limit of 65536 bytes"),
            ("empty chain", "0 certificates"), ("many certificates", "10 certificates"),
            ("no certificate", "cannot be read"), ("another key", "for another key"), ("a subject", "has the subject"),
            ("expired", "the clock of this host says"),
        ])
    func aWrongChain(flaw: String, words: String) async throws {
        let store = try TPMStore()
        let server = try AttestationServer(listing: store.tpm, flaw: flaw)
        await expect(.protocolError, words) { try await attest(store, server.parameters) }
        #expect(server.count("certified") == 1)
        #expect(try store.storage.recordNames().allSatisfy { $0.hasPrefix("key-") })
        #expect(try store.tpm.leftovers().isEmpty)
    }

    @Test(
        "The secret of a credential is sent once, and to the CA alone, whatever the CA does with it",
        arguments: [
            ("another place for the secret", ProviderError.Code.protocolError, "307"),
            ("busy", .unavailable, "503"), ("lost answer", .unavailable, "answer"), ("late", .timedOut, "overloaded"),
        ])
    func theSecretIsSentOnce(flaw: String, code: ProviderError.Code, words: String) async throws {
        let store = try TPMStore()
        let server = try AttestationServer(listing: store.tpm, flaw: flaw)
        await expect(code, words) { try await attest(store, server.parameters) }
        #expect(server.count("asked the TPM") == 1 && server.count("got a secret") == 1)
        #expect(try store.storage.recordNames().allSatisfy { $0.hasPrefix("key-") })
        #expect(try store.tpm.leftovers().isEmpty)
    }

    @Test("A second answer of the CA, that was not asked for, changes nothing")
    func aSecondAnswer() async throws {
        let store = try TPMStore()
        let server = try AttestationServer(listing: store.tpm, flaw: "twice")
        try await attest(store, server.parameters)
        #expect(server.count("got a secret") == 1 && server.count("certified") == 1)
        #expect(try store.tpm.leftovers().isEmpty)
    }

    @Test("A CA that does not know the TPM, is another one, hangs, or is away")
    func theAuthority() async throws {
        let store = try TPMStore()
        let server = try AttestationServer()
        let key = DisplayText.hexadecimal(DigestAlgorithm.sha256.digest(of: try store.tpm.endorsementKey()))
        await expect(.rejected, "the TPM is not listed; check that the CA knows this TPM") {
            try await attest(store, server.parameters)
        }
        await expect(.rejected, "whose endorsement key has the SHA-256 \(key).") {
            try await attest(store, server.parameters)
        }
        let other = try AttestationServer(listing: store.tpm)
        let anchors = ["attestation-trust-anchors": server.directory["ca.pem"]]
        await expect(.serverNotTrusted, "'attestation-trust-anchors'") {
            try await attest(store, other.parameters.merging(anchors) { $1 })
        }
        #expect(other.count("") == 0)
        other.stop()
        await expect(.timedOut, "overloaded") { try await attest(store, other.parameters) }
        other.kill()
        await expect(.unavailable, "attestation-url") { try await attest(store, other.parameters) }
        #expect(try store.tpm.leftovers().isEmpty)
    }

    @Test func anEndorsementAuthorisation() async throws {
        let store = try TPMStore()
        let server = try AttestationServer(listing: store.tpm)
        try store.tpm.run("tpm2_changeauth", "-c", "endorsement", "secret")
        await expect(.configurationInvalid, "has an endorsement authorisation") {
            try await attest(store, server.parameters)
        }
        #expect(try store.tpm.leftovers().isEmpty)
    }

    @Test("Keys attest with a CA whose server is authenticated, and without one say that they do not")
    func settings() async throws {
        let store = try TPMStore()
        #expect(try await store.make().attester == nil)
        #expect(try !store.store().properties.attestsKeys)
        let anchors = ["attestation-trust-anchors": "/ca.pem"]
        for (parameters, words) in [
            (["attestation-url": "https://ca.example.com"], "attestation-trust-anchors"),
            (anchors, "attestation-url"),
            (anchors.merging(["attestation-url": "http://ca.example.com"]) { $1 }, "must be an https: URL"),
        ] { await expect(.configurationInvalid, words) { _ = try store.store("tpm:", parameters) } }
    }
}
