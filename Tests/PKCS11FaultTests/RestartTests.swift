import CP11Kit
import CertificateProviding
import FaultyModuleControl
import Glibc
import PKCS11TokenProvider
import TestSupport
import Testing

/// A module is started again where that may bring a token back.
@Suite(.timeLimit(.minutes(20))) struct RestartTests {
    private let module: FaultyModule

    init() throws { module = try .withIdentity() }

    @Test func atMostThreeTimesASecond() async throws {
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        let clock = ContinuousClock()
        let (start, starts) = (clock.now, module.calls("C_Initialize"))
        module.control.insert(0, -1)
        for _ in 0..<50 { #expect(await code { _ = try await identity.key.signsValidly() } == .tokenNotPresent) }
        let added = Int(module.calls("C_Initialize") - starts)
        #expect(added >= 1 && added <= 3 * (Int((clock.now - start).components.seconds) + 1))
        module.control.insert(0, 0)
        #expect(try await identity.key.signsValidly())
        #expect(module.control.tries_left(0) == 3)
    }

    /// As SoftHSM's is while another process writes to it.
    @Test(arguments: [1, 2, 3]) func aTokenThatIsHiddenForAMomentIsFound(looks: UInt32) async throws {
        let settings = ["uri": "pkcs11:token=alpha"]
        // One that can be taken out is away; it is looked for twice.
        module.control.fail("C_GetTokenInfo", 0, 2, CKR_TOKEN_NOT_PRESENT)
        let away = try module.provider(settings)
        #expect(await code { _ = try await away.getCertificate(NoUserInteraction()) } == .tokenNotPresent)
        module.control.fail("C_GetTokenInfo", 0, 0, CKR_OK)
        module.control.fix_readers(1)
        module.control.fail("C_GetTokenInfo", 0, looks, CKR_TOKEN_NOT_PRESENT)
        let identity = try await module.provider(settings).getCertificate(NoUserInteraction())
        // So is one that hides when it is to be logged in to.
        module.control.log_out(0)
        module.control.fail("C_GetTokenInfo", 0, 2, CKR_TOKEN_NOT_PRESENT)
        #expect(try await identity.key.signsValidly())
    }

    @Test func notForAnotherTokenThatIsInUse() async throws {
        module.control.set_token(1, "beta", "0002", FaultyModule.pin)
        module.control.insert(1, 1)
        let provider = try module.provider()
        let identity = try await provider.getCertificate(NoUserInteraction())
        let starts = module.calls("C_Initialize")
        module.control.insert(1, -1)
        for _ in 0..<3 { _ = await provider.listIdentities() }
        #expect(try await identity.key.signsValidly())
        #expect(module.calls("C_Initialize") == starts && module.control.pins() == 1)
    }

    /// The message names the other provider's token.
    @Test func notForAnotherProvidersToken() async throws {
        try module.addBeta()
        let first = try await module.provider(["uri": "pkcs11:token=alpha"]).getCertificate(NoUserInteraction())
        let second = try await module.provider(["uri": "pkcs11:token=beta"]).getCertificate(NoUserInteraction())
        let starts = module.calls("C_Initialize")
        module.control.insert(0, -1)
        for _ in 0..<2 {
            let error = await failure { try await first.key.signsValidly() }
            #expect(error?.code == .tokenNotPresent && error?.message.contains("login to 'beta'") == true)
        }
        let lookingAgain = try module.provider(["uri": "pkcs11:token=alpha"])
        #expect(await code { _ = try await lookingAgain.getCertificate(NoUserInteraction()) } == .tokenNotPresent)
        #expect(try await second.key.signsValidly())
        #expect(module.calls("C_Initialize") == starts && module.control.pins() == 2)
    }

    /// It has a login to the token that is away, and has not noticed.
    @Test func alsoWhereAnotherProviderUsedTheSameToken() async throws {
        let first = try await module.provider().getCertificate(NoUserInteraction())
        let second = try await module.provider().getCertificate(NoUserInteraction())
        let starts = module.calls("C_Initialize")
        module.control.insert(0, -1)
        #expect(await code { _ = try await first.key.signsValidly() } == .tokenNotPresent)
        #expect(module.calls("C_Initialize") == starts + 1 && module.calls("C_Finalize") == 1)
        module.control.insert(0, 0)
        #expect(try await first.key.signsValidly())
        #expect(try await second.key.signsValidly())
        #expect(module.control.tries_left(0) == 3)
    }

    /// A call that hangs in the module may be using what a start would take from it.
    @Test func notWhileACallIsInside() async throws {
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        let starts = module.calls("C_Initialize")
        module.control.hold("C_Sign")
        async let hanging = code { _ = try await identity.key.signsValidly() }
        try await module.waitUntilHeld(1)
        module.control.insert(0, -1)
        #expect(await code { _ = try await identity.key.signsValidly() } == .tokenNotPresent)
        #expect(module.calls("C_Initialize") == starts)
        module.control.release()
        #expect(await hanging == .tokenNotPresent)
    }

    /// It would come to its end in the time that others wait for it.
    @Test func notWhereALoginHasJustBeenMade() async throws {
        module.control.fix_readers(1)
        let provider = try module.provider()
        let another = try module.provider(["uri": "pkcs11:token=gone"])
        #expect(await code { _ = try await another.getCertificate(NoUserInteraction()) } == .tokenNotPresent)
        let starts = module.calls("C_Initialize")
        module.control.hold("C_Login")
        async let identity = provider.getCertificate(NoUserInteraction())
        try await module.waitUntilHeld(1)
        try await Task.sleep(for: .seconds(1))
        async let search = code { _ = try await another.getCertificate(NoUserInteraction()) }
        try await Task.sleep(for: .milliseconds(30))
        module.control.release()
        #expect(await search == .tokenNotPresent)
        #expect(try await identity.key.signsValidly())
        #expect(module.control.pins() == 1 && module.calls("C_Initialize") == starts)
    }

    /// A module that cannot start without its token starts with it.
    @Test func aStartThatFailsIsMadeUpFor() async throws {
        let provider = try module.provider()
        let identity = try await provider.getCertificate(NoUserInteraction())
        module.control.insert(0, -1)
        module.fail("C_Initialize", CKR_GENERAL_ERROR, times: 3)
        #expect(await code { _ = try await identity.key.signsValidly() } == .tokenNotPresent)
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .tokenNotPresent)
        module.fail("C_Initialize", CKR_GENERAL_ERROR, times: 0)
        module.control.insert(0, 0)
        #expect(try await identity.key.signsValidly())
    }

    /// The module runs then, but not for certprov: p11-kit crashes where a session opens before its own start.
    @Test func aModuleThatAnotherPartOfTheProcessStartsMeanwhileIsStartedToo() async throws {
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        module.control.insert(0, -1)
        module.fail("C_Initialize", CKR_GENERAL_ERROR, times: 3)
        #expect(await code { _ = try await identity.key.signsValidly() } == .tokenNotPresent)
        module.fail("C_Initialize", CKR_GENERAL_ERROR, times: 0)
        let functions = try #require(p11_kit_module_load(module.path, 0))
        defer { p11_kit_module_release(functions) }
        try #require(p11_kit_module_initialize(functions) == CKR_OK)
        defer { _ = p11_kit_module_finalize(functions) }
        module.control.insert(0, 0)
        #expect(try await identity.key.signsValidly())
    }

    /// Between its session and its login, while it reads the PIN, nothing has been sent. If another part of the process looks
    /// for a token then, it does without a new start; if the module has to be started again, the login is made all the same.
    @Test(arguments: [CKR_OK, CKR_CRYPTOKI_NOT_INITIALIZED])
    func aLoginIsMadeWhateverOthersDo(found: CK_RV) async throws {
        // A source has thirty seconds for its secret, which a very busy machine may use up before this writes it.
        while try await !makeLogin(whileOthersFind: found) {}
    }

    /// - Returns: Whether the PIN was written in time.
    private func makeLogin(whileOthersFind found: CK_RV) async throws -> Bool {
        module.control.fix_readers(1)
        let directory = try TemporaryDirectory()
        let pipe = directory["pin"]
        try #require(mkfifo(pipe, 0o600) == 0)
        let provider = try module.provider(pin: nil, ["pin-source": "file:\(pipe)"])
        async let identity = provider.getCertificate(NoUserInteraction())
        var writer: Int32 = -1
        while writer < 0 {
            writer = open(pipe, O_WRONLY | O_NONBLOCK | O_CLOEXEC)
            try await Task.sleep(for: .milliseconds(1))
        }
        let starts = module.calls("C_Initialize")
        module.fail("C_GetSlotList", found, times: found == CKR_OK ? 0 : 1)
        let another = try module.provider(["uri": "pkcs11:token=gone"])
        #expect(await code { _ = try await another.getCertificate(NoUserInteraction()) } == .tokenNotPresent)
        let startsThen = module.calls("C_Initialize")
        let isWritten = write(writer, FaultyModule.pin, 4) == 4
        close(writer)
        guard isWritten else {
            _ = try? await identity
            return false
        }
        #expect((startsThen == starts) == (found == CKR_OK))
        #expect(try await identity.key.signsValidly())
        #expect(module.control.pins() == 1 && module.control.tries_left(0) == 3)
        return true
    }
}
