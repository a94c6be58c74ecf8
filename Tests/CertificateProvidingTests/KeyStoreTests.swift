import CertificateProviding
import Foundation
import Synchronization
import TestSupport
import Testing

/// The shared behaviour of providers with keys in key stores.
@Suite struct KeyStoreTests {
    private let identity = Result { try TestAuthority().issue("client") }

    private func leaf() throws -> X509Certificate { try identity.get().certificate }

    @Test("A key reference is encoded and decoded without loss")
    func aReferenceSurvivesARecord() throws {
        let reference = KeyReference(publicKey: try leaf().publicKey, uri: "store:12")
        let read = try JSONDecoder().decode(KeyReference.self, from: JSONEncoder().encode(reference))
        #expect(read.publicKey == reference.publicKey && read.uri == reference.uri)
        #expect(throws: (any Error).self) {
            try JSONDecoder().decode(KeyReference.self, from: Data(#"{"publicKey":"AAAA","uri":"store:12"}"#.utf8))
        }
    }

    @Test(
        "A scheme alone is the URI of a place, and names no key",
        arguments: [
            ("store:", ""), ("PKCS11:", ""), ("vault:a", "vault:a"),
            ("pkcs11:?module-path=/m", "pkcs11:?module-path=/m"),
            ("", ""), ("a:b:", "a:b:"),
        ])
    func aPlaceIsNoKey(uri: String, expected: String) throws {
        let reference = KeyReference(publicKey: try leaf().publicKey, uri: uri)
        #expect(reference.uri == expected)
        let read = try JSONDecoder().decode(
            KeyReference.self,
            from: JSONSerialization.data(withJSONObject: [
                "publicKey": Data(reference.publicKey.derRepresentation).base64EncodedString(), "uri": uri,
            ]))
        #expect(read.uri == expected)
    }

    @Test func aStoredIdentityNamesItsKey() throws {
        let leaf = try leaf()
        let reference = KeyReference(publicKey: leaf.publicKey, uri: "store:12")
        var stored = StoredIdentity(certificateChain: [leaf], key: reference, attributes: ["server": "x"])
        #expect(stored.key?.uri == "store:12" && stored.key?.publicKey == leaf.publicKey)
        #expect(stored.attributes["server"] == "x" && stored.privateKey == nil)
        stored.privateKey = SecretBytes(copying: [1])
        #expect(stored.key == nil)
        #expect(StoredIdentity(certificateChain: [leaf], privateKey: nil).key == nil)
    }

    @Test("Joined properties give another storage name than separate ones")
    func namesDifferWithTheProperties() {
        let name = StoredIdentity.name(distinguishedBy: ["https://a", "CN=b"])
        #expect(name.utf8.count == 32 && name == StoredIdentity.name(distinguishedBy: ["https://a", "CN=b"]))
        #expect(name != StoredIdentity.name(distinguishedBy: ["https://aCN=b"]))
    }

    @Test func certificatesAreReadOfPEM() throws {
        let leaf = try leaf()
        let key = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"
        #expect(try X509Certificate.certificates(pem: key + leaf.pemRepresentation + leaf.pemRepresentation).count == 2)
        for text in ["", key, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            #expect(failure { try X509Certificate.certificates(pem: text) }?.code == .malformedData)
        }
    }

    @Test("Each further key store is opened once and shut down with the set")
    func otherStoresAreMadeOnceAndShutDown() async throws {
        let made = Mutex<[String]>([])
        let stopped = Mutex<[String]>([])
        let stores = KeyStores(schemes: ["test"]) { location in
            guard location.scheme == "test" else { return nil }
            made.withLock { $0.append(location.uri) }
            return PlaceStore(place: location.uri) { uri in stopped.withLock { $0.append(uri) } }
        }
        let set = KeyStoreSet(try stores.store("test:a"), and: stores)
        let publicKey = try leaf().publicKey
        let (own, other) = (
            KeyReference(publicKey: publicKey, uri: "test:a"), KeyReference(publicKey: publicKey, uri: "test:b")
        )
        #expect(set.isConfigured(own) && !set.isConfigured(other))
        for key in [own, other, other] { #expect(try set.store(of: key).holds(keyURI: key.uri)) }
        #expect(made.withLock(\.self) == ["test:a", "test:b"])
        #expect(throws: ProviderError.self) {
            try set.store(of: KeyReference(publicKey: publicKey, uri: "unknown:b"))
        }
        await set.shutdown()
        #expect(stopped.withLock(\.self) == ["test:a", "test:b"])
    }
}

/// A key store of one place, without keys.
private struct PlaceStore: KeyStore {
    let place: String
    let note: @Sendable (String) -> Void

    var properties: KeyStoreProperties {
        KeyStoreProperties(scheme: "test", location: KeyLocation(rawValue: "elsewhere"), makes: [:])
    }
    func holds(keyURI: String) -> Bool { keyURI == place }

    func check(_ interaction: any UserInteraction) async throws(ProviderError) {}

    func make(
        _ new: NewKey, _ interaction: any UserInteraction,
        remember: @escaping @Sendable (any IdentityKey) async throws(ProviderError) -> Void
    ) async throws(ProviderError) -> any IdentityKey {
        throw ProviderError(.unsupportedAlgorithm, "No key is made here.")
    }

    func key(
        for key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> (any IdentityKey)? { nil }

    func storedKey(for key: KeyReference) throws(ProviderError) -> (any IdentityKey)? { nil }
    func list() async throws(ProviderError) -> [KeyDescription] { [] }

    func destroy(
        _ key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Bool { false }
    func destroyStored(_ key: KeyReference) throws(ProviderError) -> Bool { false }
    func shutdown() async { note(place) }
}
