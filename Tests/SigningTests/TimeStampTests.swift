import CertificateProviding
import Foundation
import ProviderTransport
import Synchronization
import TestSupport
import Testing

@testable import Signing

/// Time stamps of a server over `openssl ts -reply`, one fault at a time.
@Suite struct TimeStampTests {
    private let authority: TimeStampAuthority
    private let signature: [UInt8] = (0..<256).map { UInt8($0) }

    init() throws { authority = try TimeStampAuthority.shared.get() }

    @Test(
        "A stamp is accepted, and OpenSSL verifies it",
        arguments: ["ok", "crafted", "with-mods", "closed-once", "sha512"])
    func accepted(kind: String) async throws {
        let token = try await authority.server(kind).token(for: signature)
        try authority.opensslVerify(token, of: signature)
    }

    @Test(
        "A nonce with leading zeros or the highest bit is written as a positive INTEGER, and comes back",
        arguments: [0, 1, 0x7f, 0x80, 0xff, 0x0012_3456_789a_bcde, 0x8000_0000_0000_0000, .max] as [UInt64])
    func nonces(nonce: UInt64) async throws {
        var server = try authority.server()
        server.nonce = { nonce }
        try authority.opensslVerify(try await server.token(for: signature), of: signature)
    }

    @Test(
        "A wrong answer is a typed error that says what is wrong",
        arguments: [
            ("imprint", "protocolError", "message imprint mismatch"),
            ("no-nonce", "protocolError", "nonce not returned"),
            ("other-nonce", "protocolError", "nonce mismatch"), ("other-policy", "protocolError", "policy mismatch"),
            ("refused", "rejected", "Requested policy is not supported"),
            ("expired", "serverNotTrusted", "certificate has expired"),
            ("stranger", "serverNotTrusted", "unable to get local issuer certificate"),
            ("not-critical", "serverNotTrusted", "purpose"), ("two-uses", "serverNotTrusted", "purpose"),
            ("client", "serverNotTrusted", "purpose"), ("sha1", "protocolError", "not signed with SHA-2"),
            ("sha1-chain", "serverNotTrusted", "too weak"), ("two-signers", "protocolError", "one signer"),
            ("unnamed", "protocolError", "signing certificate"), ("past", "protocolError", "behind this host's clock"),
            ("future", "protocolError", "ahead of this host's clock"), ("version", "protocolError", "version"),
            ("no-stamp", "protocolError", "damaged"), ("no-token", "protocolError", "not accepted"),
            ("empty", "protocolError", "damaged"), ("cut", "protocolError", "damaged"),
            ("trailing", "protocolError", "damaged"), ("large", "protocolError", "65537 bytes"),
            ("404", "configurationInvalid", "check the URL"),
        ])
    func faults(fault: (name: String, code: String, text: String)) async throws {
        let error = try #require(await failure { try await authority.server(fault.name).token(for: signature) })
        #expect(error.code.rawValue == fault.code && error.message.contains(fault.text), "\(error)")
    }

    @Test("A connection that fails is tried three times", arguments: ["closed", "500"])
    func repetition(fault: String) async throws {
        let tries = Counter()
        var server = try authority.server(fault)
        server.transport.retryPolicy.sleep = { _ in tries.add() }
        let error = try #require(await failure { try await server.token(for: signature) })
        #expect(error.code == .unavailable && tries.count == 2, "\(error)")
    }

    @Test("A wrong answer is not asked for again")
    func noRepetition() async throws {
        let tries = Counter()
        var server = try authority.server("imprint")
        server.transport.retryPolicy.sleep = { _ in tries.add() }
        _ = try #require(await failure { try await server.token(for: signature) })
        #expect(tries.count == 0)
    }

    @Test("A server that hangs or is away is an error within the deadline")
    func away() async throws {
        var hanging = try authority.server("hang")
        hanging.timeout = .milliseconds(300)
        #expect(try #require(await failure { try await hanging.token(for: signature) }).code == .timedOut)
        let port = try ReservedPort()
        var absent = try TimeStampServer("http://127.0.0.1:\(port.number)/", anchors: authority.anchors)
        absent.transport.retryPolicy.sleep = { _ in }
        #expect(try #require(await failure { try await absent.token(for: signature) }).code == .unavailable)
    }

    @Test("The clock of this host decides: one that is off accepts nothing")
    func clock() async throws {
        var server = try authority.server()
        server.now = { Date() + 400 }
        let error = try #require(await failure { try await server.token(for: signature) })
        #expect(error.code == .protocolError && error.message.contains("check the clock"), "\(error)")
    }

    @Test("A server gets user and password; a rejected one once, and a corrected one without a restart")
    func aPassword() async throws {
        let directory = try TemporaryDirectory()
        func write(_ password: String) throws { try directory.write(password.utf8, to: "password") }
        let environment = ProviderEnvironment(
            storage: InMemoryStorage(), logger: TestLog().logger, executor: .threads())
        var server = try authority.server("login")
        let anonymous = try #require(await failure { try await server.token(for: signature) })
        #expect(anonymous.code == .rejected && anonymous.message.contains("--time-stamp-user"), "\(anonymous)")
        try server.logIn(as: "twice", passwordFrom: .file(directory["password"]), environment)
        // The second one by itself is not sent.
        try write("wrong")
        for words in ["with the status 401", "has rejected this password of 'twice' before", "before"] {
            let error = try #require(await failure { try await server.token(for: signature) })
            #expect(error.code == .rejected && error.message.contains(words) && error.reason == .timeStamp, "\(error)")
        }
        #expect(try authority.wrongLogins(of: "twice") == 1)
        try write("tspass")
        try authority.opensslVerify(try await server.token(for: signature), of: signature)
    }

    @Test("A password is for https: or this host, and from a source that can be read again")
    func passwordsThatAreNotSent() throws {
        let environment = ProviderEnvironment(
            storage: InMemoryStorage(), logger: TestLog().logger, executor: .threads())
        func error(_ url: String, _ user: String, _ source: SecretSource) throws -> ProviderError? {
            var server = try TimeStampServer(url, anchors: authority.anchors)
            return failure { try server.logIn(as: user, passwordFrom: source, environment) }
        }
        let source = SecretSource.environment("PASSWORD")
        for url in ["https://tsa.example/", "http://localhost:1/", "http://[::1]/"] {
            #expect(try error(url, "user", source) == nil)
        }
        #expect(try error("http://tsa.example/", "user", source)?.message.contains("over TLS only") == true)
        for user in ["", "a:b", "a\n"] { #expect(try error("https://tsa.example/", user, source) != nil) }
        #expect(try error("https://tsa.example/", "user", .prompt) != nil)
    }

    @Test("Without anchors, with another URL or a wrong policy nothing is sent")
    func configuration() async throws {
        #expect(failure { try TimeStampServer("http://tsa.example/", anchors: []) }?.code == .configurationInvalid)
        for url in ["tsa.example", "ftp://tsa.example", "http://user:pw@tsa.example/", ""] {
            let error = try #require(failure { try TimeStampServer(url, anchors: authority.anchors) })
            #expect(error.code == .configurationInvalid && !error.message.contains("pw"), "\(error)")
        }
        var server = try authority.server()
        server.policy = "not an identifier"
        let error = try #require(await failure { try await server.token(for: signature) })
        #expect(error.code == .configurationInvalid && error.message.contains("policy"), "\(error)")
    }
}

private final class Counter: Sendable {
    private let value = Mutex(0)
    var count: Int { value.withLock(\.self) }
    func add() { value.withLock { $0 += 1 } }
}
