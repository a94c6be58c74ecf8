import CertificateProviding
import Enrolment
import Foundation
import Synchronization
import TestSupport
import Testing

@testable import ACMEProvider

/// The account: terms, contact, external accounts, and its end.
@Suite struct ACMEAccountTests {
    private let person = NoUserInteraction()
    private let terms = "https://ca.example/terms-2"

    @Test(
        "Terms are agreed to by their URL, by true, or on the terminal",
        arguments: ["https://ca.example/terms-2", "true", nil])
    func termsAreAgreedTo(agreed: String?) async throws {
        let host = try Host()
        host.server.behave { $0.terms = terms }
        let user = Person(confirming: true)
        _ = try await host.provider(["agree-terms": agreed]).getCertificate(user)
        #expect(user.questions.count == (agreed == nil ? 1 : 0))
        #expect(user.questions.allSatisfy { $0.contains(terms) })
        // They are agreed to once.
        _ = try await host.provider().getCertificate(person)
    }

    @Test(
        "Without consent to the terms there is no account, and no key for it",
        arguments: [
            (
                nil, ProviderError.Code.configurationInvalid,
                "set 'agree-terms' to this URL if you agree, or run"
            ),
            ("https://ca.example/terms-1", .configurationInvalid, "and 'agree-terms' has another URL"),
        ])
    func termsAreNotAgreedTo(agreed: String?, code: ProviderError.Code, part: String) async throws {
        let host = try Host()
        host.server.behave { $0.terms = terms }
        let error = try #require(
            await failure { _ = try await host.provider(["agree-terms": agreed]).getCertificate(person) })
        #expect(error.code == code && error.message.contains(part) && error.message.contains(terms), "\(error)")
        #expect(host.server.count(of: "newAccount") == 0 && host.records.isEmpty)
        let refusing = Person(confirming: false)
        if agreed == nil {
            #expect(await TestSupport.code { _ = try await host.provider().getCertificate(refusing) } == .userCancelled)
        }
    }

    private static let key = Array("0123456789abcdef0123456789abcdef".utf8)

    @Test("An external account is bound by each algorithm", arguments: ["HS256", "HS384", "HS512"])
    func anExternalAccount(algorithm: String) async throws {
        let host = try Host(variables: ["KEY": ByteText.base64URL(Self.key)])
        host.server.behave { $0.externalAccounts = ["kid-1": Self.key] }
        _ = try await host.provider([
            "eab-kid": "kid-1", "eab-key-source": "env:KEY", "eab-algorithm": algorithm,
        ]).getCertificate(person)
        #expect(host.log.warnings == [])
        // The account is found by its own key from then on.
        _ = try await host.provider(["eab-kid": "kid-1", "eab-key-source": "env:NOTHING"]).getCertificate(person)
    }

    @Test(
        "A server that wants each look-up by key to be bound renews: by the account's URL, and else by the binding",
        arguments: ["URL", "no record", "another key's record", "not shown", "damaged record"])
    func lookUpsThatAreBound(obstacle: String) async throws {
        let host = try Host(variables: ["KEY": ByteText.base64URL(Self.key)])
        host.server.behave {
            $0.externalAccounts = ["kid-1": Self.key]
            $0.bindsLookUps = true
            $0.showsAccounts = obstacle != "not shown"
        }
        let bound: [String: String?] = ["eab-kid": "kid-1", "eab-key-source": "env:KEY"]
        // The key of the account is there, and not yet bound.
        _ = try await host.provider(bound).getCertificate(person)
        let record = try #require(host.records.first { $0.hasPrefix("url-") })
        switch obstacle {
        case "no record": try host.memory.removeRecord(named: record)
        case "another key's record":
            try host.memory.updateRecord(named: record) { _ in
                SecretBytes(utf8: #"{"key":"x","url":"http://127.0.0.1:14000/account/a9","version":1}"#)
            }
        case "damaged record": try host.memory.updateRecord(named: record) { _ in SecretBytes(utf8: "{") }
        default: break
        }
        // By its URL, the secret is not needed any more.
        let secret = obstacle == "URL" ? "env:NOTHING" : "env:KEY"
        _ = try await host.provider(["eab-kid": "kid-1", "eab-key-source": secret]).getCertificate(person)
        #expect(host.server.issuedCount == 2 && host.server.mistakes == [])
        #expect(host.server.state.withLock(\.accounts.count) == 1 && host.records.contains(record))
    }

    @Test("A look-up that must be bound, and is not configured to be, names the parameters")
    func lookUpWithoutABinding() async throws {
        let host = try Host()
        _ = try await host.provider().getCertificate(person)
        try host.memory.removeRecord(named: try #require(host.records.first { $0.hasPrefix("url-") }))
        host.server.behave { $0.bindsLookUps = true }
        let error = try #require(await failure { _ = try await host.provider().getCertificate(person) })
        #expect(
            error.code == .configurationInvalid && error.message.contains("set 'eab-kid' and 'eab-key-source'"),
            "\(error)")
    }

    @Test("A record of the account's URL by a newer version is left alone")
    func aNewerRecord() async throws {
        let host = try Host()
        _ = try await host.provider().getCertificate(person)
        let record = try #require(host.records.first { $0.hasPrefix("url-") })
        try host.memory.updateRecord(named: record) { _ in SecretBytes(utf8: #"{"version":2}"#) }
        let error = try #require(await failure { _ = try await host.provider().getCertificate(person) })
        #expect(error.code == .storeReadFailed && error.message.contains("update certprov"), "\(error)")
    }

    @Test(
        "A wrong, damaged, short or missing key of an external account",
        arguments: [
            (ByteText.base64URL(Array("another-key-of-some-32-bytes-....".utf8)), "check 'eab-kid', 'eab-key-source'"),
            ("not base64!", "is not base64url"), ("", "set 'eab-kid' and 'eab-key-source'"), (" \n", "is empty"),
        ])
    func aWrongExternalAccount(key: String, part: String) async throws {
        let host = try Host(variables: ["KEY": key])
        host.server.behave { $0.externalAccounts = ["kid-1": Self.key] }
        let changes: [String: String?] = key.isEmpty ? [:] : ["eab-kid": "kid-1", "eab-key-source": "env:KEY"]
        let error = try #require(await failure { _ = try await host.provider(changes).getCertificate(person) })
        #expect(error.message.contains(part), "\(error)")
        if key.count > 8 { #expect(!error.message.contains(key)) }
        #expect(host.server.state.withLock(\.accounts.isEmpty) && host.server.mistakes == [])
    }

    @Test("A short key of an external account is used, with a warning")
    func aShortKey() async throws {
        let short = Array("short".utf8)
        // With padding, as some CAs show it.
        let host = try Host(variables: ["KEY": " \(Data(short).base64EncodedString())\n\n"])
        host.server.behave { $0.externalAccounts = ["kid-1": short] }
        _ = try await host.provider(["eab-kid": "kid-1", "eab-key-source": "env:KEY"]).getCertificate(person)
        #expect(host.log.warnings.contains { $0.contains("40 bits") })
    }

    @Test("A contact is sent, and changed when the configuration does")
    func aContact() async throws {
        let host = try Host()
        _ = try await host.provider(["contact": "a@example.com, tel:+1"]).getCertificate(person)
        #expect(
            host.server.state.withLock { $0.accounts.values.map(\.contact) } == [["mailto:a@example.com", "tel:+1"]])
        _ = try await host.provider(["contact": "b@example.com"]).getCertificate(person)
        #expect(host.server.state.withLock { $0.accounts.values.map(\.contact) } == [["mailto:b@example.com"]])
    }

    @Test("A closed account is an error that names the next step, which works")
    func aClosedAccount() async throws {
        let host = try Host()
        let provider = try host.provider()
        _ = try await provider.getCertificate(person)
        host.server.state.withLock { state in
            for name in state.accounts.keys { state.accounts[name]?.status = "deactivated" }
        }
        let error = try #require(await failure { _ = try await provider.getCertificate(person) })
        #expect(error.code == .rejected && error.message.contains("certprov delete --force"), "\(error)")
        try await provider.revocation?.closeAccount(person)
        _ = try await host.provider().getCertificate(person)
        #expect(host.server.state.withLock(\.accounts.count) == 2)
    }

    @Test("An account is closed on request, and its key destroyed")
    func anAccountIsClosed() async throws {
        let host = try Host()
        let provider = try host.provider()
        try await provider.revocation?.closeAccount(person)
        _ = try await provider.getCertificate(person)
        try await provider.revocation?.closeAccount(person)
        #expect(host.server.state.withLock { $0.accounts.values.map(\.status) } == ["deactivated"])
        #expect(!host.records.contains { $0.hasPrefix("account-") || $0.hasPrefix("url-") })
    }

    @Test("A server without the account, or a store without its key, gets a new one", arguments: [true, false])
    func aLostAccount(isLostByServer: Bool) async throws {
        let host = try Host()
        _ = try await host.provider().getCertificate(person)
        if isLostByServer {
            host.server.state.withLock {
                $0.accounts = [:]; $0.orders = [:]
            }
        } else {
            let environment = host.environment()
            let name = try #require(host.records.first { $0.hasPrefix("account-") })
            let store = try environment.keyStores.store("store:", pinSource: nil, parameter: "key")
            for key in try OwnedKeys(store, environment, record: name).recorded() { try store.destroyStored(key) }
        }
        _ = try await host.provider().getCertificate(person)
        #expect(host.server.state.withLock(\.accounts.count) == (isLostByServer ? 1 : 2) && host.server.mistakes == [])
    }

    @Test("Identities of one server share the account; the key of a server's account goes to no other")
    func identitiesShareTheAccount() async throws {
        let host = try Host()
        _ = try await host.provider().getCertificate(person)
        _ = try await host.provider(["identifiers": "dns:other.example"]).getCertificate(person)
        #expect(host.server.state.withLock(\.accounts.count) == 1)
        #expect(host.records.count { $0.hasPrefix("account-") } == 1)
    }
}
