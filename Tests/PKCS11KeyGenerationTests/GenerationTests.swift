import CertificateProviding
import Foundation
import PKCS11TokenProvider
import TestSupport
import Testing

@Suite struct GenerationTests {
    private let tokens: EmptyTokens

    init() throws { tokens = try EmptyTokens.shared.get() }

    @Test(arguments: KeyType.allCases)
    func everyTypeSigns(type: KeyType) async throws {
        let provider = try tokens.provider(.types)
        let key = try await provider.generateKey(type, label: "key \(type)", NoUserInteraction())
        #expect(key.location == .token && key.exporter == nil)
        let expected = [
            KeyType.p256: "EC P-256", .p384: "EC P-384", .p521: "EC P-521", .rsa2048: "RSA 2048", .rsa3072: "RSA 3072",
            .rsa4096: "RSA 4096", .ed25519: "Ed25519",
        ]
        #expect(key.publicKey.displayName == expected[type])
        #expect(key.uri?.contains("token=types") == true && key.uri?.contains("object=key%20\(type)") == true)
        #expect(!key.signatureSchemes.isEmpty)
        for scheme in key.signatureSchemes {
            let message = Array("to be signed".utf8)
            let signature = try await key.signature(for: message, using: scheme)
            #expect(key.publicKey.isValidSignature(signature, for: message, using: scheme), "\(scheme)")
        }
        // Another provider, as after a restart, finds it by its public key.
        let found = try #require(try await tokens.provider(.types).key(for: key.publicKey, NoUserInteraction()))
        #expect(found.uri == key.uri && found.publicKey == key.publicKey)
    }

    @Test func keysAreListedAlsoThoseWithoutACertificate() async throws {
        let made = [
            try await tokens.provider(.listed).generateKey(.p256, label: "first", NoUserInteraction()),
            try await tokens.provider(.listed).generateKey(.rsa2048, label: "second", NoUserInteraction()),
        ]
        let store = try #require(try tokens.provider(.listed).keyStore)
        let keys = try await store.list().sorted { $0.label ?? "" < $1.label ?? "" }
        #expect(keys.map(\.label) == ["first", "second"])
        #expect(keys.map(\.reference.publicKey) == made.map(\.publicKey))
        #expect(keys.map(\.reference.uri) == made.map { $0.uri ?? "" })
        for key in keys { #expect(try await store.key(for: key.reference, NoUserInteraction()) != nil) }
        for key in keys {
            #expect(try await store.destroy(key.reference, NoUserInteraction()))
            #expect(try !store.destroyStored(key.reference))
        }
        #expect(try await store.list().isEmpty)
        // A token that cannot be read is not an empty one.
        let away = try tokens.provider(.listed, ["uri": "pkcs11:token=away"])
        let several = try tokens.provider(.listed, ["uri": "pkcs11:"])
        await expect(code: .tokenNotPresent) { _ = try await away.keyStore?.list() }
        await expect(code: .configurationInvalid) { _ = try await several.keyStore?.list() }
        let asking = try tokens.provider(.listed, ["pin-source": "prompt"])
        try await store.check(NoUserInteraction())
        await expect(code: .tokenNotPresent) { try await away.keyStore?.check(NoUserInteraction()) }
        await expect(code: .configurationInvalid) { try await several.keyStore?.check(NoUserInteraction()) }
        await expect(code: .interactionRequired) { try await asking.keyStore?.check(NoUserInteraction()) }
        let readable = NewKey(.p256, label: "", guarantees: [.exportable])
        await expect(code: .unsupportedAlgorithm) { _ = try await store.make(readable, NoUserInteraction()) { _ in } }
    }

    @Test func otherToolsSeeAKeyThatCannotLeave() async throws {
        let provider = try tokens.provider(.tools)
        let key = try await provider.generateKey(.p256, label: "client", NoUserInteraction())
        let listing = try tokens.listing(.tools)
        #expect(try tokens.count(.tools) == 2)
        let privateKey = try #require(listing.range(of: "Private Key Object; EC"))
        let text = String(listing[privateKey.lowerBound...])
        #expect(text.contains("label:      client"), "\(listing)")
        #expect(text.contains("sensitive, always sensitive, never extractable, local"), "\(listing)")
        let usage = try #require(text.split(separator: "\n").first { $0.contains("Usage:") })
        #expect(usage.split(separator: ":").last?.trimmingCharacters(in: .whitespaces) == "sign")
        // Both halves have the same id, which the URI has too.
        let ids = listing.split(separator: "\n").filter { $0.contains("ID:") }.compactMap {
            $0.split(separator: " ").last
        }
        #expect(ids.count == 2 && Set(ids).count == 1 && ids[0].count == 32)
        #expect(key.uri?.replacingOccurrences(of: "%", with: "").lowercased().contains("id=\(ids[0])") == true)
    }

    @Test func twoKeysHaveTwoIDs() async throws {
        let provider = try tokens.provider(.several)
        let first = try await provider.generateKey(.p256, label: "twin", NoUserInteraction())
        let second = try await provider.generateKey(.p256, label: "twin", NoUserInteraction())
        #expect(first.uri != second.uri)
        try await provider.discard(first, NoUserInteraction())
        #expect(try await provider.key(for: first.publicKey, NoUserInteraction()) == nil)
        #expect(try await provider.key(for: second.publicKey, NoUserInteraction())?.uri == second.uri)
        // Once more succeeds.
        try await provider.discard(first, NoUserInteraction())
        await expect(code: .notFound) {
            _ = try await first.signature(for: [1], using: .ecdsaP256SHA256)
        }
        // Through a key that hides what it is.
        try await provider.discard(TestKey(second), NoUserInteraction())
        #expect(try tokens.count(.several) == 0)
    }

    @Test func aTokenMustBeMeant() async throws {
        let any = try tokens.provider(.types, ["uri": "pkcs11:manufacturer=SoftHSM%20project"])
        let error = await expect(code: .configurationInvalid) {
            _ = try await any.generateKey(.p256, label: "x", NoUserInteraction())
        }
        #expect(error?.message.contains("token=types") == true)
        let absent = try tokens.provider(.types, ["uri": "pkcs11:token=absent"])
        await expect(code: .tokenNotPresent) {
            _ = try await absent.generateKey(.p256, label: "x", NoUserInteraction())
        }
        let closed = try tokens.provider(.types, ["login": "never"])
        await expect(code: .configurationInvalid) {
            _ = try await closed.generateKey(.p256, label: "x", NoUserInteraction())
        }
    }
}

/// Expects an error of one code.
@discardableResult
func expect(
    code: ProviderError.Code, _ location: SourceLocation = #_sourceLocation,
    _ body: () async throws -> Void
) async -> ProviderError? {
    do { try await body() } catch let error as ProviderError {
        #expect(error.code == code, "\(error)", sourceLocation: location)
        return error
    } catch {
        Issue.record(error, sourceLocation: location)
        return nil
    }
    Issue.record("no error", sourceLocation: location)
    return nil
}
