import CertificateProviding
import PKCS11TokenProvider
import TestSupport
import Testing

/// The effects of `delete-objects`, and the objects that deletion leaves without it.
@Suite struct DeletionTests {
    private let tokens: EmptyTokens
    private let authority: TestAuthority

    init() throws {
        tokens = try EmptyTokens.shared.get()
        authority = try TestAuthority()
    }

    private func enrol(_ name: String, on token: EmptyTokens.Name) async throws -> Identity {
        let provider = try tokens.provider(token)
        let key = try await provider.generateKey(.p256, label: name, NoUserInteraction())
        let leaf = try authority.certify(key.publicKey.derRepresentation, as: name)
        return try await provider.store(
            certificateChain: [leaf, authority.intermediate], for: key, NoUserInteraction())
    }

    @Test func objectsGoOnlyWhereTheParameterSaysSo() async throws {
        let identity = try await enrol("client", on: .delete)
        let plain = try tokens.provider(.delete)
        _ = try await plain.getCertificate(NoUserInteraction())
        #expect(try await plain.announcedDeletions().isEmpty)
        try plain.deleteStoredCertificate()
        #expect(try tokens.count(.delete) == 4)

        let destroying = try tokens.provider(.delete, ["delete-objects": "true"])
        let announced = try await destroying.announcedDeletions()
        #expect(announced.count == 2 && announced[0].contains("delete") && announced[0].contains("private"))
        #expect(announced[1].contains("CN=client"), "\(announced)")
        try destroying.deleteStoredCertificate()
        // The issuer's certificate may be others' issuer too.
        #expect(try tokens.count(.delete) == 1)
        #expect(try await destroying.key(for: identity.key.publicKey, NoUserInteraction()) == nil)
        // There are no objects left to delete, which is not an error.
        #expect(try await destroying.announcedDeletions().isEmpty)
        try destroying.deleteStoredCertificate()
    }

    @Test("A deletion destroys the chosen identity, and no other with its label")
    func onlyTheChosenIdentityGoes() async throws {
        let chosen = try await enrol("same", on: .chosen)
        let storage = InMemoryStorage()
        let parameters = ["delete-objects": "true"]
        _ = try await tokens.provider(.chosen, storage: storage, parameters).getCertificate(NoUserInteraction())
        // Of the same label; and to the URI there are two now.
        let other = try await enrol("same", on: .chosen)
        await expect(code: .configurationInvalid) {
            try tokens.provider(.chosen, parameters).deleteStoredCertificate()
        }
        #expect(try tokens.count(.chosen) == 7)
        let provider = try tokens.provider(.chosen, storage: storage, parameters)
        try provider.deleteStoredCertificate()
        #expect(try tokens.count(.chosen) == 4)
        #expect(try await provider.key(for: chosen.key.publicKey, NoUserInteraction()) == nil)
        try await other.verifyPossession()
        #expect(try await provider.getCertificate(NoUserInteraction()).certificate == other.certificate)
    }

    /// A deletion that was cut short has destroyed the private key first.
    @Test(.serialized, arguments: [["privkey"], ["privkey", "pubkey"]])
    func theNextDeletionGoesOnWhereTheLastOneStopped(gone: [String]) async throws {
        let other = try await enrol("other", on: .remains)
        let before = try tokens.count(.remains)
        for isChosen in [true, false] {
            let identity = try await enrol("half", on: .remains)
            let id = try #require(identity.key.uri?.split(separator: ";").first { $0.hasPrefix("id=") })
            let storage = InMemoryStorage()
            let provider = try tokens.provider(.remains, object: ";\(id)", storage: storage, ["delete-objects": "true"])
            if isChosen { _ = try await provider.getCertificate(NoUserInteraction()) }
            for type in gone { try tokens.destroy(type, labelled: "half", on: .remains) }
            let announced = try await provider.announcedDeletions()
            #expect(announced.count == 1 && announced[0].contains("leftover objects of a key pair"), "\(announced)")
            try provider.deleteStoredCertificate()
            #expect(try tokens.count(.remains) == before, "\(isChosen)")
        }
        try await other.verifyPossession()
        try await tokens.provider(.remains).discard(other.key, NoUserInteraction())
    }

    @Test("A deletion without a stored PIN is interactionRequired and destroys nothing")
    func nobodyIsAskedForThePIN() async throws {
        let asking = try tokens.provider(.delete, ["delete-objects": "true", "pin-source": "prompt"])
        await expect(code: .interactionRequired) { try asking.deleteStoredCertificate() }
    }
}
