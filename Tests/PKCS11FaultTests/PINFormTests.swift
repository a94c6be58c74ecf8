import CP11Kit
import CertificateProviding
import FaultyModuleControl
import PKCS11TokenProvider
import TestSupport
import Testing

/// A configured text may not be a PIN at all, and a token that is sent it counts it.
@Suite(.timeLimit(.minutes(20))) struct PINFormTests {
    private let module: FaultyModule

    init() throws { module = try .withIdentity() }

    @Test("A PIN outside the token's length limits is not sent", arguments: ["", "123", "123456789"])
    func whatCannotBeThePINIsNotSent(pin: String) async throws {
        module.control.set_pin_lengths(0, 4, 8)
        let provider = try module.provider(pin: pin)
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .pinIncorrect)
        #expect(await provider.listIdentities().failures.map(\.code) == [.pinIncorrect])
        #expect(module.control.pins() == 0)
        // A person sees what they type.
        let attended = try module.provider(pin: nil)
        #expect(await code { _ = try await attended.getCertificate(Person(pin)) } == .pinIncorrect)
        #expect(module.control.pins() == 1)
    }

    /// A file with another line in it, or from an editor that marks the encoding.
    @Test(
        "A PIN with a line break or a byte order mark is not sent",
        arguments: ["1234\n\n", "1234\r", "1234\0", "\u{feff}1234", "12\u{7f}34"])
    func whatNobodyCanTypeIsNotSent(pin: String) async throws {
        let file = try module.directory.write(pin.utf8, to: "pin")
        let provider = try module.provider(["pin-source": "file:" + file])
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .pinIncorrect)
        #expect(module.calls("C_Login") == 0)
    }

    /// Modules that do not know say many things.
    @Test(arguments: [(0, 0), (5, 0), (0, CK_ULONG.max), (5, CK_ULONG.max), (8, 5), (4, 4)] as [(CK_ULONG, CK_ULONG)])
    func lengthsThatDoNotExcludeIt(shortest: CK_ULONG, longest: CK_ULONG) async throws {
        module.control.set_pin_lengths(0, shortest, longest)
        #expect(try await module.provider().getCertificate(NoUserInteraction()).key.signsValidly())
    }

    @Test(arguments: ["\n", "\r\n", ""]) func aLineEndingInAFileIsNoPartOfThePIN(ending: String) async throws {
        let file = try module.directory.write((FaultyModule.pin + ending).utf8, to: "pin")
        let provider = try module.provider(["pin-source": "file:" + file])
        #expect(try await provider.getCertificate(NoUserInteraction()).key.signsValidly())
        #expect(module.control.tries_left(0) == 3)
    }

    /// Some modules say so after the token was away, when nothing is wrong.
    @Test func aRefusalAfterTheTokenWasAwayIsTheLast() async throws {
        let storage = InMemoryStorage()
        let identity = try await module.provider(storage: storage).getCertificate(NoUserInteraction())
        module.control.insert(0, -1)
        module.control.insert(0, 0)
        module.fail("C_Login", CKR_PIN_INCORRECT)
        let before = module.control.pins()
        for _ in 0..<4 { #expect(await code { _ = try await identity.key.signsValidly() } == .pinIncorrect) }
        #expect(module.control.pins() == before + 1)
        // Until a person says that it is right.
        let attended = try module.provider(pin: nil, storage: storage)
        #expect(try await attended.getCertificate(Person(FaultyModule.pin)).key.signsValidly())
        #expect(try await identity.key.signsValidly())
    }

    /// Two services use one key that asks each time, and the PIN is changed.
    @Test func aRefusalAtASignatureIsTheLastForAll() async throws {
        let module = try FaultyModule.withIdentity(asksEachTime: true)
        let storage = InMemoryStorage()
        let identities = try await [0, 1].asyncMap { _ in
            try await module.provider(storage: storage).getCertificate(NoUserInteraction())
        }
        module.control.set_token(0, "alpha", "0001", "5678")
        for identity in identities {
            for _ in 0..<2 { #expect(await code { _ = try await identity.key.signsValidly() } == .pinIncorrect) }
        }
        #expect(module.control.tries_left(0) == 2)
    }
}
