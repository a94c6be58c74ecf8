import CP11Kit
import CertificateProviding
import FaultyModuleControl
import PKCS11TokenProvider
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(20))) struct HangTests {
    private let module: FaultyModule

    init() throws { module = try .withIdentity() }

    /// Each caller goes on at its deadline, and another module's tokens know nothing of it.
    @Test(arguments: ["C_Initialize", "C_GetSlotList", "C_OpenSession", "C_Login", "C_FindObjects"])
    func aHangCostsTheDeadline(function: String) async throws {
        defer { module.control.release() }
        module.control.hold(function)
        let provider = try module.provider(["timeout": "1"])
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .timedOut)
        #expect(await code { _ = try provider.getStoredCertificate() } == .timedOut)
        let other = try FaultyModule.withIdentity()
        #expect(try await other.provider().getCertificate(NoUserInteraction()).key.signsValidly())
    }

    enum Entry: CaseIterable {
        case list, storedCertificate, certificate, announceDeletions, delete, generateKey, findKey, keyAtHand,
            storeCertificate, removeReplaced, discard, removeRemains

        /// Of those in which it begins; who has a key need not look for its token.
        var functions: [String] {
            let hasToken = [Entry.storeCertificate, .removeReplaced, .discard].contains(self)
            return hasToken ? ["C_GetTokenInfo"] : ["C_GetSlotList", "C_GetTokenInfo"]
        }

        /// Returns the error that the caller gets.
        func call(_ provider: PKCS11TokenProvider, _ identity: Identity) async -> ProviderError.Code? {
            let (key, nobody) = (identity.key, NoUserInteraction())
            if self == .list { return await provider.listIdentities().failures.first?.code }
            return await code {
                switch self {
                case .list: break
                case .storedCertificate: _ = try provider.getStoredCertificate()
                case .certificate: _ = try await provider.getCertificate(nobody)
                case .announceDeletions: _ = try await provider.announcedDeletions()
                case .delete: try provider.deleteStoredCertificate()
                case .generateKey: _ = try await provider.generateKey(.p256, label: "x", nobody)
                case .findKey: _ = try await provider.key(for: key.publicKey, nobody)
                case .keyAtHand: _ = try provider.storedKey(for: key.publicKey)
                case .storeCertificate:
                    _ = try await provider.store(certificateChain: identity.certificateChain, for: key, nobody)
                case .removeReplaced: try await provider.removeReplacedCertificates(of: identity, nobody)
                case .discard: try await provider.discard(key, nobody)
                case .removeRemains: try await provider.removeRemains(of: key.publicKey, nobody)
                }
            }
        }
    }

    /// Whether the provider has used the token before, or is to look for it.
    @Test(arguments: Entry.allCases.flatMap { entry in entry.functions.map { (entry, $0) } })
    func everyEntryHasADeadline(entry: Entry, function: String) async throws {
        let settings = ["timeout": "2", "uri": "pkcs11:token=alpha", "delete-objects": "true"]
        let (used, fresh) = try (module.provider(settings), module.provider(settings))
        let identity = try await inTime { try await used.getCertificate(NoUserInteraction()) }
        module.control.hold(function)
        defer { module.control.release() }
        for provider in [used, fresh] {
            // Without the deadline it ends with the module's hang, which is after this.
            #expect(await entry.call(provider, identity) == .timedOut)
        }
    }

    @Test("After a hang that ends, signatures go on without a restart of the module")
    func whatHungGoesOnWithoutARestart() async throws {
        let provider = try module.provider(["timeout": "3"])
        let hasty = try await inTime { try await provider.getCertificate(NoUserInteraction()) }
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        module.control.hold("C_Sign")
        await withTaskGroup(of: ProviderError.Code?.self) { tasks in
            for _ in 0..<40 { tasks.addTask { await code { _ = try await hasty.key.signsValidly() } } }
            for await code in tasks { #expect(code == .timedOut) }
        }
        module.control.release()
        #expect(try await identity.key.signsValidly())
        // The sixteen calls that hung are not waited for: as many others can be held only when they are through. The process
        // must not end under them, and clean up OpenSSL, which the module signs with.
        module.control.hold("C_Sign")
        try await withThrowingTaskGroup(of: Bool.self) { tasks in
            for _ in 0..<16 { tasks.addTask { try await identity.key.signsValidly() } }
            try await module.waitUntilHeld(16)
            module.control.release()
            for try await isValid in tasks { #expect(isValid) }
        }
        #expect(module.control.shared_uses() == 0)
    }

    /// One signature hangs, and the others wait for its session: when their time is over, they keep no thread.
    @Test("A caller that waits for a session gives up at its deadline and holds no thread")
    func whoWaitsForASessionGivesUp() async throws {
        defer { module.control.release() }
        module.control.set_sessions(0, 2, 2)
        let provider = try module.provider(["timeout": "5"])
        let identity = try await inTime { try await provider.getCertificate(NoUserInteraction()) }
        module.control.hold("C_Sign")
        await withTaskGroup(of: ProviderError.Code?.self) { tasks in
            for _ in 0..<20 { tasks.addTask { await code { _ = try await identity.key.signsValidly() } } }
            for await code in tasks { #expect(code == .timedOut) }
        }
        // It looks at the token before it waits for a session.
        let looks = module.calls("C_GetTokenInfo")
        let outcome = await code { try await provider.removeReplacedCertificates(of: identity, NoUserInteraction()) }
        #expect(outcome == .timedOut && module.calls("C_GetTokenInfo") > looks)
        module.control.release()
        #expect(try await inTime { try await identity.key.signsValidly() })
        #expect(module.control.most_sessions() == 2 && module.control.shared_uses() == 0)
    }

    /// The module's thread hangs in the login to one token. Another one signs with the sessions that it has.
    @Test func aLoginThatHangsStopsNoOtherToken() async throws {
        defer { module.control.release() }
        try module.addBeta()
        let other = try await module.provider(["uri": "pkcs11:token=beta"]).getCertificate(NoUserInteraction()).key
        let provider = try module.provider(["uri": "pkcs11:token=alpha", "timeout": "3"])
        module.control.hold("C_Login")
        async let late = code { _ = try await provider.getCertificate(NoUserInteraction()) }
        try await module.waitUntilHeld(1)
        for _ in 0..<3 { #expect(try await other.signsValidly()) }
        #expect(await late == .timedOut)
        #expect(try await other.signsValidly())
    }

    /// The PIN that a key asks for at each signature is given in that signature's session, and not on the module's thread:
    /// another token is found, connected to and signs.
    @Test func aConfirmationThatHangsStopsNoOtherToken() async throws {
        let module = try FaultyModule.withIdentity(asksEachTime: true)
        defer { module.control.release() }
        try module.addBeta()
        module.control.set_flags(1, 0, CK_FLAGS(CKF_LOGIN_REQUIRED))
        module.control.set_visibility(1, 1, 1)
        let key = try await module.provider(["uri": "pkcs11:token=alpha"]).getCertificate(NoUserInteraction()).key
        module.control.hold("C_Login")
        async let confirmed = key.signsValidly()
        try await module.waitUntilHeld(1)
        let other = try module.provider(["uri": "pkcs11:token=beta", "timeout": "60"])
        let beta = try await other.getCertificate(NoUserInteraction())
        #expect(try await beta.key.signsValidly())
        module.control.release()
        #expect(try await confirmed)
    }

    @Test func aModuleThatDidNotStartIsTriedAgain() async throws {
        let provider = try module.provider()
        module.fail("C_Initialize", CKR_DEVICE_ERROR)
        #expect(await provider.listIdentities().failures.map(\.code) == [.unavailable])
        #expect(try await provider.getCertificate(NoUserInteraction()).key.signsValidly())
    }

    /// A reader that fails hides no token in another one.
    @Test(arguments: ["C_GetSlotInfo", "C_GetTokenInfo"])
    func aBrokenReaderHidesNoOther(function: String) async throws {
        module.control.set_token(1, "beta", "0002", FaultyModule.pin)
        module.control.insert(0, 1)
        module.control.insert(1, 0)
        for result in [CKR_GENERAL_ERROR, CKR_DEVICE_ERROR, CKR_DEVICE_MEMORY] {
            let provider = try module.provider(["login": "never"])
            module.fail(function, result)
            let list = await provider.listIdentities()
            #expect(list.identities.count == 1)
            // The error of a token that is gone says only that.
            let expected = result == CKR_GENERAL_ERROR ? .tokenNotPresent : ProviderError.Code.unavailable
            #expect(list.failures.map(\.code) == [expected], "\(list)")
            #expect(list.failures.first?.nativeCode == Int(result))
            let meaning = try module.provider(["uri": "pkcs11:token=alpha"])
            module.fail(function, result)
            #expect(try await meaning.getCertificate(NoUserInteraction()).key.signsValidly())
            module.fail(function, result)
            #expect(await meaning.listIdentities().failures.isEmpty)
            module.fail(function, result, times: 0)
            // Their end looks at the token too.
            await meaning.shutdown()
            await provider.shutdown()
            await module.waitUntilFinalized()
        }
        // Nothing is in them.
        let provider = try module.provider(["login": "never"])
        for result in [CKR_TOKEN_NOT_PRESENT, CKR_TOKEN_NOT_RECOGNIZED, CKR_DEVICE_REMOVED, CKR_SLOT_ID_INVALID] {
            module.fail(function, result)
            let list = await provider.listIdentities()
            #expect(list.identities.count == 1 && list.failures.isEmpty, "\(list)")
        }
    }

    /// It is all there is, and that nothing is seen in it is said.
    @Test(arguments: ["C_GetSlotInfo", "C_GetTokenInfo"])
    func aBrokenReaderIsNotEmpty(function: String) async throws {
        let provider = try module.provider()
        module.fail(function, CKR_DEVICE_ERROR, times: .max)
        let list = await provider.listIdentities()
        #expect(list.identities.isEmpty && list.failures.map(\.code) == [.unavailable], "\(list)")
        let names = function == "C_GetTokenInfo" ? ["'reader'", function] : [function]
        for name in names { #expect(list.failures.first?.message.contains(name) == true, "\(list)") }
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .unavailable)
    }
}
