import CP11Kit
import CertificateProviding
import FaultyModuleControl
import Foundation
import PKCS11TokenProvider
import TestSupport
import Testing

/// Which identity is meant among several, and what one that cannot be read hides.
@Suite(.timeLimit(.minutes(20))) struct IdentityChoiceTests {
    /// A token with one key and certificates for it that begin at these times, in seconds from now.
    private func renewed(_ starts: [TimeInterval]) throws -> (FaultyModule, [X509Certificate]) {
        let authority = try FaultyModule.authority.get()
        let (identity, now) = (try authority.issue("client"), Date())
        let certificates = try starts.map {
            try authority.renew(identity, as: "client", notBefore: now.addingTimeInterval($0))
        }
        let module = try FaultyModule.withToken {
            try $0.addKey(of: identity, to: 0)
            for certificate in certificates { try $0.add(certificate, to: 0, id: 1) }
        }
        return (module, certificates)
    }

    /// They have one id and one label, so that no URI tells them apart.
    @Test(arguments: [[-9000, -60, -3600], [-60, -9000, 3600], [3600, 7200, -60]])
    func theNewestCertificateOfAKeyIsMeant(starts: [TimeInterval]) async throws {
        let (module, certificates) = try renewed(starts)
        let provider = try module.provider()
        let newest = try #require(starts.firstIndex(of: -60))
        #expect(try await provider.getCertificate(NoUserInteraction()).certificate == certificates[newest])
        let list = await provider.listIdentities()
        #expect(list.identities.map(\.isStored) == starts.map { $0 == -60 })
    }

    @Test func theSameCertificateTwiceIsOne() async throws {
        let (module, certificates) = try renewed([-60])
        try module.add(certificates[0], to: 0, id: 1)
        #expect(try await module.provider().getCertificate(NoUserInteraction()).key.signsValidly())
    }

    @Test func whereNothingTellsThemApartTheMessageDoes() async throws {
        let (module, certificates) = try renewed([-60, -60])
        let provider = try module.provider()
        let error = try #require(await failure { try await provider.getCertificate(NoUserInteraction()) })
        #expect(error.code == .configurationInvalid)
        for certificate in certificates { #expect(error.message.contains(certificate.serialNumberText)) }
        #expect(error.message.contains("CN=client") && error.message.contains("until 20"))
    }

    /// A renewal has written the new key's certificate, and the old one is still there.
    @Test func theChosenOneStaysChosen() async throws {
        let module = try FaultyModule.withIdentity()
        let storage = InMemoryStorage()
        let chosen = try await module.provider(storage: storage).getCertificate(NoUserInteraction())
        try module.add(FaultyModule.authority.get().issue("new"), to: 0, id: 2)
        let provider = try module.provider(storage: storage)
        #expect(try provider.getStoredCertificate()?.certificate == chosen.certificate)
        #expect(await provider.listIdentities().identities.map(\.isStored) == [true, false])
        #expect(await code { _ = try module.provider().getStoredCertificate() } == .configurationInvalid)
    }

    /// The result of `getStoredCertificate` is shown as stored, whether it was ever fetched or not.
    @Test("An identity that needs no login to be found is listed as stored")
    func whatIsAtHandIsStored() async throws {
        let module = try FaultyModule.withIdentity()
        let provider = try module.provider()
        #expect(await provider.listIdentities().identities.map(\.isStored) == [true])
        #expect(try provider.getStoredCertificate() != nil)
        let attended = try module.provider(pin: nil)
        #expect(await attended.listIdentities().identities.map(\.isStored) == [false])
        #expect(try attended.getStoredCertificate() == nil)
    }

    @Test func anObjectThatCannotBeReadHidesNoOther() async throws {
        let module = try FaultyModule.withIdentity()
        try module.add(FaultyModule.authority.get().issue("other"), to: 0, id: 2)
        // The last one is that of an object that was deleted after the search.
        for result in [
            CKR_ATTRIBUTE_VALUE_INVALID, CKR_GENERAL_ERROR, CKR_DEVICE_MEMORY, CKR_OBJECT_HANDLE_INVALID,
        ] {
            let provider = try module.provider(["login": "never"])
            module.fail("C_GetAttributeValue", result)
            let list = await provider.listIdentities()
            #expect(list.identities.count == 1 && list.failures.map(\.code) == [.unavailable], "\(list)")
        }
    }

    /// A certificate object may say only where the certificate is (PKCS#11, section 4.6.3).
    @Test func aCertificateThatIsElsewhereIsRemarkedOn() async throws {
        let module = try FaultyModule.withIdentity()
        module.control.distort(CKA_VALUE, 0, 0)
        let list = await (try module.provider(["uri": "pkcs11:token=alpha"])).listIdentities()
        #expect(list.identities.isEmpty && list.remarks.count == 1, "\(list)")
        #expect(list.remarks.first?.contains("CKA_URL") == true && list.remarks[0].contains("id=%01"), "\(list)")
    }

    /// It is in the list of slots, and gone when it is read.
    @Test func aTokenThatIsPulledOutHidesNoOther() async throws {
        let module = try FaultyModule.withIdentity()
        try module.addBeta()
        let provider = try module.provider(["login": "never"])
        module.fail("C_FindObjectsInit", CKR_DEVICE_REMOVED, times: 2)
        let list = await provider.listIdentities()
        #expect(list.identities.count == 1 && list.failures.map(\.code) == [.tokenNotPresent], "\(list)")
    }

    /// A certificate of an issuer, or of any other key, under the id of a key that has its own.
    @Test func anotherCertificateUnderTheIDIsNoFailure() async throws {
        let module = try FaultyModule.withIdentity()
        try module.add(FaultyModule.rsaIdentity.get().certificate, to: 0, id: 1)
        let provider = try module.provider()
        #expect(try await provider.getCertificate(NoUserInteraction()).key.signsValidly())
        #expect(await provider.listIdentities().failures.isEmpty)
    }

    /// Both keys have one id, and nothing beside them says more.
    private func withAnothersKey(_ kind: TestAuthority.KeyKind, before identity: Identity) throws -> FaultyModule {
        try .withToken {
            try $0.addKey(of: FaultyModule.authority.get().issue("other", kind: kind), to: 0)
            try $0.add(identity, to: 0)
        }
    }

    @Test func aKeyOfAnotherKindIsNotTheCertificates() async throws {
        let module = try withAnothersKey(.p256, before: FaultyModule.rsaIdentity.get())
        #expect(try await module.provider().getCertificate(NoUserInteraction()).key.signsValidly())
    }

    /// Careless tools give every key the same id, and another curve's may come first.
    @Test(arguments: [TestAuthority.KeyKind.p384, .p256])
    func anotherKeyUnderTheIDIsPassedOver(kind: TestAuthority.KeyKind) async throws {
        let module = try withAnothersKey(kind, before: FaultyModule.authority.get().issue("client"))
        #expect(try await module.provider().getCertificate(NoUserInteraction()).key.signsValidly())
    }

    /// Other modules say so before they sign.
    @Test(arguments: ["C_SignInit", "C_Sign"], [CKR_KEY_TYPE_INCONSISTENT, CKR_DATA_LEN_RANGE, CKR_KEY_SIZE_RANGE])
    func aKeyThatSaysItIsOfAnotherKindIsPassedOver(function: String, result: CK_RV) async throws {
        let module = try withAnothersKey(.p256, before: FaultyModule.authority.get().issue("client"))
        module.fail(function, result)
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        #expect(try await identity.key.signsValidly())
        // Of the key that has signed before it is an error.
        module.fail(function, result)
        #expect(await code { _ = try await identity.key.signsValidly() } != nil)
        #expect(try await identity.key.signsValidly())
    }

    /// The wrong key is replaced by the right one while the connection goes on.
    @Test func aMismatchIsNotForEver() async throws {
        let (module, identity) = try FaultyModule.withAnothersKey()
        let provider = try module.provider()
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .keyMismatch)
        try module.addKey(of: identity, to: 0)
        #expect(try await provider.getCertificate(NoUserInteraction()).key.signsValidly())
    }

    /// `CKA_EC_POINT` in the forms that modules give it: an OCTET STRING or not, whole or compressed.
    @Test(arguments: [true, false], [true, false]) func aPointTellsTheKey(isWrapped: Bool, isWhole: Bool) async throws {
        func point(_ key: PublicKeyInfo) -> [UInt8] {
            let whole = key.keyBits
            let point = isWhole ? whole : [2 | (whole[64] & 1)] + whole[1...32]
            return isWrapped ? [4, UInt8(point.count)] + point : point
        }
        for isOwn in [true, false] {
            let module = try FaultyModule.withIdentity()
            let provider = try module.provider()
            let own = try await provider.getCertificate(NoUserInteraction()).certificate.publicKey
            let other = try FaultyModule.authority.get().issue("other").certificate.publicKey
            let bytes = point(isOwn ? own : other)
            module.control.add_public_key(0, 1, bytes, UInt(bytes.count))
            let outcome = await code { _ = try await provider.getCertificate(NoUserInteraction()) }
            #expect(outcome == (isOwn ? nil : .keyMismatch))
        }
    }

    /// A certificate whose key is a point without coordinates, beside a public key.
    @Test func aPointWithoutCoordinatesIsNobodysKey() async throws {
        let module = try FaultyModule.withIdentity()
        let own = try FaultyModule.authority.get().issue("other").certificate
        // The same length: what the point loses its curve's parameters get.
        let keyInfo = own.publicKey.derRepresentation
        let parameters = [4, 72] + [UInt8](repeating: 0, count: 72)
        let pointless = keyInfo.prefix(2) + [0x30, 83] + keyInfo[4..<13] + parameters + [3, 2, 0, 4]
        #expect(pointless.count == keyInfo.count)
        var der = Data(own.derRepresentation)
        let place = try #require(der.range(of: Data(keyInfo)))
        der.replaceSubrange(place, with: pointless)
        try module.add(X509Certificate(derRepresentation: Array(der)), to: 0, id: 1)
        module.control.add_public_key(0, 1, own.publicKey.keyBits, 65)
        let list = try await module.provider().listIdentities()
        #expect(list.identities.isEmpty && list.failures.map(\.code) == [.keyMismatch], "\(list)")
    }
}
