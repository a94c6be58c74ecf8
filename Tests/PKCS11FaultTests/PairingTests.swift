import CP11Kit
import CertificateProviding
import FaultyModuleControl
import Foundation
import Synchronization
import TestSupport
import Testing

@testable import PKCS11TokenProvider

/// Which certificate on a token belongs to which key, and which of several is used.
@Suite(.timeLimit(.minutes(20))) struct PairingTests {
    // MARK: Different ids

    /// An RSA key shows its modulus. A URI finds both by either id.
    @Test(arguments: ["pkcs11:", "pkcs11:token=alpha;id=%01", "pkcs11:token=alpha;id=%02"])
    func aKeyIsFoundByItsModulus(uri: String) async throws {
        let identity = try FaultyModule.rsaIdentity.get()
        let module = try FaultyModule.withToken {
            try $0.addKey(of: identity, to: 0, id: 1)
            try $0.add(identity.certificate, to: 0, id: 2)
        }
        let provider = try module.provider(["uri": uri])
        let found = try await provider.getCertificate(NoUserInteraction())
        #expect(try await found.key.signsValidly() && found.certificate == identity.certificate)
        #expect(found.key.uri?.contains("id=%01") == true)
        let list = await provider.listIdentities()
        #expect(list.identities.count == 1 && list.failures.isEmpty && list.remarks.isEmpty, "\(list)")
    }

    /// The public key object of a key on a curve lies beside it.
    @Test func aKeyIsFoundByItsPoint() async throws {
        let identity = try FaultyModule.authority.get().issue("client")
        let module = try FaultyModule.withToken {
            try $0.addKey(of: identity, to: 0, id: 1)
            let point = identity.key.publicKey.keyBits
            $0.control.add_public_key(0, 1, point, UInt(point.count))
            try $0.add(identity.certificate, to: 0, id: 2)
        }
        let found = try await module.provider().getCertificate(NoUserInteraction())
        #expect(try await found.key.signsValidly() && found.certificate == identity.certificate)
    }

    /// Some devices keep an attestation of each key under an id of its own.
    @Test func aKeyWithACertificateUnderItsIDTakesNoOther() async throws {
        let identity = try FaultyModule.rsaIdentity.get()
        let attestation = try TestAuthority("Attestation").renew(identity, as: "attestation", notBefore: .now)
        let module = try FaultyModule.withToken {
            try $0.addKey(of: identity, to: 0, id: 1)
            try $0.add(attestation, to: 0, id: 2)
            try $0.add(identity.certificate, to: 0, id: 1)
        }
        let provider = try module.provider()
        #expect(try await provider.getCertificate(NoUserInteraction()).certificate == identity.certificate)
        let list = await provider.listIdentities()
        #expect(list.identities.count == 1 && list.remarks.isEmpty, "\(list)")
    }

    // MARK: Several certificates of one key

    /// The attestation is newer, and says nothing of its usage.
    @Test func anAttestationUnderTheSameIDIsNotTaken() async throws {
        let identity = try FaultyModule.authority.get().issue("client")
        let attestation = try TestAuthority("Attestation").renew(
            identity, as: "attestation", notBefore: .now - 60, namesUsage: false)
        let module = try FaultyModule.withToken {
            try $0.addKey(of: identity, to: 0)
            for certificate in [identity.certificate, attestation] { try $0.add(certificate, to: 0, id: 1) }
        }
        let provider = try module.provider()
        #expect(try await provider.getCertificate(NoUserInteraction()).certificate == identity.certificate)
        #expect(try provider.getStoredCertificate()?.certificate == identity.certificate)
        let list = await provider.listIdentities()
        let remark = list.remarks.first { $0.contains("more than one certificate") }
        #expect(remark?.contains("Not used: CN=attestation") == true, "\(list.remarks)")
    }

    /// Both are for clients. The issuer of one is on the token.
    @Test func theOneWithAChainIsTaken() async throws {
        let identity = try FaultyModule.authority.get().issue("client")
        let other = try TestAuthority("Other").renew(identity, as: "other", notBefore: .now - 60)
        let module = try FaultyModule.withToken {
            try $0.addKey(of: identity, to: 0)
            for certificate in [other] + identity.certificateChain { try $0.add(certificate, to: 0, id: 1) }
        }
        let provider = try module.provider()
        #expect(try await provider.getCertificate(NoUserInteraction()).certificateChain == identity.certificateChain)
    }

    @Test func whereNothingTellsThemApartBothAreNamed() async throws {
        let identity = try FaultyModule.authority.get().issue("client")
        let other = try TestAuthority("Other").renew(identity, as: "other", notBefore: .now - 60)
        let module = try FaultyModule.withToken {
            try $0.addKey(of: identity, to: 0)
            for certificate in [identity.certificate, other] { try $0.add(certificate, to: 0, id: 1) }
        }
        let provider = try module.provider()
        let error = try #require(await failure { try await provider.getCertificate(NoUserInteraction()) })
        #expect(error.code == .configurationInvalid)
        for part in ["CN=client", "CN=other", "labels"] { #expect(error.message.contains(part)) }
    }

    /// The inputs of the field, where they are.
    @Test(.enabled(if: FileManager.default.fileExists(atPath: field + "/attestation.pem")))
    func theAttestationOfTheFieldIsNotTaken() async throws {
        func read(_ name: String) throws -> String {
            try String(contentsOfFile: Self.field + "/" + name, encoding: .utf8)
        }
        let chain = try X509Certificate.certificates(pem: read("chain.pem"))
        let attestation = try X509Certificate.certificates(pem: read("attestation.pem"))
        let base64 = try read("key.pem").split(separator: "\n").filter { !$0.hasPrefix("-") }.joined()
        let key = try SoftwareKey(
            pkcs8: SecretBytes(copying: Array(#require(Data(base64Encoded: base64)))), location: .file)
        let module = try FaultyModule.withToken {
            try $0.addKey(
                of: Identity(certificateChain: chain, key: key, provenance: .init(provider: ProviderID("test"))), to: 0)
            for certificate in attestation + [chain[0]] { try $0.add(certificate, to: 0, id: 1) }
        }
        #expect(try await module.provider().getCertificate(NoUserInteraction()).certificate == chain[0])
    }

    private static let field = URL(filePath: #filePath).deletingLastPathComponent().appending(
        path: "../../../shared/testdata/field"
    ).standardized.path

    // MARK: What is written later

    /// As a service sees it, which asks for the identity when the provider announces something.
    @Test func aNewCertificateIsAnnounced() async throws {
        let identity = try FaultyModule.authority.get().issue("client")
        let module = try FaultyModule.withToken { try $0.add(identity, to: 0) }
        let provider = try module.provider()
        #expect(provider.updates != nil)
        _ = try await provider.getCertificate(NoUserInteraction())
        var announcements = provider.announcements(every: .milliseconds(5)).makeAsyncIterator()
        let renewed = try FaultyModule.authority.get().renew(identity, as: "client", notBefore: .now - 60)
        try module.add(renewed, to: 0, id: 1)
        #expect(await announcements.next() != nil)
        #expect(try provider.getStoredCertificate()?.certificate == renewed)
        #expect(module.control.pins() == 1)
    }

    @Test func aNewKeyUnderTheSameIDIsAnnounced() async throws {
        let module = try FaultyModule.withIdentity()
        let provider = try module.provider()
        _ = try await provider.getCertificate(NoUserInteraction())
        var announcements = provider.announcements(every: .milliseconds(5)).makeAsyncIterator()
        module.control.clear(0)
        let new = try FaultyModule.authority.get().issue("client")
        try module.add(new, to: 0)
        #expect(await announcements.next() != nil)
        let stored = try #require(try provider.getStoredCertificate())
        #expect(try await stored.key.signsValidly() && stored.certificate == new.certificate)
    }

    /// A look does not see whether the key is the certificate's.
    @Test func aCertificateThatCannotBeUsedIsAnnouncedOnce() async throws {
        let (authority, module) = (try FaultyModule.authority.get(), try FaultyModule.withIdentity())
        let provider = try module.provider()
        _ = try await provider.getCertificate(NoUserInteraction())
        let count = Mutex(0)
        let announcements = provider.announcements(every: .milliseconds(5))
        let counting = Task { for await _ in announcements { count.withLock { $0 += 1 } } }
        func replace(by certificate: X509Certificate, of key: Identity) throws {
            module.control.clear(0)
            try module.addKey(of: key, to: 0)
            try module.add(certificate, to: 0, id: 1)
        }
        let usable = try authority.issue("usable")
        try replace(by: authority.issue("unusable").certificate, of: usable)
        while count.withLock(\.self) == 0 { try await Task.sleep(for: .milliseconds(1)) }
        #expect(await code { _ = try provider.getStoredCertificate() } == .keyMismatch)
        let looks = module.calls("C_FindObjectsInit")
        while module.calls("C_FindObjectsInit") < looks + 20 { try await Task.sleep(for: .milliseconds(1)) }
        #expect(count.withLock(\.self) == 1)
        try replace(by: usable.certificate, of: usable)
        while count.withLock(\.self) == 1 { try await Task.sleep(for: .milliseconds(1)) }
        #expect(try provider.getStoredCertificate()?.certificate == usable.certificate)
        await provider.shutdown()
        await counting.value
        #expect(count.withLock(\.self) == 2)
    }

    /// Neither a login nor a signature is made for a look, and the end of the provider ends the looks.
    @Test func nothingNewIsNoAnnouncement() async throws {
        let module = try FaultyModule.withIdentity()
        let provider = try module.provider()
        _ = try await provider.getCertificate(NoUserInteraction())
        let (signatures, looks) = (module.calls("C_Sign"), module.calls("C_FindObjectsInit"))
        let announcements = provider.announcements(every: .milliseconds(5))
        async let count = announcements.reduce(0) { count, _ in count + 1 }
        while module.calls("C_FindObjectsInit") < looks + 20 { try await Task.sleep(for: .milliseconds(1)) }
        #expect(module.calls("C_Sign") == signatures && module.control.pins() == 1)
        await provider.shutdown()
        #expect(await count == 0)
        #expect(await provider.announcements().reduce(0) { count, _ in count + 1 } == 0)
    }

    /// OpenSC reads a card once. A request for a newer certificate gets the one on the card at that time.
    @Test func aCardIsReadAnewForANewerCertificate() async throws {
        let identity = try FaultyModule.authority.get().issue("client")
        let module = try FaultyModule.withIdentity(identity, named: "opensc-pkcs11.so")
        let provider = try module.provider()
        let first = try await provider.getCertificate(NoUserInteraction())
        let starts = module.calls("C_Initialize")
        module.control.read_once()
        let renewed = try FaultyModule.authority.get().renew(identity, as: "client", notBefore: .now - 60)
        try module.add(renewed, to: 0, id: 1)
        #expect(try provider.getStoredCertificate()?.certificate == identity.certificate)
        #expect(module.calls("C_Initialize") == starts)
        let second = try await provider.getCertificate(NoUserInteraction())
        #expect(second.certificate == renewed && module.calls("C_Initialize") == starts + 1)
        #expect(try await first.key.signsValidly())
        #expect(try await second.key.signsValidly())
        #expect(module.control.tries_left(0) == 3)
    }
}
