import CertificateProviding
import Foundation
import ProviderTransport
import Synchronization
import Testing

@testable import SplitKeySigning

/// Records of other versions, damaged ones, and those of other processes.
struct StoreTests {
    private static let authority = "https://authority.example"

    @Test(
        "A record of a newer version is refused, and neither rewritten nor removed",
        arguments: ["key-", "pin-", "access-"])
    func newerVersion(prefix: String) async throws {
        let test = try await TestHost.enrolled()
        try await test.host().login(TestHost.user)
        let wrong = try test.file("pin", "0000")
        func sign() async -> ProviderError? {
            await ProviderError.of { () throws(ProviderError) in
                try await test.host([.signing: wrong], isService: true).sign([1], as: TestHost.user) { _ in true }
            }
        }
        #expect(await sign()?.code == .pinIncorrect)
        let new = SecretBytes(utf8: #"{"version":2,"other":1}"#)
        let names = try test.storage.recordNames().filter { $0.hasPrefix(prefix) }
        #expect(!names.isEmpty)
        for name in names { try test.storage.updateRecord(named: name) { _ in new } }
        let error = await sign()
        #expect(error?.code == .storeReadFailed && error?.message.contains("was written by a newer dvs") == true)
        if prefix == "key-" {
            let sent = test.servers.count("/rps/v2/dvsconfirm")
            let enrolment = await ProviderError.of { () throws(ProviderError) in
                try await test.host().enrolLoginKey(code: SecretBytes(utf8: "code"))
            }
            // The code is not used up.
            #expect(enrolment?.code == .storeReadFailed && test.servers.count("/rps/v2/dvsconfirm") == sent)
        }
        if prefix == "access-" {
            let login = await ProviderError.of { () throws(ProviderError) in
                try await test.host().login(TestHost.user)
            }
            #expect(login?.code == .storeReadFailed)
        }
        for name in names { #expect(try test.storage.record(named: name) == new) }
    }

    @Test("A damaged key is replaced by an enrolment, and a damaged access token by a login")
    func damaged() async throws {
        let test = try await TestHost.enrolled()
        try await test.host().login(TestHost.user)
        for name in try test.storage.recordNames() { try test.damage(name) }
        let host = test.host()
        try await host.enrolLoginKey(code: SecretBytes(utf8: "code"))
        try await host.enrolSigningKey(of: TestHost.user)
        _ = try await host.sign([1], as: TestHost.user) { _ in true }
    }

    @Test(
        "An authority's URL in another form is the same authority",
        arguments: ["https://Authority.Example", "https://authority.example//", "HTTPS://authority.example:443/"])
    func sameAuthority(url: String) throws {
        let servers = try FakeServers(FakePairing())
        let other = Authority(try #require(ServerURL(url)), servers)
        #expect(other.url == Self.authority && Authority(servers.authority, servers).url == Self.authority)
        let path = Authority(try #require(ServerURL("https://a.example//b//c/")), servers)
        #expect(path.url == "https://a.example/b/c")
    }

    @Test("A key that another process has replaced is not overwritten with a changed PIN of the former one")
    func replacedKey() async throws {
        let test = try await TestHost.enrolled()
        let old = try test.host().key(of: TestHost.user, .signing)
        try await test.host().enrolSigningKey(of: TestHost.user)
        let changed = try old.changing(
            PIN(SecretBytes(utf8: TestHost.signingPIN)), to: PIN(SecretBytes(utf8: "1234")))
        let error = #expect(throws: ProviderError.self) { try test.store.save(changed, insteadOf: old) }
        #expect(error?.reason == .busy)
        _ = try await test.host().sign([1], as: TestHost.user) { _ in true }
    }

    @Test("Who has no key cannot be forgotten")
    func forgetUnknown() async throws {
        let test = try await TestHost.enrolled()
        let error = #expect(throws: ProviderError.self) {
            try test.store.forget("bob", at: Self.authority)
        }
        #expect(error?.code == .notFound)
        try test.store.forget(TestHost.user, at: Self.authority)
        #expect(try test.storage.recordNames() == [])
    }
}
