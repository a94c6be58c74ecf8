import CertificateProviding
import Enrolment
import Foundation
import Renewal
import TestSupport
import Testing
import X509

@testable import RemoteMDMProvider

/// A server goes over to a new root.
@Suite(.timeLimit(.minutes(20))) struct RolloverTests {
    private func operations(_ server: ESTResponder, after count: Int) -> [ESTOperation] {
        server.requests.dropFirst(count).compactMap(\.operation)
    }

    /// The old root has certified the new one's key.
    @Test func aRootThatTheOldOneVouchesForIsTaken() async throws {
        let server = try ESTResponder(.bearer)
        let storage = InMemoryStorage()
        let settings = ["username": "", "password-source": "", "bearer-source": "env:TOKEN"]
        let provider = try server.provider(storage: storage, settings)
        try server.verify(try await provider.getCertificate(NoUserInteraction()))
        try server.rollOver()
        let before = server.requests.count
        try server.verify(try await provider.getCertificate(NoUserInteraction()), by: "new-ca.pem")
        let requests = server.requests.dropFirst(before)
        let first = try #require(requests.first)
        #expect(first.operation == .cacerts)
        #expect(first.authorization == nil && first.clientCertificate == nil)
        #expect(requests.dropFirst().allSatisfy { $0.connection != first.connection })
        // From now on it is known.
        let count = server.requests.count
        try server.verify(try await provider.getCertificate(NoUserInteraction()), by: "new-ca.pem")
        #expect(operations(server, after: count).filter { $0 == .cacerts }.count == 1)
    }

    @Test("A running service takes a certificate by a new root and the new trust bundle in one update")
    func aServiceTakesTheNewRootAtOnce() async throws {
        let server = try ESTResponder(.basic)
        let provider = try server.provider(storage: InMemoryStorage())
        let first = try await provider.getCertificate(NoUserInteraction())
        let old = try CertificateFile.read(server.directory["ca.pem"])
        #expect(first.trust?.certificates.contains(old[0]) == true)
        #expect(try provider.getStoredCertificate()?.trust == first.trust)
        let service = RenewingIdentity(
            first, of: provider, executor: .threads(),
            environment: RenewalEnvironment(logger: ProviderEnvironment.testing().logger))
        var updates = service.updates.makeAsyncIterator()
        #expect(await updates.next()?.isSame(as: first) == true)
        try server.rollOver()
        try await service.renew()
        let next = try #require(await updates.next())
        try server.verify(next, by: "new-ca.pem")
        let new = try CertificateFile.read(server.directory["new-ca.pem"])
        #expect(next.trust?.certificates.contains(new[0]) == true && next.isSame(as: service.current))
        #expect(try provider.getStoredCertificate()?.trust == next.trust)
    }

    @Test("A new root that the old root has not certified is not trusted")
    func aRootThatNobodyVouchesForIsNot() async throws {
        let server = try ESTResponder(.basic, .init(linksRoots: false))
        let provider = try server.provider(storage: InMemoryStorage())
        let first = try await provider.getCertificate(NoUserInteraction())
        try server.rollOver()
        let before = server.requests.count
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .serverNotTrusted)
        #expect(operations(server, after: before) == [.cacerts])
        #expect(try provider.getStoredCertificate()?.certificate == first.certificate)
    }

    /// An unknown server is not even asked.
    @Test("Without an earlier enrolment, a new root is not trusted")
    func aServerThatWasNeverKnownHasNoSuccessor() async throws {
        let server = try ESTResponder(.basic)
        try server.rollOver()
        let provider = try server.provider()
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .serverNotTrusted)
        #expect(operations(server, after: 0).isEmpty)
    }

    @Test func aRootThatWasNamedBeforeIsKnown() async throws {
        let server = try ESTResponder(.basic, .init(linksRoots: false))
        let storage = InMemoryStorage()
        let provider = try server.provider(storage: storage, label: "fault-rollover")
        _ = try await provider.getCertificate(NoUserInteraction())
        try server.rollOver()
        let before = server.requests.count
        try server.verify(try await provider.getCertificate(NoUserInteraction()), by: "new-ca.pem")
        #expect(operations(server, after: before).filter { $0 == .cacerts }.count == 1)
    }

    @Test("With pin-mode=pin-only and the system trust store, no CA is remembered")
    func withAPinAndTheHostsListNothingIsLearnt() async throws {
        let server = try ESTResponder(.basic, .init(serverCertificate: .selfSigned))
        let storage = InMemoryStorage()
        let settings = ["pin": server.directory["server.pem"], "trust-anchors": "", "pin-mode": "pin-only"]
        let provider = try server.provider(storage: storage, settings)
        _ = try await provider.getCertificate(NoUserInteraction())
        #expect(try storage.record(named: provider.settings.authoritiesRecordName) == nil)
    }

    @Test("Only a certificate by the old root makes a new root trusted")
    func onlyTheOldRootItselfVouches() async throws {
        let old = try CertifiedKey("Root", key: TestKeys.makeP256())
        let new = try CertifiedKey("Root", key: TestKeys.makeP256())
        let stranger = try CertifiedKey("Root", key: TestKeys.makeP256())
        let newWithOld = try CertifiedKey("Root", key: new.key, issuer: old)
        let oldWithNew = try CertifiedKey("Root", key: old.key, issuer: new)
        let now = Date()
        func successors(_ bag: [CertifiedKey]) async -> [X509Certificate] {
            await Roots.successors(in: bag.map(\.certificate), of: [old.certificate], at: now)
        }
        #expect(await successors([oldWithNew, new, newWithOld, old]) == [new.certificate])
        #expect(await successors([oldWithNew, new, old]).isEmpty)
        #expect(await successors([newWithOld, oldWithNew, old]).isEmpty)
        // For another name, for another key, by another, for a certificate that issues none, by one whom the old root lets
        // issue.
        let intermediate = try CertifiedKey("Issuing", key: TestKeys.makeP256(), issuer: old)
        for link in [
            try CertifiedKey("Another", key: new.key, issuer: old),
            try CertifiedKey("Root", key: stranger.key, issuer: old),
            try CertifiedKey("Root", key: new.key, issuer: stranger),
            try CertifiedKey("Root", key: new.key, issuer: old, isAuthority: false),
            try CertifiedKey("Root", key: new.key, issuer: old, notAfter: now.addingTimeInterval(-60)),
            try CertifiedKey("Root", key: new.key, issuer: intermediate),
        ] {
            #expect(await successors([link, new, intermediate, oldWithNew]).isEmpty)
        }
        let all = [newWithOld, new, oldWithNew, intermediate, old].map(\.certificate)
        #expect(Roots.all(in: all, at: now) == [new.certificate, old.certificate])
    }

    /// The new root would be free of them.
    @Test("A new root that lacks the constraints of its link certificate or old root is refused")
    func whatTheLinkForbidsIsNotPermittedByTheNewRoot() async throws {
        let (oldKey, newKey) = (try TestKeys.makeP256(), try TestKeys.makeP256())
        typealias Make = (SoftwareKey, CertifiedKey?) throws -> CertifiedKey
        let free: Make = { try CertifiedKey("Root", key: $0, issuer: $1) }
        let constrained: [Make] = [
            { try CertifiedKey("Root", key: $0, issuer: $1, permittedName: "example.com") },
            { try CertifiedKey("Root", key: $0, issuer: $1, purposes: [.emailProtection]) },
            { try CertifiedKey("Root", key: $0, issuer: $1, maxPathLength: 1) },
        ]
        func isTaken(old: Make, new: Make, link: Make) async throws -> Bool {
            let (old, new) = (try old(oldKey, nil), try new(newKey, nil))
            let bag = [new.certificate, try link(newKey, old).certificate]
            return await Roots.successors(in: bag, of: [old.certificate], at: Date()) == [new.certificate]
        }
        #expect(try await isTaken(old: free, new: free, link: free))
        for one in constrained {
            #expect(try await !isTaken(old: free, new: free, link: one))
            #expect(try await !isTaken(old: one, new: free, link: free))
            #expect(try await isTaken(old: free, new: one, link: one))
            #expect(try await isTaken(old: free, new: one, link: free))
        }
    }

    @Test func aRecordIsReadWholeOrNotAtAll() throws {
        let certificates = try [CertifiedKey.authority.get().certificate, CertifiedKey.impostor.get().certificate]
        let known = KnownAuthorities(basis: [UInt8](repeating: 7, count: 32), certificates: certificates)
        let bytes = try known.encoded().withUnsafeBytes { Array($0) }
        #expect(try KnownAuthorities(SecretBytes(copying: bytes)) == known)
        for count in 1..<bytes.count {
            #expect(throws: ProviderError.self) {
                try KnownAuthorities(SecretBytes(copying: bytes.prefix(count)))
            }
        }
        let text = String(decoding: bytes, as: UTF8.self).replacing("\"version\":1", with: "\"version\":2")
        let newer = #expect(throws: ProviderError.self) {
            try KnownAuthorities(SecretBytes(utf8: text))
        }
        #expect(newer?.code == .storeReadFailed)
    }
}
