import CP11Kit
import CertificateProviding
import FaultyModuleControl
import PKCS11TokenProvider
import TestSupport
import Testing

/// Private keys that need no login, such as that of slot 9e of a PIV card, beside others that do.
@Suite(.timeLimit(.minutes(20))) struct PublicKeyTests {
    private let module: FaultyModule

    init() throws { module = try .withIdentity() }

    private static let uri = "pkcs11:token=alpha;id=%01"

    @Test(arguments: [nil, FaultyModule.pin]) func aPublicKeySignsWithoutAPIN(pin: String?) async throws {
        module.control.publish_keys(0, 0)
        let provider = try module.provider(pin: pin, ["uri": Self.uri])
        let person = Person(FaultyModule.pin)
        let identity = try await provider.getCertificate(person)
        #expect(try await identity.key.signsValidly())
        #expect(try provider.getStoredCertificate()?.certificate == identity.certificate)
        let list = await provider.listIdentities()
        #expect(list.identities.count == 1 && list.failures.isEmpty, "\(list)")
        #expect(person.timesAsked == 0 && module.calls("C_Login") == 0 && module.control.pins() == 0)
    }

    /// A listing lets nothing sign, and says that this one would be taken.
    @Test func aListingSendsNoPIN() async throws {
        module.control.publish_keys(0, 0)
        let list = await (try module.provider(["uri": Self.uri])).listIdentities()
        #expect(list.identities.count == 1 && list.failures.isEmpty, "\(list)")
        #expect(try list.choice?.get().alias == "identity")
        #expect(module.calls("C_Login") == 0 && module.calls("C_Sign") == 0)
    }

    @Test func aPublicKeySignsAgainAfterTheTokenWasAway() async throws {
        module.control.publish_keys(0, 0)
        let identity = try await module.provider(pin: nil, ["uri": Self.uri]).getCertificate(NoUserInteraction())
        module.control.insert(0, -1)
        #expect(await code { _ = try await identity.key.signsValidly() } == .tokenNotPresent)
        module.control.insert(0, 0)
        #expect(try await identity.key.signsValidly())
        #expect(module.calls("C_Login") == 0)
    }

    /// The URI means the whole token, where a login may show more identities.
    @Test func aURIOfTheTokenLogsIn() async throws {
        module.control.publish_keys(0, 0)
        let person = Person(FaultyModule.pin)
        let provider = try module.provider(pin: nil, ["uri": "pkcs11:token=alpha"])
        #expect(try await provider.getCertificate(person).key.signsValidly())
        #expect(person.timesAsked == 1)
    }

    /// Some modules show private keys before login, and some of those say that they are public.
    @Test(arguments: [true, false]) func aVisibleKeyThatWantsALoginGetsIt(isPublic: Bool) async throws {
        if isPublic { module.control.publish_keys(0, 1) } else { module.control.set_visibility(0, 1, 1) }
        let person = Person(FaultyModule.pin)
        let provider = try module.provider(pin: nil, ["uri": Self.uri])
        #expect(try provider.getStoredCertificate() == nil)
        let identity = try await provider.getCertificate(person)
        #expect(try await identity.key.signsValidly())
        #expect(person.timesAsked == 1)
        let unattended = try module.provider(["uri": Self.uri])
        #expect(try await unattended.getCertificate(NoUserInteraction()).key.signsValidly())
    }

    @Test func aKeyThatAsksEachTimeWantsALogin() async throws {
        let module = try FaultyModule.withIdentity(asksEachTime: true)
        module.control.publish_keys(0, 0)
        let person = Person(FaultyModule.pin)
        let identity = try await module.provider(pin: nil, ["uri": Self.uri]).getCertificate(person)
        #expect(person.timesAsked == 1)
        #expect(try await identity.key.signsValidly())
    }

    /// Without the permission to log in, an identity whose key is hidden, or signs only after a login, is none.
    @Test(arguments: [nil, false, true]) func loginNeverRefusesAKeyThatNeedsALogin(isPublic: Bool?) async throws {
        switch isPublic {
        case true: module.control.publish_keys(0, 1)
        case false:
            module.control.set_visibility(0, 1, 1)
            module.control.publish_keys(0, 1)
        default: break
        }
        let storage = InMemoryStorage()
        let usual = try module.provider(storage: storage, ["uri": Self.uri])
        _ = try await usual.getCertificate(NoUserInteraction())
        try usual.deleteStoredCertificate()
        let logins = module.calls("C_Login")
        let provider = try module.provider(storage: storage, ["uri": Self.uri, "login": "never"])
        for attempt in [
            { _ = try provider.getStoredCertificate() }, { _ = try await provider.getCertificate(NoUserInteraction()) },
        ] as [() async throws -> Void] {
            let error = try #require(await failure(attempt))
            #expect(error.code == .interactionRequired && error.message.contains("'login' is 'never'"), "\(error)")
        }
        #expect(module.calls("C_Login") == logins)
    }
}
