import CP11Kit
import CertificateProviding
import Dispatch
import Foundation
import IdentityStore
import Synchronization
import TestSupport
import Testing

@testable import PKCS11TokenProvider

/// The objects of a key pair that was never handed over, and objects that must not be taken for them.
extension FaultTests {
    private func token(_ storage: any IdentityStorage) throws -> Token {
        try Faults.token(tokens.module, storage)
    }

    @Test("A key pair that a killed process left is destroyed")
    func whatAKilledProcessLeftIsDestroyed() async throws {
        let folder = try TemporaryDirectory()
        let name = "isKilledWhenThePairIsMade"
        await #expect(throws: (any Error).self) {
            try await Subprocess.runTests(
                [name], of: name, with: ["CERTPROV_TEST_GENERATION=\(tokens.module) \(folder["state"])"])
        }
        #expect(try tokens.count(.faults) == 2)
        let token = try token(IdentityStore(path: folder["state"]).storage(for: PKCS11TokenProvider.id))
        let key = try token.generateKey()
        #expect(try tokens.count(.faults) == 2)
        try token.keys.discard(key)
        #expect(try tokens.count(.faults) == 0)
    }

    /// A token that is elsewhere goes on with what its client has asked for that was killed.
    @Test("A key pair that the token finishes late is destroyed")
    func whatComesAfterItWasLookedForIsDestroyed() throws {
        let id = [UInt8](repeating: 7, count: 16)
        let (storage, identity) = try killed(in: InMemoryStorage(), making: id)
        let token = try token(storage)
        for part in [[], [CKO_PRIVATE_KEY], [CKO_PUBLIC_KEY], [CKO_PRIVATE_KEY, CKO_PUBLIC_KEY]] {
            #expect(token.pending.orphans(on: identity).map(\.id) == [id])
            try makeLate(part, of: id, on: token)
            #expect(try tokens.count(.faults) == part.count)
            try token.keys.discard(token.generateKey())
            #expect(try tokens.count(.faults) == 0)
        }
        #expect(token.pending.orphans(on: identity).isEmpty)
    }

    @Test("A key pair that never appears is forgotten after a time")
    func whatDoesNotComeIsNotLookedForEver() throws {
        let (storage, identity) = try killed(in: InMemoryStorage(), making: [7, 7])
        let time = Mutex(Date())
        let token = try Faults.token(tokens.module, storage) { time.withLock { $0 } }
        for later in [0, 300, 299, -3600, 300] as [TimeInterval] {
            time.withLock { $0 += later }
            try token.keys.discard(token.generateKey())
            #expect(token.pending.orphans(on: identity).count == 1, "\(later)")
        }
        time.withLock { $0 += 301 }
        try token.keys.discard(token.generateKey())
        #expect(token.pending.orphans(on: identity).isEmpty)
    }

    /// A key pair that never appears delays no other.
    @Test func manyThatDoNotComeAreInNobodysWay() throws {
        var storage = InMemoryStorage()
        for number in 0..<20 as Range<UInt8> {
            storage = try killed(in: storage, making: [7, number]).storage
            let token = try token(storage)
            try token.keys.discard(token.generateKey())
        }
    }

    /// Makes the objects of a process that is killed when it has asked for a pair.
    private func killed(
        in storage: InMemoryStorage, making id: [UInt8]
    ) throws -> (storage: InMemoryStorage, token: Slot.Identity) {
        let token = try token(storage)
        let entry = try token.pending.begin(id, on: token.identity)
        return withExtendedLifetime(entry) { (storage.afterCrash(), token.identity) }
    }

    /// - Parameter part: The classes of the pair's objects that exist.
    private func makeLate(_ part: [CK_OBJECT_CLASS], of id: [UInt8], on token: Token) throws {
        let template = try #require(KeyPairTemplate.all(.p256, id: id, label: "late", for: .signing).first)
        try token.withConnection(loggedIn: true) { connection throws(CryptokiError) in
            try connection.withSession(writing: true) { session throws(CryptokiError) in
                let pair = try session.generate(
                    template.mechanism, publicKey: template.publicKey, privateKey: template.privateKey)
                if !part.contains(CKO_PRIVATE_KEY) { try session.destroy(pair.privateKey) }
                if !part.contains(CKO_PUBLIC_KEY) { try session.destroy(pair.publicKey) }
            }
        }
    }

    /// Another process, or another provider in this one, makes a key at the same time.
    @Test("A key pair that another process is making is not destroyed")
    func whatIsBeingMadeIsNotDestroyed() async throws {
        let folder = try TemporaryDirectory()
        let store = IdentityStore(path: folder["state"])
        let first = try token(store.storage(for: PKCS11TokenProvider.id))
        let second = try token(store.storage(for: PKCS11TokenProvider.id))
        let threads = BlockingExecutor.threads(maximum: 2)
        let pause = (reached: DispatchSemaphore(value: 0), end: DispatchSemaphore(value: 0))
        Faults.plan.withLock { $0.pause = pause }
        async let slow = threads.run { () throws(ProviderError) in try first.generateKey() }
        #expect(await threads.wait(for: pause.reached) == .success)
        let quick = Result { () throws(ProviderError) in try second.generateKey() }
        pause.end.signal()
        let keys = [try await slow, try quick.get()]
        #expect(try tokens.count(.faults) == 4)
        for key in keys { try first.keys.discard(key) }
        #expect(try tokens.count(.faults) == 0)
    }

    /// A store that is an older copy of itself lists a key that was handed over long ago.
    @Test func aPairWithACertificateIsKept() throws {
        let token = try token(InMemoryStorage())
        let key = try {
            let made = try token.keys.generate(.p256, label: "x")
            let leaf = try authority.certify(made.key.publicKey.derRepresentation, as: "leaf")
            _ = try token.keys.store([leaf], for: made.key)
            return made.key
        }()
        let next = try token.generateKey()
        #expect(try tokens.count(.faults) == 5)
        for key in [key, next] { try token.keys.discard(key) }
    }

    /// Killed after it was written down and before the provider could cross it out.
    @Test(arguments: [false, true]) func aKeyThatIsRememberedIsNoOrphan(isSynchronous: Bool) async throws {
        let storage = InMemoryStorage()
        let made = try token(storage).keys.generate(.p256, label: "x").key
        let reference = KeyReference(publicKey: made.publicKey, uri: made.uri ?? "")
        let provider = try tokens.provider(.faults, storage: storage)
        let store = try #require(provider.keyStore)
        let key = try #require(
            isSynchronous
                ? try store.storedKey(for: reference) : try await store.key(for: reference, NoUserInteraction()))
        let next = try await provider.generateKey(.p256, label: "next", NoUserInteraction())
        _ = try await key.signature(for: [1], using: .ecdsaP256SHA256)
        #expect(try tokens.count(.faults) == 4)
        for key in [key, next] { try await provider.discard(key, NoUserInteraction()) }
    }

    /// Killed at the same moment; its owner has no use for the key.
    @Test func aKeyThatIsRememberedCanBeDestroyed() async throws {
        let storage = InMemoryStorage()
        let key = try token(storage).keys.generate(.p256, label: "x").key
        let reference = KeyReference(publicKey: key.publicKey, uri: key.uri ?? "")
        #expect(try tokens.count(.faults) == 2)
        let store = try #require(try tokens.provider(.faults, storage: storage).keyStore)
        try await store.destroy(reference, NoUserInteraction())
        #expect(try tokens.count(.faults) == 0)
        try store.destroyStored(reference)
    }

    @Test func withoutARecordNoKeyIsMade() async throws {
        let storage = InMemoryStorage()
        let token = try token(storage)
        storage.fail(with: ProviderError(.storeWriteFailed, "The disk is full."), whenReading: false)
        await expect(code: .storeWriteFailed) { _ = try token.generateKey() }
        #expect(try tokens.count(.faults) == 0)
        // Nor is one handed over that would be destroyed later.
        storage.fail(with: nil)
        let made = try token.keys.generate(.p256, label: "x")
        storage.fail(with: ProviderError(.storeWriteFailed, "The disk is full."), whenReading: false)
        await expect(code: .storeWriteFailed) { try made.handOver() }
        try? made.takeBack()
        #expect(try tokens.count(.faults) == 0)
    }
}

/// The process that is killed.
@Suite struct KilledGeneration {
    private static let task = ProcessInfo.processInfo.environment["CERTPROV_TEST_GENERATION"]?.split(separator: " ")
        .map(String.init)

    @Test(.enabled(if: task != nil)) func isKilledWhenThePairIsMade() throws {
        let task = try #require(Self.task)
        let storage = IdentityStore(path: task[1]).storage(for: PKCS11TokenProvider.id)
        let token = try Faults.token(task[0], storage)
        Faults.plan.withLock { $0.isKilled = true }
        _ = try token.keys.generate(.p256, label: "x")
    }
}

extension FaultTests {
    /// Two hundred: SoftHSM writes each into a file of its own.
    @Test func manyCertificatesAreListed() async throws {
        let leaf = try authority.issue("leaf").certificate
        let token = try Faults.token(tokens.module, InMemoryStorage(), timeout: .seconds(600), "many")
        try token.keys.write { _, session throws(CryptokiError) in
            for number in 0...200 as ClosedRange<CK_ULONG> {
                let certificate = number == 0 ? authority.intermediate : leaf
                _ = try session.create([
                    Attribute(CKA_CLASS, CKO_CERTIFICATE), Attribute(CKA_CERTIFICATE_TYPE, CK_ULONG(CKC_X_509)),
                    Attribute(CKA_TOKEN, true), Attribute(CKA_PRIVATE, false), Attribute(CKA_ID, number),
                    Attribute(CKA_SUBJECT, certificate.subjectDER), Attribute(CKA_VALUE, certificate.derRepresentation),
                ])
            }
        }
        // Without a login any of them may have a key; with it none has.
        let closed = await (try tokens.provider(.many, ["login": "never"])).listIdentities()
        #expect(closed.identities.count == 200 && closed.failures.isEmpty, "\(closed.failures)")
        #expect(closed.identities.allSatisfy { $0.certificateChain == [leaf, authority.intermediate] })
        let open = await (try tokens.provider(.many)).listIdentities()
        #expect(open.identities.isEmpty && open.otherObjects.count == 201, "\(open.failures)")
        #expect(open.remarks.count == 20, "\(open.remarks)")
    }
}
