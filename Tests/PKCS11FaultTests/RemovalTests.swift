import CP11Kit
import CertificateProviding
import FaultyModuleControl
import PKCS11TokenProvider
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(20))) struct RemovalTests {
    private let module: FaultyModule

    init() throws { module = try .withIdentity() }

    @Test func theTokenIsPulledOutAndPutBack() async throws {
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        for _ in 0..<3 {
            module.control.insert(0, -1)
            #expect(await code { _ = try await identity.key.signsValidly() } == .tokenNotPresent)
            module.control.insert(0, 0)
            #expect(try await identity.key.signsValidly())
        }
        #expect(module.control.tries_left(0) == 3)
    }

    @Test func theSlotsAreNumberedAnewAndTheReaderIsAnotherOne() async throws {
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        module.control.number_slots(77)
        #expect(try await identity.key.signsValidly())
        module.control.insert(0, -1)
        module.control.insert(1, 0)
        #expect(try await identity.key.signsValidly())
    }

    /// The slots shift before the first login on a connection that was made before.
    @Test func theSlotsAreNumberedAnewBeforeTheLogin() async throws {
        let provider = try module.provider(pin: nil)
        _ = await provider.listIdentities()
        module.control.number_slots(77)
        _ = await code { _ = try await provider.getCertificate(Person(FaultyModule.pin)) }
        #expect(try await provider.getCertificate(Person(FaultyModule.pin)).key.signsValidly())
    }

    @Test func anotherTokenWithTheSameLabelSignsNothing() async throws {
        module.control.set_token(1, "alpha", "0002", FaultyModule.pin)
        try module.add(FaultyModule.authority.get().issue("impostor"), to: 1)
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        let pins = module.control.pins()
        let signatures = module.calls("C_Sign")
        module.control.insert(0, 1)
        for _ in 0..<3 { #expect(await code { _ = try await identity.key.signsValidly() } == .tokenNotPresent) }
        // The one attempt may have gone to the handle as it was.
        #expect(module.calls("C_Sign") <= signatures + 1)
        #expect(module.control.pins() == pins)
        module.control.insert(0, 0)
        #expect(try await identity.key.signsValidly())
    }

    /// The same token with another key under the same id and the same handle.
    @Test func anotherKeyInItsPlaceIsNoticed() async throws {
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        module.control.insert(0, -1)
        module.control.clear(0)
        try module.add(FaultyModule.authority.get().issue("another"), to: 0)
        module.control.insert(0, 0)
        for _ in 0..<2 { #expect(await code { _ = try await identity.key.signsValidly() } == .keyMismatch) }
    }

    @Test func theKeyIsGone() async throws {
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        module.control.insert(0, -1)
        module.control.clear(0)
        module.control.insert(0, 0)
        #expect(await code { _ = try await identity.key.signsValidly() } == .notFound)
    }

    @Test func tokensThatNothingTellsApartAreRefused() async throws {
        module.control.set_token(0, "", "", FaultyModule.pin)
        module.control.set_token(1, "", "", FaultyModule.pin)
        try module.add(FaultyModule.authority.get().issue("other"), to: 1)
        let provider = try module.provider()
        #expect(try await provider.getCertificate(NoUserInteraction()).key.signsValidly())
        module.control.insert(1, 1)
        let another = try module.provider()
        #expect(await code { _ = try await another.getCertificate(NoUserInteraction()) } == .configurationInvalid)
    }

    @Test(
        "A signature survives one failure of the token",
        arguments: [
            CKR_DEVICE_REMOVED, CKR_TOKEN_NOT_PRESENT, CKR_SESSION_HANDLE_INVALID, CKR_SESSION_CLOSED,
            CKR_KEY_HANDLE_INVALID, CKR_USER_NOT_LOGGED_IN, CKR_DEVICE_ERROR, CKR_OPERATION_ACTIVE,
        ])
    func oneFailureIsMended(result: CK_RV) async throws {
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        for function in ["C_SignInit", "C_Sign"] {
            module.fail(function, result)
            #expect(try await identity.key.signsValidly())
        }
        #expect(module.control.open_sessions() <= 4)
    }

    @Test(arguments: [
        (CKR_DEVICE_REMOVED, ProviderError.Code.tokenNotPresent), (CKR_TOKEN_NOT_PRESENT, .tokenNotPresent),
        (CKR_TOKEN_NOT_RECOGNIZED, .tokenNotPresent), (CKR_SESSION_HANDLE_INVALID, .tokenNotPresent),
        (CKR_SESSION_CLOSED, .tokenNotPresent), (CKR_KEY_HANDLE_INVALID, .tokenNotPresent),
        (CKR_DEVICE_ERROR, .unavailable), (CKR_GENERAL_ERROR, .unavailable), (CKR_HOST_MEMORY, .unavailable),
        (CKR_FUNCTION_FAILED, .unavailable), (CKR_MECHANISM_INVALID, .unsupportedAlgorithm),
        (CKR_FUNCTION_CANCELED, .userCancelled),
    ])
    func aLastingFailureEnds(result: CK_RV, expected: ProviderError.Code) async throws {
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        let before = module.calls("C_Sign")
        module.fail("C_Sign", result, times: .max)
        #expect(await code { _ = try await identity.key.signsValidly() } == expected)
        // Of some it is tried once more, after a new start of the module.
        #expect(module.calls("C_Sign") - before <= 3)
        module.fail("C_Sign", result, times: 0)
        #expect(try await identity.key.signsValidly())
    }

    /// The answer to a signature is late: the token was away in between, and its session's number is that of another.
    @Test func aLateAnswerEndsNoOtherSession() async throws {
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        module.control.hold_answer("C_Sign")
        async let late = identity.key.signsValidly()
        try await module.waitUntilHeld(1)
        module.control.insert(0, -1)
        module.control.insert(0, 0)
        async let next = identity.key.signsValidly()
        try await module.waitUntilHeld(2)
        let openings = module.calls("C_OpenSession")
        module.control.release()
        #expect(try await late)
        #expect(try await next)
        #expect(try await identity.key.signsValidly())
        #expect(module.calls("C_OpenSession") == openings && module.control.pins() == 2)
        #expect(module.control.open_sessions() == 2 && module.control.shared_uses() == 0)
    }

    /// Another part logs out in the middle of a search: an empty result means nothing.
    @Test func aKeyThatIsHiddenIsNotGone() async throws {
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        module.control.insert(0, -1)
        module.control.insert(0, 0)
        module.control.hold("C_FindObjectsInit")
        async let signature = code { _ = try await identity.key.signsValidly() }
        try await module.waitUntilHeld(1)
        module.control.log_out(0)
        module.control.release()
        // Lost twice.
        #expect(await signature == .tokenNotPresent)
        #expect(try await identity.key.signsValidly())
    }

    /// It is reset in the middle of a listing: the second look sees what a login shows, as the first one would have.
    @Test(arguments: ["C_GetAttributeValue", "C_FindObjects"], [CKR_DEVICE_REMOVED, CKR_SESSION_HANDLE_INVALID])
    func aListingLogsInAgain(function: String, result: CK_RV) async throws {
        for uri in ["pkcs11:", "pkcs11:token=alpha"] {
            let provider = try module.provider(["uri": uri])
            let expected = await provider.listIdentities()
            for skip in 0..<8 as Range<UInt32> {
                module.fail(function, result, after: skip)
                let list = await provider.listIdentities()
                #expect(list.remarks.isEmpty && list.failures.isEmpty, "\(skip): \(list)")
                #expect(list.identities.map(\.keyURI) == expected.identities.map(\.keyURI))
                module.fail(function, result, times: 0)
            }
            try provider.deleteStoredCertificate()
        }
        #expect(module.control.tries_left(0) == 3)
    }

    /// A person is not asked for it by a listing, at the reader's pad.
    @Test func aListingDoesNotAskAtThePad() async throws {
        module.control.set_flags(0, CK_FLAGS(CKF_PROTECTED_AUTHENTICATION_PATH), 0)
        let provider = try module.provider()
        _ = try await provider.getCertificate(NoUserInteraction())
        module.fail("C_FindObjects", CKR_DEVICE_REMOVED)
        let logins = module.calls("C_Login")
        #expect(await provider.listIdentities().identities.count == 1)
        #expect(module.calls("C_Login") == logins)
    }

    /// It is reset in the middle of a look-up, and again in the middle of the next attempts.
    @Test func aTokenThatIsResetTwiceIsNotEmpty() async throws {
        var outcomes: Set<ProviderError.Code?> = []
        for times in [1, 5] as [UInt32] {
            for skip in 0..<40 as Range<UInt32> {
                let module = try FaultyModule.withIdentity()
                let provider = try module.provider(["uri": "pkcs11:token=alpha"])
                module.fail("C_FindObjectsInit", CKR_DEVICE_REMOVED)
                module.fail("C_GetAttributeValue", CKR_DEVICE_REMOVED, after: skip, times: times)
                outcomes.insert(await code { _ = try await provider.getCertificate(NoUserInteraction()) })
            }
        }
        #expect(outcomes == [nil, .tokenNotPresent])
    }

    /// Forty tasks sign while the token comes and goes.
    @Test(arguments: 0..<5) func pulledOutUnderLoad(_: Int) async throws {
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        try await module.pullOut(whileSigningWith: [identity.key])
        #expect(try await identity.key.signsValidly())
        #expect(module.control.tries_left(0) == 3)
        #expect(module.control.shared_uses() == 0)
    }
}
