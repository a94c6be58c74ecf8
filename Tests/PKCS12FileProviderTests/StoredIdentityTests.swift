import CertificateProviding
import FoundationEssentials
import Glibc
import IdentityStore
import PKCS12FileProvider
import Synchronization
import TestSupport
import Testing
import X509

/// The stored entries, their lifetime, and their owners.
@Suite struct StoredIdentityTests {
    private let builder = PFXBuilder()

    private func fixture(_ identity: Identity, name: String = "alias") throws -> FileFixture {
        try FileFixture(builder.file(try builder.bags(of: identity, name: name)))
    }

    @Test func outlivesTheFile() async throws {
        let identity = try Samples.identity("kept")
        let (file, storage) = (try fixture(identity), InMemoryStorage())
        let provider = try PKCS12FileProvider.testing(file.path, storage: storage)
        #expect(try provider.getStoredCertificate() == nil)
        _ = try await provider.fetch()
        unlink(file.path)
        let later = try PKCS12FileProvider.testing(file.path, password: "changed", storage: storage)
        for provider in [provider, later] {
            let stored = try #require(try provider.getStoredCertificate())
            #expect(stored.certificateChain == identity.certificateChain)
            #expect(stored.provenance == .init(provider: PKCS12FileProvider.id, alias: "alias", source: file.path))
            try await stored.verifyPossession()
            let list = await provider.listIdentities()
            #expect(list.identities.map(\.isStored) == [true] && list.failures.map(\.code) == [.fileNotFound])
            #expect(list.remarks.count == 1 && list.remarks[0].contains("its file no longer exists"))
        }
    }

    @Test func anotherPathOrAliasIsAnotherIdentity() async throws {
        let (one, other) = (try Samples.identity("one"), try Samples.identity("other"))
        let bags = try builder.bags(of: one, name: "one") + builder.bags(of: other, name: "other")
        let (file, second) = (try FileFixture(builder.file(bags)), try fixture(other))
        let storage = InMemoryStorage()
        let provider = try PKCS12FileProvider.testing(file.path, alias: "one", storage: storage)
        _ = try await provider.fetch()
        #expect(try provider.getStoredCertificate()?.certificate == one.certificate)
        let changes: [(String, String?)] = [
            (file.path, "other"), (file.path, nil), (second.path, nil), (second.path, "one"),
        ]
        for (path, alias) in changes {
            #expect(try PKCS12FileProvider.testing(path, alias: alias, storage: storage).getStoredCertificate() == nil)
        }
        #expect(try provider.getStoredCertificate()?.certificate == one.certificate)
    }

    @Test func remarksThatTheFileChanged() async throws {
        let (before, after) = (try Samples.identity("before"), try Samples.identity("after"))
        let (file, storage) = (try fixture(before), InMemoryStorage())
        let provider = try PKCS12FileProvider.testing(file.path, storage: storage)
        _ = try await provider.fetch()
        var list = await provider.listIdentities()
        #expect(list.remarks.isEmpty && list.identities.map(\.isStored) == [true])
        try file.directory.write(builder.file(try builder.bags(of: after, name: "alias")), to: "identity.p12")
        list = await provider.listIdentities()
        #expect(list.identities.map(\.isStored) == [true, false])
        #expect(list.remarks.count == 1 && list.remarks[0].contains("has changed since"))
        #expect(try provider.getStoredCertificate()?.certificate == before.certificate)
        _ = try await provider.fetch()
        #expect(try provider.getStoredCertificate()?.certificate == after.certificate)
    }

    /// A renewal asks whatever file is there.
    @Test("An expired file does not replace a valid stored identity")
    func whatIsOfNoUseReplacesNothingThatIs() async throws {
        let authority = try TestAuthority("Time")
        func days(_ number: Double) -> Date { Date(timeIntervalSinceNow: number * 86400) }
        let valid = try authority.issue("host", notBefore: days(-20), notAfter: days(5))
        let file = try fixture(valid)
        let provider = try PKCS12FileProvider.testing(file.path)
        func put(_ identity: Identity) throws {
            _ = try file.directory.write(
                builder.file(try builder.bags(of: identity, name: "alias")), to: "identity.p12")
        }
        _ = try await provider.fetch()
        for (start, end) in [(-20.0, -15.0), (1, 5)] {
            try put(authority.issue("host", notBefore: days(start), notAfter: days(end)))
            #expect(try await provider.failure().code == .pending)
            #expect(try provider.getStoredCertificate()?.certificate == valid.certificate)
        }
        // In place of one that is over as well, or of none, it is what there is.
        try provider.deleteStoredCertificate()
        let over = try authority.issue("host", notBefore: days(-20), notAfter: days(-15))
        try put(over)
        for _ in 0..<2 { #expect(try await provider.fetch().certificate == over.certificate) }
        try put(valid)
        #expect(try await provider.fetch().certificate == valid.certificate)
    }

    @Test("A chain with an expired or a restricted intermediate does not replace a good one, and the message names it")
    func aBadChainReplacesNoGoodOne() async throws {
        let good = try TestAuthority().issue("host")
        let file = try fixture(good)
        let provider = try PKCS12FileProvider.testing(file.path)
        _ = try await provider.fetch()
        let now = Date()
        let authorities: [(TestAuthority, ProviderError.Code, String)] = [
            (try TestAuthority("Old", intermediateUntil: now - 60), .pending, "'CN=Old Intermediate"),
            (
                try TestAuthority("Server", for: ExtendedKeyUsage([.serverAuth])), .unsupportedAlgorithm,
                "'CN=Server Intermediate"
            ),
        ]
        for (authority, code, name) in authorities {
            let identity = try authority.issue("host")
            _ = try file.directory.write(
                builder.file(try builder.bags(of: identity, name: "alias")), to: "identity.p12")
            let error = try await provider.failure()
            #expect(error.code == code && error.message.hasPrefix("\(file.path): "), "\(error)")
            #expect(error.message.contains(name) && error.message.contains("stays in use"), "\(error)")
            #expect(try provider.getStoredCertificate()?.certificateChain == good.certificateChain)
        }
    }

    /// A service that finds one that TLS refuses does not start again.
    @Test("A file that TLS refuses does not replace an identity that it takes", arguments: EncodingFault.allCases)
    func whatTLSRefusesReplacesNothing(fault: EncodingFault) async throws {
        let authority = try TestAuthority()
        let good = try authority.issue("host")
        let file = try fixture(good)
        let provider = try PKCS12FileProvider.testing(file.path)
        _ = try await provider.fetch()
        let other = try authority.issue("host")
        let broken = try Identity(
            certificateChain: [fault.applied(to: other.certificate), other.certificateChain[1]], key: other.key,
            provenance: other.provenance)
        let mute = try authority.issue("host", permitsSignatures: false)
        for (identity, reason) in [(broken, fault.words), (mute, "its key usage does not permit digital signatures")] {
            _ = try file.directory.write(
                builder.file(try builder.bags(of: identity, name: "alias")), to: "identity.p12")
            let error = try await provider.failure()
            #expect([.malformedData, .unsupportedAlgorithm].contains(error.code), "\(error)")
            #expect(error.message.hasPrefix("\(file.path): ") && error.message.contains(reason), "\(error)")
            #expect(try provider.getStoredCertificate()?.certificateChain == good.certificateChain)
        }
        // For signatures it may be of use.
        try provider.deleteStoredCertificate()
        #expect(try await provider.fetch().certificate == mute.certificate)
    }

    @Test func deletingLeavesTheFile() async throws {
        let file = try fixture(try Samples.identity("deleted"))
        let provider = try PKCS12FileProvider.testing(file.path)
        try provider.deleteStoredCertificate()
        _ = try await provider.fetch()
        let before = try file.directory.read("identity.p12")
        try provider.deleteStoredCertificate()
        try provider.deleteStoredCertificate()
        #expect(try provider.getStoredCertificate() == nil)
        #expect(try file.directory.read("identity.p12") == before)
    }

    @Test func anotherProcessReplacesOrDeletes() async throws {
        let directory = try TemporaryDirectory()
        let file = try fixture(try Samples.identity("first"))
        func process() throws -> PKCS12FileProvider {
            let store = IdentityStore(path: directory["state"])
            return try .testing(file.path, storage: store.storage(for: PKCS12FileProvider.id))
        }
        let (reader, writer) = (try process(), try process())
        let first = try await writer.fetch()
        #expect(try reader.getStoredCertificate()?.certificate == first.certificate)
        try file.directory.write(builder.file(try builder.bags(of: try Samples.identity("second"))), to: "identity.p12")
        let second = try await writer.fetch()
        #expect(second.certificate != first.certificate)
        #expect(try reader.getStoredCertificate()?.certificate == second.certificate)
        try writer.deleteStoredCertificate()
        #expect(try reader.getStoredCertificate() == nil)
    }

    @Test func aFailingStoreKeepsTheOldOne() async throws {
        let identity = try Samples.identity("old")
        let (file, storage) = (try fixture(identity), InMemoryStorage())
        let provider = try PKCS12FileProvider.testing(file.path, storage: storage)
        _ = try await provider.fetch()
        try file.directory.write(builder.file(try builder.bags(of: try Samples.identity("new"))), to: "identity.p12")
        storage.fail(with: ProviderError(.storeWriteFailed, "The disk is full."))
        let error = try await provider.failure()
        #expect(error.code == .storeWriteFailed && error.provider == PKCS12FileProvider.id)
        #expect(throws: ProviderError.self) { try provider.getStoredCertificate() }
        #expect(throws: ProviderError.self) { try provider.deleteStoredCertificate() }
        let list = await provider.listIdentities()
        #expect(list.identities.map(\.isStored) == [false] && list.failures.count == 1)
        storage.fail(with: nil)
        #expect(try provider.getStoredCertificate()?.certificate == identity.certificate)
    }

    @Test func anEntryWithoutAKey() async throws {
        for chain in [[], try Samples.identity("x").certificateChain] {
            let file = try fixture(Samples.identity("x"))
            let storage = InMemoryStorage()
            let provider = try PKCS12FileProvider.testing(file.path, storage: storage)
            _ = try await provider.fetch()
            let name = try #require(try storage.entryNames().first)
            try storage.setEntry(StoredIdentity(certificateChain: chain, privateKey: nil), named: name)
            #expect(failure { try provider.getStoredCertificate() }?.code == .storeReadFailed)
        }
    }

    @Test func parametersAreChecked() async throws {
        let rows: [([String: String], ProviderError.Code)] = [
            ([:], .configurationInvalid), (["path": ""], .configurationInvalid),
            (["path": "a\0b"], .configurationInvalid), (["path": "/x", "pasword": "s3cret"], .unsupportedParameter),
            (["path": "/x", "password-source": "s3cret"], .configurationInvalid),
        ]
        for (values, code) in rows {
            let error = failure {
                try PKCS12FileProvider(
                    environment: .testing(), parameters: ProviderParameters(values.mapValues { .init($0) }))
            }
            #expect(error?.code == code && !"\(error as Any)".contains("s3cret"), "\(values)")
        }
    }
}
