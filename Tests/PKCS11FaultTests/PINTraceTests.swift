import CP11Kit
import CertificateProviding
import FaultyModuleControl
import PKCS11TokenProvider
import TestSupport
import Testing

/// The path of PINs, and their traces.
@Suite(.timeLimit(.minutes(20))) struct PINTraceTests {
    /// The connection was made before the tokens were swapped, and has no idle session: it would open one where the
    /// other token is now.
    @Test func aPINIsForTheTokenWhereItIsNow() async throws {
        let module = try FaultyModule.withIdentity()
        module.control.set_token(1, "beta", "0002", "5678")
        let provider = try module.provider(pin: nil, ["uri": "pkcs11:token=alpha"])
        module.fail("C_FindObjectsInit", CKR_DATA_INVALID)
        #expect(await provider.listIdentities().failures.count == 1)
        await module.waitUntilOpen(1)
        module.control.insert(0, 1)
        module.control.insert(1, 0)
        #expect(try await provider.getCertificate(Person(FaultyModule.pin)).key.signsValidly())
        #expect(module.control.tries_left(1) == 3 && module.control.pins() == 1)
    }

    /// Written in percent signs, it is nowhere as it is but where p11-kit has decoded it.
    @Test func aPINInTheURIIsNotLeftInMemory() throws {
        let inverted: [UInt8] = (0..<120).map { _ in ~UInt8.random(in: 33...126) }
        let digits = Array("0123456789abcdef")
        let written = inverted.map { "%\(digits[Int(~$0 >> 4)])\(digits[Int(~$0 & 15)])" }.joined()
        for _ in 0..<50 {
            _ = try PKCS11TokenProvider(
                environment: .testing(),
                parameters: ProviderParameters(["uri": .init("pkcs11:token=alpha?pin-value=\(written)")]))
        }
        // Freed memory may begin with other bytes.
        #expect(try ProcessMemory.places(of: Array(inverted.suffix(80))) == 0)
        let copy = inverted.map { ~$0 }
        #expect(try ProcessMemory.places(of: Array(inverted.suffix(80))) > 0)
        withExtendedLifetime(copy) {}
    }

    /// A configured PIN that was accepted before is sent although the record cannot be written; one of a person was not
    /// configured, whatever its outcome.
    ///
    /// - Parameter isProven: Whether the token has looked at it then, and not only later.
    @Test(arguments: [true, false]) func aPersonsPINIsNotRemembered(isProven: Bool) async throws {
        let module = try FaultyModule.withIdentity()
        let storage = InMemoryStorage()
        let other = try module.provider()
        if !isProven { _ = try await other.getCertificate(NoUserInteraction()) }
        let attended = try module.provider(pin: nil, storage: storage)
        let identity = try await attended.getCertificate(Person(FaultyModule.pin))
        for _ in 0..<2 {
            module.control.insert(0, -1)
            module.control.insert(0, 0)
            #expect(try await identity.key.signsValidly())
        }
        storage.fail(with: ProviderError(.storeWriteFailed, "The disk is full."), whenReading: false)
        module.control.insert(0, 0)
        let pins = module.control.pins()
        let service = try module.provider(storage: storage)
        #expect(await service.listIdentities().failures.map(\.code) == [.storeWriteFailed])
        #expect(module.control.pins() == pins)
        storage.fail(with: nil)
        #expect(try await service.getCertificate(NoUserInteraction()).key.signsValidly())
        withExtendedLifetime(other) {}
    }
}
