import CP11Kit
import CertificateProviding
import FaultyModuleControl
import PKCS11TokenProvider
import TestSupport
import Testing

/// Which token gets a PIN. Each wrong one counts there, so a token that is not meant must get none.
@Suite(.timeLimit(.minutes(20))) struct TokenChoiceTests {
    private let module: FaultyModule

    init() throws { module = try .withIdentity() }

    /// Hides the certificate of the token `alpha`.
    private func hide() { module.control.set_visibility(0, 0, 0) }

    /// Another person's token, perhaps, is the only one in the reader.
    @Test(arguments: [true, false]) func aConfiguredPINNeedsATokenThatIsMeant(isEmpty: Bool) async throws {
        hide()
        if isEmpty { module.control.clear(0) }
        for uri in ["pkcs11:", "pkcs11:object=identity", "pkcs11:manufacturer=certprov"] {
            let provider = try module.provider(["uri": uri])
            #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .configurationInvalid)
            #expect(await code { _ = try provider.getStoredCertificate() } == .configurationInvalid)
            #expect(await choice(provider) == .configurationInvalid)
            let key = try FaultyModule.authority.get().issue("key").key.publicKey
            #expect(await code { _ = try await provider.key(for: key, NoUserInteraction()) } == .configurationInvalid)
        }
        #expect(module.calls("C_Login") == 0)
    }

    @Test(arguments: ["pkcs11:token=alpha", "pkcs11:serial=0001", "pkcs11:model=faulty;manufacturer=certprov"])
    func aURIThatNamesTheTokenIsEnough(uri: String) async throws {
        hide()
        let provider = try module.provider(["uri": uri])
        #expect(try await provider.getCertificate(NoUserInteraction()).key.signsValidly())
    }

    /// A person reads the token's name before they type; and what they have chosen is known from then on.
    @Test func aPersonSaysWhichTokenIsMeant() async throws {
        hide()
        let storage = InMemoryStorage()
        let attended = try module.provider(pin: nil, storage: storage)
        let person = Person(FaultyModule.pin)
        #expect(try attended.getStoredCertificate() == nil)
        #expect(try await attended.getCertificate(person).key.signsValidly())
        module.control.insert(0, -1)
        module.control.insert(0, 0)
        #expect(try attended.getStoredCertificate() != nil)
        #expect(person.timesAsked == 1)
        #expect(try module.provider(storage: storage).getStoredCertificate() != nil)
        #expect(module.control.tries_left(0) == 3)
    }

    @Test func aPINIsNotForTheTokenThatCameMeanwhile() async throws {
        try module.addBeta(pin: "5678", isInserted: false)
        let provider = try module.provider(pin: nil)
        func swapper(_ token: Int32) -> Person {
            Person { _ in
                module.control.insert(0, token)
                return FaultyModule.pin
            }
        }
        #expect(await code { _ = try await provider.getCertificate(swapper(1)) } == .interactionRequired)
        #expect(module.control.pins() == 0)
        // Also where the next thing would be a key.
        let key = try FaultyModule.authority.get().issue("key").key.publicKey
        #expect(await code { _ = try await provider.key(for: key, swapper(0)) } != nil)
        #expect(module.control.tries_left(0) == 3 && module.control.tries_left(1) == 3)
    }

    /// The token of the identity gets the PIN, and no other that the URI matches.
    @Test func deletingSendsThePINToOneToken() async throws {
        let storage = InMemoryStorage()
        let provider = try module.provider(storage: storage, ["delete-objects": "true"])
        _ = try await provider.getCertificate(NoUserInteraction())
        try module.addBeta(pin: "5678")
        for provider in [provider, try module.provider(storage: storage, ["delete-objects": "true"])] {
            let announced = try await provider.announcedDeletions()
            #expect(announced.count == 2 && announced[0].contains("alpha") && announced[1].contains("CN=client"))
            module.fail("C_DestroyObject", CKR_ACTION_PROHIBITED, times: .max)
            #expect(await code { try provider.deleteStoredCertificate() } == .deleteFailed)
        }
        module.control.insert(0, -1)
        #expect(await code { _ = try await provider.announcedDeletions() } == .tokenNotPresent)
        #expect(await code { try provider.deleteStoredCertificate() } == .tokenNotPresent)
        #expect(module.control.tries_left(1) == 3)
    }

    /// A URI may be wrong, and a right one may name an object that has not been made yet.
    @Test func aListingNamesTheTokensThatAreNotMeant() async throws {
        module.control.set_token(1, "beta", "0002", FaultyModule.pin)
        let provider = try module.provider(["uri": "pkcs11:token=gamma"])
        for (slot, parts) in [(-1, ["token=alpha"]), (1, ["token=alpha", "token=beta"])] as [(Int32, [String])] {
            module.control.insert(1, slot)
            let list = await provider.listIdentities()
            #expect(list.failures.map(\.code) == [.tokenNotPresent] && list.remarks.isEmpty, "\(list)")
            for part in ["'pkcs11:token=gamma'"] + parts {
                #expect(list.failures.first?.message.contains(part) == true, "\(list.failures)")
            }
            #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .tokenNotPresent)
        }
        for slot in 0...1 as ClosedRange<UInt32> { module.control.insert(slot, -1) }
        let list = await provider.listIdentities()
        #expect(list.failures.map(\.message) == ["No token matches 'pkcs11:token=gamma'; insert it."], "\(list)")
        // If any token will do, there is nothing to list.
        let any = await (try module.provider()).listIdentities()
        #expect(any.failures.isEmpty && any.remarks == ["No token matches 'pkcs11:'. No other token is present."])
    }

    @Test func aTokenThatIsNotInitialisedIsNotToBeInserted() async throws {
        module.control.set_flags(0, 0, CK_FLAGS(CKF_TOKEN_INITIALIZED))
        let provider = try module.provider(["uri": "pkcs11:token=alpha"])
        let failures = await provider.listIdentities().failures.map(\.message)
        #expect(
            failures.count == 1 && failures[0].contains("an uninitialised one in the reader 'reader'"), "\(failures)")
        let error = try #require(await failure { try await provider.getCertificate(NoUserInteraction()) })
        #expect(error.code == .tokenNotPresent)
        #expect(
            error.message.hasSuffix(
                "; insert it, or initialise it with its own tool, or correct 'uri'. Present: an uninitialised one in the reader 'reader'."
            ), "\(error)")
    }

    /// Only where it would help is one told to configure a PIN.
    @Test("A listing advises a PIN only if it would show more")
    func whatAListingWantsHelps() async throws {
        func remark(_ pin: String?, _ settings: [String: String] = [:], flags: CK_FLAGS = 0) async throws -> String {
            let module = try FaultyModule.withIdentity()
            module.control.set_flags(0, flags, 0)
            let list = await (try module.provider(pin: pin, ["uri": "pkcs11:token=alpha"].merging(settings) { $1 }))
                .listIdentities()
            #expect(list.remarks.count == 1, "\(list)")
            return list.remarks.first ?? ""
        }
        #expect(try await remark(nil).contains("Set 'pin-source'"))
        #expect(try await !remark("wrong").contains("'pin-source'"))
        #expect(try await remark(nil, flags: CK_FLAGS(CKF_PROTECTED_AUTHENTICATION_PATH)).contains("pad"))
        #expect(try await remark(nil, ["login": "never"]).contains("Set 'login'"))
    }

    /// Some modules end their texts with NULs. A URI that was remembered before may have them.
    @Test(arguments: [
        "model=faulty;token=alpha", "model=faulty" + String(repeating: "%00", count: 10) + ";token=alpha",
        "serial=0001;manufacturer=certprov", "library-description=faulty;library-manufacturer=certprov;token=alpha",
        "slot-description=reader;slot-manufacturer=certprov;token=alpha%00",
    ])
    func paddingDoesNotMatter(path: String) async throws {
        for padsWithNULs in [true, false] {
            let module = try FaultyModule.withIdentity()
            if padsWithNULs { module.control.pad_with_nuls() }
            let list = await (try module.provider(["uri": "pkcs11:" + path])).listIdentities()
            #expect(list.identities.count == 1, "\(list)")
            #expect(list.identities.first?.keyURI?.contains("model=faulty;") == true, "\(list.identities)")
        }
    }

    /// Why a listing says that none would be taken.
    private func choice(_ provider: PKCS11TokenProvider) async -> ProviderError.Code? {
        if case .failure(let error) = await provider.listIdentities().choice { error.code } else { nil }
    }
}
