import CertificateProviding
import Foundation
import IdentityStore
import TestSupport
import Testing

/// `certprov store`: identities that no property file leads to any more.
@Suite struct StoreCommandTests {
    private let sandbox: Sandbox

    init() throws { sandbox = try Sandbox() }

    /// Writes a property file for a fixture, and stores its identity.
    private func fetch(_ fixture: String) throws -> String {
        let path = try sandbox.configure(pkcs12: Fixtures.path(fixture), to: "\(fixture).properties")
        try #require(try sandbox.certprov("fetch", "--config", path).status == 0)
        return path
    }

    private func items(_ options: String...) throws -> [JSON] {
        try sandbox.certprov(["store", "list", "--json"] + options).document("StoredIdentities")["items"].array
    }

    @Test("The store shows each identity with its property file, and deletes one that none leads to")
    func showsAndDeletes() throws {
        #expect(try items().isEmpty)
        let (a, b) = (try fetch("a.p12"), try fetch("b.p12"))
        try #require(try sandbox.certprov(["fetch"] + adHoc(Fixtures.path("ec.p12"))).status == 0)
        var found = try items("--config", b)
        #expect(Set(found.map { $0["propertyFile"].string }) == [a, b, nil])
        let used = try #require(found.first { $0["used"].bool == true })
        #expect(found.count { $0["used"].bool == true } == 1 && used["propertyFile"].string == b)
        #expect(used["subject"].string == "CN=identity-b" && used["status"].string == "valid")
        #expect(try items().allSatisfy { $0["used"].isNull })
        let old = try #require(found.first { $0["propertyFile"].string == a }?["entry"].string)

        try sandbox.certprov("store", "list", "--config", b).expect(stdout: old, "PROPERTY FILE")
        let entry = try #require(used["entry"].string)
        try sandbox.certprov("store", "delete", entry, "--yes", "--json", "--config", b)
            .expectFailure("operationNotAllowed", status: 75)
        // The file that it was stored with may still lead to it.
        try sandbox.certprov("store", "delete", old, "--yes", "--json", "--config", b)
            .expectFailure("operationNotAllowed", status: 75)
        try FileManager.default.removeItem(atPath: a)
        try sandbox.certprov("store", "delete", old, "--json", "--config", b)
            .expectFailure("interactionRequired", status: 77)
        try sandbox.certprov("store", "delete", "pkcs12/none", "--yes", "--json", "--config", b)
            .expectFailure("notFound", status: 66)
        #expect(try items("--config", b).count == 3)
        #expect(try sandbox.certprov("store", "delete", old, "--yes", "--config", b).status == 0)
        found = try items("--config", b)
        #expect(found.count == 2 && !found.contains { $0["entry"].string == old })
    }

    @Test("A key goes with the last entry that has it")
    func aKeyInUseStays() async throws {
        let store = IdentityStore(path: sandbox.store)
        let keys = SealedKeyStore(environment: .testing(storage: store.storage(for: ProviderID("store"))))
        let key = try await keys.make(NewKey(.p256, label: "web"), NoUserInteraction()) { _ in }
        let reference = keys.reference(to: key)
        let leaf = try TestAuthority().certify(key.publicKey.derRepresentation, as: "web")
        for name in ["former", "present"] {
            try store.storage(for: ProviderID("corp")).setEntry(
                StoredIdentity(certificateChain: [leaf], key: reference), named: name)
        }
        try sandbox.certprov("store", "delete", "corp/former", "--yes").expect(stderr: "'corp/present' has it too")
        #expect(try keys.storedKey(for: reference) != nil)
        try sandbox.certprov("store", "delete", "corp/present", "--yes").expect(stderr: "")
        #expect(try keys.storedKey(for: reference) == nil)
    }

    @Test("An entry that cannot be read is shown, and can be deleted")
    func aDamagedEntryIsShown() throws {
        _ = try fetch("a.p12")
        let entry = try sandbox.entry()
        try sandbox.write("damaged", to: entry)
        let found = try items()
        #expect(found.count == 1 && found[0]["error"]["code"].string == "storeReadFailed" && found[0]["subject"].isNull)
        let name = try #require(found[0]["entry"].string)
        // It may name a key on a token.
        try sandbox.certprov("store", "delete", name, "--yes", "--json").expectFailure("storeReadFailed", status: 74)
        #expect(try items().count == 1)
        #expect(try sandbox.certprov("store", "delete", name, "--yes", "--keep-key").status == 0)
        #expect(try items().isEmpty)
    }
}
