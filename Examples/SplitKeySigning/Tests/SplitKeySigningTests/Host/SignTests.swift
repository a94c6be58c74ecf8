import CertificateProviding
import Crypto
import Foundation
import Synchronization
import Testing

@testable import SplitKeySigning

/// Signatures for the relying party.
struct SignTests {
    private static let document = Array("a document".utf8)
    private static var digest: String { DisplayText.hexadecimal(Array(SHA256.hash(data: document))) }

    private func sign(_ host: SplitKeyHost) async throws(ProviderError) -> SplitKeyHost.Signed {
        try await host.sign(Self.document, as: TestHost.user) { _ in true }
    }

    @Test("A person enrols, signs, and the signature is valid; the next one needs no login")
    func enrolAndSign() async throws {
        let test = try await TestHost.enrolled()
        let first = try await sign(test.host())
        #expect(first.status == "ValidSignature" && first.signed.signature.hash == Self.digest)
        #expect(test.servers.count("/rps/v2/login") == 1)
        _ = try await sign(test.host())
        #expect(test.servers.count("/rps/v2/login") == 1)
        #expect(test.servers.count("/verify-signature") == 2)
    }

    @Test(
        "A relying party that has forgotten the access token is asked again after one login", arguments: [true, false])
    func forgottenToken(demandsToken: Bool) async throws {
        let test = try await TestHost.enrolled()
        _ = try await sign(test.host())
        test.servers.state.withLock { ($0.accessTokens, $0.demandsToken) = ([], demandsToken) }
        #expect(try await sign(test.host()).status == "ValidSignature")
        #expect(test.servers.count("/rps/v2/login") == 2)
        let asked = test.servers.recorded.filter { ["/document", "/verify-signature"].contains($0.path) }
        #expect(
            asked.map(\.path).dropFirst(2).map { $0.prefix(2) }
                == (demandsToken ? ["/d", "/d", "/v"] : ["/d", "/v", "/v"]))
        #expect(asked.allSatisfy { $0.token != nil } && Set(asked.map(\.token)).count == 2)
        let sent = try asked.filter { $0.path == "/verify-signature" }.map { try $0.signature() }
        #expect(Set(sent.map(\.u)).count == 2)
    }

    @Test("A relying party that accepts no access token ends in an error, after one login", arguments: [true, false])
    func noTokenAccepted(isStored: Bool) async throws {
        let test = try await TestHost.enrolled()
        if isStored { try await test.host().login(TestHost.user) }
        test.servers.answer { $0.path == "/document" ? (401, "{}") : nil }
        let error = await ProviderError.of { () throws(ProviderError) in
            try await sign(test.host())
        }
        #expect(error?.code == .rejected && test.servers.count("/rps/v2/login") == (isStored ? 2 : 1))
        #expect(error?.message.contains("If it was restarted, run the command again") == true)
        #expect(try test.storage.recordNames().allSatisfy { !$0.hasPrefix("access-") })
    }

    @Test("A digest of another document: no signing PIN is asked for, and nothing else is sent")
    func otherDigest() async throws {
        let test = try await TestHost.enrolled()
        test.servers.answer { recorded in
            guard recorded.path == "/document" else { return nil }
            return (200, #"{"hash":"\#(String(repeating: "00", count: 32))","timestamp":1700000000}"#)
        }
        let error = await ProviderError.of { () throws(ProviderError) in
            try await sign(test.host())
        }
        #expect(error?.code == .protocolError)
        #expect(test.person.questions.allSatisfy { $0.hasPrefix("login PIN") })
        #expect(test.servers.paths().last == "/document")
    }

    @Test("A time more than ten minutes from this host's is refused, by both times", arguments: [-610, 610, -590, 590])
    func otherTime(seconds: Double) async throws {
        let test = try await TestHost.enrolled()
        let time = Date() + seconds
        let digest = Self.digest
        test.servers.answer { recorded in
            guard recorded.path == "/document" else { return nil }
            return (200, #"{"hash":"\#(digest)","timestamp":\#(UInt32(time.timeIntervalSince1970))}"#)
        }
        let error = await ProviderError.of { () throws(ProviderError) in
            try await sign(test.host())
        }
        guard abs(seconds) > 600 else {
            #expect(error == nil)
            return
        }
        #expect(error?.code == .protocolError && test.servers.count("/verify-signature") == 0)
        #expect(error?.message.contains(time.formatted(.iso8601)) == true && error?.message.contains("clock") == true)
    }

    @Test("A PIN that is changed while the person reads is the one that signs")
    func changedWhileReading() async throws {
        let test = try await TestHost.enrolled()
        let new = try test.file("new", "123456")
        _ = try await test.host().sign(Self.document, as: TestHost.user) { _ throws(ProviderError) in
            try await test.host().changePIN(of: TestHost.user, .signing, from: new)
            test.person.types("123456", as: .signing)
            return true
        }
    }

    @Test("After a change of the PIN, a configured source with the former one is named, and costs no try")
    func changedElsewhere() async throws {
        let test = try await TestHost.enrolled()
        try await test.host().login(TestHost.user)
        let old = try test.file("old", TestHost.signingPIN)
        let new = try test.file("new", "1234")
        let named = try await test.host([.signing: old]).changePIN(of: TestHost.user, .signing, from: new)
        #expect(named == old.description)
        let error = await ProviderError.of { () throws(ProviderError) in
            try await sign(test.host([.signing: old], isService: true))
        }
        #expect(error?.code == .pinIncorrect && test.servers.count("/verify-signature") == 0)
        _ = try await sign(test.host([.signing: new], isService: true))
        #expect(try await test.host([.signing: new]).changePIN(of: TestHost.user, .signing, from: new) == nil)
    }

    @Test("A person who declines is asked for no signing PIN")
    func declined() async throws {
        let test = try await TestHost.enrolled()
        let host = test.host()
        let error = await ProviderError.of { () throws(ProviderError) in
            try await host.sign(Self.document, as: TestHost.user) { _ in false }
        }
        #expect(error?.code == .userCancelled)
        #expect(test.person.questions.allSatisfy { $0.hasPrefix("login PIN") })
        #expect(test.servers.paths().last == "/document")
    }

    @Test(
        "The verdicts of the relying party",
        arguments: [
            ("BadPin", ProviderError.Code.pinIncorrect), ("UserBlocked", .pinLocked),
            ("InvalidSignature", .rejected), ("MissingSignature", .protocolError), ("ValidSignature", .protocolError),
            ("Other\u{1b}[1m", .protocolError),
        ])
    func verdicts(status: String, code: ProviderError.Code) async throws {
        let test = try await TestHost.enrolled()
        let text = String(decoding: try JSONEncoder().encode(status), as: UTF8.self)
        test.servers.answer { recorded in
            // A word of validity beside "verified": false is none.
            recorded.path == "/verify-signature" ? (200, #"{"verified":false,"status":\#(text)}"#) : nil
        }
        let error = await ProviderError.of { () throws(ProviderError) in
            try await sign(test.host())
        }
        #expect(error?.code == code && error?.message.contains("\u{1b}") == false)
        guard status == "InvalidSignature" else { return }
        #expect(error?.message.contains("If it was restarted, run the command again") == true)
        #expect(error?.message.contains("forget the former one") == true)
    }

    @Test("A server that fails says itself what to do, and nothing else does", arguments: [500, 502, 503, 504])
    func failure(status: Int) async throws {
        let test = try await TestHost.enrolled()
        test.servers.answer { recorded in
            guard ["/document", "/verify-signature"].contains(recorded.path) else { return nil }
            return (status, #"{"message":"It is broken. Look for the reason in its log."}"#)
        }
        let error = await ProviderError.of { () throws(ProviderError) in
            try await sign(test.host())
        }
        #expect(error?.code == .unavailable)
        #expect(error?.message.hasSuffix("it says: It is broken. Look for the reason in its log.") == true)
    }

    @Test("A wrong PIN, three times: blocked, and the right one after that is refused")
    func blocked() async throws {
        let test = try await TestHost.enrolled()
        _ = try await sign(test.host())
        test.person.types("5807", as: .signing)
        var codes: [ProviderError.Code?] = []
        for _ in 0..<3 {
            codes.append(
                await ProviderError.of { () throws(ProviderError) in
                    try await sign(test.host())
                }?.code)
        }
        test.person.types(TestHost.signingPIN, as: .signing)
        codes.append(
            await ProviderError.of { () throws(ProviderError) in
                try await sign(test.host())
            }?.code)
        #expect(codes == [.pinIncorrect, .pinIncorrect, .pinLocked, .pinLocked])
    }

    @Test("A PIN of another length costs no try", arguments: ["58060", "0005806"])
    func otherLength(pin: String) async throws {
        let test = try await TestHost.enrolled()
        _ = try await sign(test.host())
        test.person.types(pin, as: .signing)
        let error = await ProviderError.of { () throws(ProviderError) in
            try await sign(test.host())
        }
        #expect(error?.code == .pinIncorrect)
        #expect(test.servers.count("/verify-signature") == 1)
    }

    @Test("Offline, a signature is made and nothing is sent")
    func offline() async throws {
        let test = try await TestHost.enrolled()
        let signed = try await test.host().signOffline(Self.document, as: TestHost.user) { _ in true }
        #expect(test.servers.paths() == [])
        #expect(try test.servers.isValid(signed.signature, at: signed.timestamp))
    }

    @Test("A login goes to the authority only, wherever the relying party leads")
    func sessionStays() async throws {
        let test = try await TestHost.enrolled()
        test.servers.answer { recorded in
            recorded.path == "/authzurl" ? (200, #"{"authorizeURL":"https://shop.example/oidc/authorize?x=1"}"#) : nil
        }
        let error = await ProviderError.of { () throws(ProviderError) in
            try await test.host().login(TestHost.user)
        }
        #expect(error?.code == .protocolError)
        #expect(test.servers.recorded.allSatisfy { $0.token == nil })
    }

    @Test("A login of another relying party is not given to this one")
    func otherRelyingParty() async throws {
        let test = try await TestHost.enrolled()
        let others = [
            "https://other.example/login?code=c&state=s", "https://shop.example:444/login?code=c",
            "https://shop.example/login/x?code=c", "http://shop.example/login?code=c", "/login?code=c", "",
        ]
        for location in others {
            test.servers.answer { $0.path == "/oidc/authorize" ? (302, location) : nil }
            let error = await ProviderError.of { () throws(ProviderError) in
                try await test.host().login(TestHost.user)
            }
            #expect(error?.code == .protocolError, "\(location)")
        }
        #expect(test.servers.count("/authtoken") == 0)
    }

    @Test("What is no access token is not stored", arguments: ["", "a b", "a\\u0000b", "a\\r\\nX: y", "é"])
    func accessTokens(token: String) async throws {
        let test = try await TestHost.enrolled()
        test.servers.answer { $0.path == "/authtoken" ? (200, #"{"access_token":"\#(token)"}"#) : nil }
        let error = await ProviderError.of { () throws(ProviderError) in
            try await test.host().login(TestHost.user)
        }
        #expect(error?.code == .protocolError)
        #expect(try test.storage.recordNames().allSatisfy { !$0.hasPrefix("access-") })
    }

    @Test("An access token that cannot be read is had again by a login")
    func damagedAccess() async throws {
        let test = try await TestHost.enrolled()
        _ = try await sign(test.host())
        let name = try #require(try test.storage.recordNames().first { $0.hasPrefix("access-") })
        try test.storage.updateRecord(named: name) { _ in SecretBytes(utf8: "x") }
        _ = try await sign(test.host())
        try test.storage.updateRecord(named: name) { _ in SecretBytes(utf8: "x") }
        try test.store.forget(TestHost.user, at: "https://authority.example")
        #expect(try test.storage.recordNames() == [])
    }

    @Test("A changed PIN is the one that signs, of another length too; a wrong old one changes nothing")
    func changedPIN() async throws {
        let test = try await TestHost.enrolled()
        let new = try test.file("new", "0012345\n")
        test.person.types("1111", as: .signing)
        let error = await ProviderError.of { () throws(ProviderError) in
            try await test.host().changePIN(of: TestHost.user, .signing, from: new)
        }
        #expect(error?.code == .pinIncorrect)
        test.person.types(TestHost.signingPIN, as: .signing)
        try await test.host().changePIN(of: TestHost.user, .signing, from: new)
        test.person.types("0012345", as: .signing)
        #expect(try await sign(test.host()).status == "ValidSignature")
        try await test.host().changePIN(of: TestHost.user, .login, from: new)
        test.person.types("0012345", as: .login)
        try await test.host().login(TestHost.user)
    }
}
