import CertificateProviding
import Foundation
import Synchronization
import Testing

@testable import SplitKeySigning

/// Enrolments, with an authority that lies or sends what is malformed.
struct EnrolmentTests {
    private func enrol(_ test: TestHost, companyID: String? = nil) async -> ProviderError? {
        await ProviderError.of { () throws(ProviderError) in
            try await test.host(companyID: companyID).enrolLoginKey(code: SecretBytes(utf8: "code"))
        }
    }

    /// Nothing is stored, and no signature was sent.
    private func requireNothing(_ test: TestHost, _ note: Comment) throws {
        #expect(test.servers.count("/rps/v2/dvsconfirm") == 0, note)
        #expect(try test.storage.recordNames() == [], note)
    }

    @Test("What is stored of a key")
    func stored() async throws {
        let test = try await TestHost.enrolled()
        let names = try test.storage.recordNames()
        #expect(names.count == 2 && names.allSatisfy { $0.hasPrefix("key-") })
        for name in names {
            let record = try #require(try test.storage.record(named: name)).withUnsafeBytes { Data($0) }
            let members = try #require(try JSONSerialization.jsonObject(with: record) as? [String: Any])
            #expect(
                members.keys.sorted() == [
                    "authority", "curve", "dtas", "mpinId", "pinLength", "publicKey", "token", "userId", "version",
                ])
        }
    }

    @Test("A malformed share is refused, at either issuer")
    func malformedShares() async throws {
        let points = try MalformedPoints.all(of: try G1Group(.bls12381)).map {
            ($0.name, DisplayText.hexadecimal($0.bytes))
        }
        for (name, point) in points + [("no hexadecimal", "zz"), ("odd digits", "040")] {
            for isFirst in [true, false] {
                let test = try TestHost()
                let servers = test.servers
                servers.answer { [unowned servers] recorded throws(ProviderError) in
                    if isFirst, recorded.path == "/rps/v2/dvsregister" {
                        return (200, try servers.registration(recorded, share: point))
                    }
                    let isSecond = !isFirst && recorded.path.hasPrefix("/04")
                    return isSecond ? (200, #"{"dvsClientSecret":"\#(point)"}"#) : nil
                }
                let error = await enrol(test)
                #expect(error?.code == .malformedData, "\(name) \(isFirst)")
                try requireNothing(test, "\(name) \(isFirst)")
            }
        }
    }

    @Test("A malformed stored token is refused, and so is a stored curve of another name")
    func malformedStoredToken() async throws {
        let test = try await TestHost.enrolled()
        let name = SplitKeyStore.name("https://authority.example", TestHost.user, .signing)
        let record = try #require(try test.storage.record(named: name)).withUnsafeBytes { Data($0) }
        func replace(_ member: String, _ value: String) throws -> ProviderError.Code? {
            var members = try #require(try JSONSerialization.jsonObject(with: record) as? [String: Any])
            members[member] = value
            let data = try JSONSerialization.data(withJSONObject: members)
            try test.storage.updateRecord(named: name) { _ in SecretBytes(copying: data) }
            do throws(ProviderError) {
                let key = try test.host().key(of: TestHost.user, .signing)
                _ = try key.sign([UInt8](repeating: 1, count: 32), at: 1, with: try PIN(SecretBytes(utf8: "5806")))
                return nil
            } catch { return error.code }
        }
        for (name, bytes) in try MalformedPoints.all(of: try G1Group(.bls12381)) {
            #expect(try replace("token", DisplayText.hexadecimal(bytes)) == .malformedData, "\(name)")
        }
        #expect(try replace("publicKey", "00") == .malformedData)
        #expect(try replace("curve", "BN254CX") == .unsupportedAlgorithm)
        #expect(try replace("curve", "BLS12381") == nil)
    }

    @Test("A curve of another name is refused by name", arguments: ["BN254CX", "bls12381", ""])
    func otherCurve(name: String) async throws {
        let test = try TestHost()
        let servers = test.servers
        servers.answer { [unowned servers] recorded throws(ProviderError) in
            guard recorded.path == "/rps/v2/dvsregister" else { return nil }
            return (200, try servers.registration(recorded, curve: name))
        }
        let error = await enrol(test)
        #expect(error?.code == .unsupportedAlgorithm && error?.message.contains("curve \(name) is") == true)
        try requireNothing(test, "\(name)")
    }

    /// With such a login key, a login would sign a document of the authority's choice.
    @Test(
        "A login key that says that it is for signatures, or can be read so, is refused",
        arguments: [
            (#"{"userID":"a","scope":["dvs-auth"]}"#, ProviderError.Code.protocolError),
            (#"{"userID":"a","scope":["auth","dvs-auth"]}"#, .malformedData),
            (#"{"userID":"a","scope":["auth"],"scope":["dvs-auth"]}"#, .malformedData),
            (#"{"scope":["dvs-auth"],"userID":"a","scope":["auth"]}"#, .malformedData),
            (#"{"userID":"a","scope":["auth"],"scop\u0065":["dvs-auth"]}"#, .malformedData),
            (#"{"userID":"a","scope":"auth"}"#, .malformedData), (#"{"userID":"a","scope":[]}"#, .malformedData),
            (#"{"userID":"","scope":["auth"]}"#, .malformedData), (#"{"scope":["auth"]}"#, .malformedData),
            (#"{"userID":"a","userID":"b","scope":["auth"]}"#, .malformedData), ("[]", .malformedData),
            ("", .malformedData), (#"{"userID":"a","scope":["auth"]"#, .malformedData),
        ])
    func ambiguousIdentity(identity: String, code: ProviderError.Code) async throws {
        let test = try TestHost()
        let servers = test.servers
        servers.answer { [unowned servers] recorded throws(ProviderError) in
            guard recorded.path == "/rps/v2/dvsregister" else { return nil }
            return (200, try servers.registration(recorded, identity: identity))
        }
        #expect(await enrol(test)?.code == code)
        try requireNothing(test, "\(identity)")
    }

    @Test("A signing key of another user is refused, and a key of another company")
    func otherUser() async throws {
        let test = try TestHost()
        #expect(await enrol(test, companyID: "OTHER")?.code == .configurationInvalid)
        try requireNothing(test, "company")
        #expect(await enrol(test, companyID: "COMPANY") == nil)
        let servers = test.servers
        servers.answer { [unowned servers] recorded throws(ProviderError) in
            guard recorded.path == "/rps/v2/dvsregister" else { return nil }
            return (200, try servers.registration(recorded, identity: FakeServers.identity("mallory", "dvs-auth")))
        }
        let error = await ProviderError.of { () throws(ProviderError) in
            try await test.host().enrolSigningKey(of: TestHost.user)
        }
        #expect(error?.code == .protocolError)
        #expect(try test.host().users().signing == [])
    }

    @Test("An authority that wants a signature on a digest of its own gets none of the signing key")
    func chosenNumber() async throws {
        let test = try TestHost()
        let chosen = String(repeating: "66", count: 32)
        test.servers.answer { recorded in
            recorded.path == "/rps/v2/login/challenge"
                ? (200, #"{"challenge":"\#(chosen)","hash":"\#(chosen)","y":"\#(chosen)","expires":60}"#) : nil
        }
        let host = test.host()
        try await host.enrolLoginKey(code: SecretBytes(utf8: "code"))
        try await host.enrolSigningKey(of: TestHost.user)
        try await host.login(TestHost.user)
        try await host.changePIN(of: TestHost.user, .signing, from: try test.file("new", "4321"))
        test.person.types("4321", as: .signing)
        _ = try await host.sign([1, 2, 3], as: TestHost.user) { _ in true }
        var hashes: [MPinID.Scope: Set<String>] = [:]
        for recorded in test.servers.recorded {
            guard let signature = try? recorded.signature() else { continue }
            hashes[try MPinID(hexadecimal: signature.mpinId).scope, default: []].insert(signature.hash)
        }
        #expect(hashes[.login]?.contains(chosen) == true)
        // Two probes of this host's own, and the document.
        #expect(hashes[.signing]?.count == 3 && hashes[.signing]?.contains(chosen) == false)
        #expect(hashes[.signing]?.isDisjoint(with: hashes[.login] ?? []) == true)
    }

    @Test("Until the authority has verified a signature, nothing replaces what is stored")
    func refusedProbe() async throws {
        let test = try await TestHost.enrolled()
        let before = try test.host().key(of: TestHost.user, .login).publicKey
        for status in [401, 403, 410, 400, 200] {
            test.servers.answer { recorded in recorded.path == "/rps/v2/dvsconfirm" ? (status, "{}") : nil }
            #expect((await enrol(test) == nil) == (status == 200))
            let after = try test.host().key(of: TestHost.user, .login).publicKey
            #expect((before == after) == (status != 200))
            // The enrolment has begun where the login key is new.
            let begun = try test.storage.recordNames().filter { !$0.hasPrefix("key-") }
            #expect(begun.count == (status == 200 ? 1 : 0) && begun.allSatisfy { $0.hasPrefix("enrolment-") })
        }
    }

    @Test("An authority to which a signature is of the future has this host's clock named", arguments: [true, false])
    func future(isLogin: Bool) async throws {
        let test = try await TestHost.enrolled()
        test.servers.answer { recorded in
            guard recorded.path == (isLogin ? "/rps/v2/login" : "/rps/v2/dvsconfirm") else { return nil }
            return (400, #"{"message":"The request is malformed: timestamp is in the future."}"#)
        }
        let host = test.host()
        let error =
            isLogin
            ? await ProviderError.of { () throws(ProviderError) in
                try await host.login(TestHost.user)
            }
            : await ProviderError.of { () throws(ProviderError) in
                try await host.enrolSigningKey(of: TestHost.user)
            }
        #expect(error?.code == .rejected && error?.message.contains("check the clock of this host") == true)
        #expect(error?.message.contains("timestamp is in the future") == true)
    }

    @Test("An enrolment that has begun is known by its code, also where the user has former keys")
    func begunEnrolment() async throws {
        let test = try TestHost()
        let (code, other) = (SecretBytes(utf8: "code"), SecretBytes(utf8: "other"))
        for _ in 0..<2 {
            #expect(try await test.host().begunEnrolment() == nil)
            #expect(try await test.host().begunEnrolment(with: code) == nil)
            try await test.host().enrolLoginKey(code: code)
            #expect(try await test.host().begunEnrolment() == TestHost.user)
            #expect(try await test.host().begunEnrolment(with: code) == TestHost.user)
            #expect(try await test.host().begunEnrolment(with: other) == nil)
            try await test.host().enrolSigningKey(of: TestHost.user)
        }
        #expect(try test.storage.recordNames().allSatisfy { $0.hasPrefix("key-") })
    }

    @Test("A login key whose confirmation was lost is finished by its code, and not by another")
    func lostConfirmationByCode() async throws {
        let test = try TestHost()
        test.servers.answer { recorded throws(ProviderError) in
            guard recorded.path == "/rps/v2/dvsconfirm" else { return nil }
            throw ProviderError(.timedOut, "")
        }
        #expect(await enrol(test)?.code == .timedOut)
        test.servers.answer { _ in nil }
        let asked = test.person.questions.count
        #expect(try await test.host().begunEnrolment(with: SecretBytes(utf8: "other")) == nil)
        #expect(test.person.questions.count == asked)
        #expect(try await test.host().begunEnrolment(with: SecretBytes(utf8: "code")) == TestHost.user)
    }

    private struct BrokenPairing: PairingComputing {
        func multiple(of number: SecretScalar) async throws(ProviderError) -> [UInt8] {
            throw ProviderError(.unavailable, "The helper cannot be run.")
        }
    }

    @Test("A pairing helper that cannot be run ends an enrolment before a PIN is asked for")
    func brokenHelper() async throws {
        let test = try TestHost()
        let host = SplitKeyHost(
            test.store, Authority(test.servers.authority, test.servers), nil, pairing: BrokenPairing(),
            PINDesk([:], asking: test.person))
        let error = await ProviderError.of { () throws(ProviderError) in
            try await host.enrolLoginKey(code: SecretBytes(utf8: "code"))
        }
        #expect(error?.code == .unavailable && test.person.questions == [] && test.servers.paths() == [])
    }

    @Test("An enrolment whose last answer was lost goes on: the code is used up, and no other is needed")
    func lostConfirmation() async throws {
        let test = try TestHost()
        let servers = test.servers
        servers.answer { recorded throws(ProviderError) in
            guard recorded.path == "/rps/v2/dvsconfirm" else { return nil }
            throw ProviderError(.timedOut, "")
        }
        #expect(await enrol(test)?.code == .timedOut)
        #expect(try test.host().users().login == [])
        servers.answer { _ in nil }
        #expect(try await test.host().finishedLoginKey() == TestHost.user)
        servers.answer { recorded throws(ProviderError) in
            guard recorded.path == "/rps/v2/dvsconfirm" else { return nil }
            throw ProviderError(.timedOut, "")
        }
        let error = await ProviderError.of { () throws(ProviderError) in
            try await test.host().enrolSigningKey(of: TestHost.user)
        }
        #expect(error?.code == .timedOut)
        servers.answer { _ in nil }
        try await test.host().enrolSigningKey(of: TestHost.user)
        #expect(servers.count("/rps/v2/dvsregister") == 2)
        #expect(try test.storage.recordNames().allSatisfy { $0.hasPrefix("key-") })
        // One that the authority does not know is removed, and the code is asked for.
        let other = try TestHost()
        other.servers.answer { recorded throws(ProviderError) in
            if recorded.path == "/rps/v2/login/challenge" { return (404, "{}") }
            guard recorded.path == "/rps/v2/dvsconfirm" else { return nil }
            throw ProviderError(.unavailable, "")
        }
        #expect(await enrol(other)?.code == .unavailable)
        #expect(try await other.host().finishedLoginKey() == nil)
        #expect(try other.storage.recordNames() == [])
    }

    @Test("PINs", arguments: ["123", "123456789", "12a4", "١٢٣٤", "", " 1234", "12 34", "+123", "-123"])
    func invalidPIN(text: String) async throws {
        let error = #expect(throws: ProviderError.self) { try PIN(SecretBytes(utf8: text)) }
        #expect(error?.code == .malformedData)
    }

    @Test("0012 and 12 have one value, and 0012 is not 00012")
    func leadingZeros() throws {
        let (short, long) = (try PIN(SecretBytes(utf8: "0012")), try PIN(SecretBytes(utf8: "00012")))
        #expect(short != long && short.length == 4 && long.length == 5)
        #expect(try short.scalar().bytes(count: 4) == SecretBytes(copying: [0, 0, 0, 12]))
        let largest = try PIN(SecretBytes(utf8: "99999999")).scalar().bytes(count: 4)
        #expect(largest == SecretBytes(copying: [0x05, 0xf5, 0xe0, 0xff]))
    }

    @Test("Any bit of a share turned, and random answers, enrol nothing and never end the process")
    func answersFuzz() async throws {
        // 300 rounds, and more until the seconds in `CERTPROV_FUZZ_SECONDS` are over.
        let end = ProcessInfo.processInfo.environment["CERTPROV_FUZZ_SECONDS"].flatMap(Int.init)
            .map { ContinuousClock.now + .seconds($0) }
        for round in 0... {
            guard round < 300 || end.map({ ContinuousClock.now < $0 }) == true else { break }
            // Other tests wait for this thread.
            await Task.yield()
            let test = try TestHost()
            let servers = test.servers
            servers.answer { [unowned servers] recorded throws(ProviderError) in
                guard recorded.path == "/rps/v2/dvsregister" else { return nil }
                if round.isMultiple(of: 2) {
                    let text = try servers.registration(recorded)
                    var share = ByteText.bytes(hexadecimal: String(text.dropFirst(25).prefix(194))) ?? []
                    share[Int.random(in: 0..<97)] ^= 1 << UInt8.random(in: 0..<8)
                    return (200, try servers.registration(recorded, share: DisplayText.hexadecimal(share)))
                }
                var text = Array(try servers.registration(recorded).utf8)
                // The members' names and the first share.
                for _ in 0..<3 { text[Int.random(in: 0..<24)] = UInt8.random(in: 0...255) }
                return (200, String(decoding: text, as: UTF8.self))
            }
            let code = await enrol(test)?.code
            if round.isMultiple(of: 2) {
                #expect(code == .malformedData)
                try requireNothing(test, "\(round)")
            } else {
                #expect(code == .protocolError || code == nil)
            }
        }
    }
}
