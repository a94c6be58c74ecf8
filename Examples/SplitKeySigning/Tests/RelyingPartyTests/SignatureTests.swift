import CertificateProviding
import Foundation
import Synchronization
import Testing

@testable import RelyingParty

/// `/verify-signature` and `/login/VerifySignature`, with the scripted verifier.
@Suite(.timeLimit(.minutes(30))) struct SignatureTests {
    @Test("A right signature is valid, in both spellings, and again if the answer was lost")
    func aRightSignatureIsValid() async throws {
        try await Site.run { (site: Site) async throws in
            let bearer = try await site.bearer()
            let (hash, timestamp, authToken) = try await site.document(bearer)
            let signature = [String: String].signature(hash)
            for token in [nil, authToken] {
                let answer = try await site.verify(signature, timestamp, bearer: bearer, authToken: token)
                #expect(answer == (200, "ValidSignature", true))
            }
            let upper = signature.mapValues { $0.allSatisfy(\.isHexDigit) ? $0.uppercased() : $0 }
            #expect(try await site.verify(upper, timestamp, bearer: bearer) == (200, "ValidSignature", true))
            let spelled = signature.with("mpinid", signature["mpinId"]).with("mpinId", nil)
            #expect(try await site.verify(spelled, timestamp, bearer: bearer) == (200, "ValidSignature", true))
            func encoded(_ value: some Encodable) throws -> String {
                let text = String(decoding: try JSONEncoder().encode(value), as: UTF8.self)
                return text.addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? ""
            }
            struct Document: Encodable { let hash: String, timestamp: Int, authToken: String }
            let data = try encoded(Document(hash: hash, timestamp: timestamp, authToken: authToken))
            let path = "/login/VerifySignature?verificationData=\(try encoded(signature))&documentData=\(data)"
            let (status, json) = try await site.send(path, nil, bearer: bearer)
            #expect(status == 200 && json["verified"] as? Bool == true)
            #expect(try await site.send(path, nil).status == 401)
            let wrong = try encoded(Document(hash: hash, timestamp: timestamp, authToken: "x"))
            let other = "/login/VerifySignature?verificationData=\(try encoded(signature))&documentData=\(wrong)"
            let refused = try await site.send(other, nil, bearer: bearer).json
            #expect(refused["status"] as? String == "InvalidSignature")
            #expect(
                try await site.send("/login/VerifySignature?documentData=\(data)", nil, bearer: bearer).status == 400)
            #expect(site.server.questions.allSatisfy { $0.type == "verification" && $0.signature.hash == hash })
        }
    }

    @Test("The verifier's answers are the statuses of the sample")
    func theStatusesAreTheSamples() async throws {
        try await Site.run { (site: Site) async throws in
            let bearer = try await site.bearer()
            for (status, body, verdict) in [
                (401, "{}", "BadPin"), (410, "{}", "UserBlocked"), (400, "{}", "InvalidSignature"),
                (200, "{}", "MissingSignature"), (200, #"{"certificate":""}"#, "MissingSignature"),
                (200, #"{"certificate":"a.b.c"}"#, "InvalidSignature"),
            ] {
                site.server.tell { $0.verify = { _, _ in (status, body) } }
                let (hash, timestamp, _) = try await site.document(bearer)
                #expect(
                    try await site.verify(.signature(hash), timestamp, bearer: bearer) == (200, verdict, false),
                    "\(status)")
            }
            #expect(site.log.all.contains("compare this host's clock"))
        }
    }

    @Test("A verifier in trouble is 502, without a status of the signature", arguments: [403, 404, 500, 503, 302])
    func aVerifierInTroubleIsSaid(status: Int) async throws {
        try await Site.run { (site: Site) async throws in
            let bearer = try await site.bearer()
            let (hash, timestamp, _) = try await site.document(bearer)
            site.server.tell { $0.verify = { _, _ in (status, "{}") } }
            let question: [String: any Sendable] = [
                "verificationData": [String: String].signature(hash), "timestamp": timestamp,
            ]
            let (answer, json) = try await site.post("/verify-signature", question, bearer: bearer)
            #expect(answer == 502 && json["status"] == nil && json["verified"] == nil)
            let message = try #require(json["message"] as? String)
            #expect(message.contains("log of the relying party") && !message.contains("again later"), "\(message)")
        }
    }

    @Test func aVerifierThatIsDownIsSaid() async throws {
        // A port below 1024, which no other test takes.
        try await Site.run(configure: { $0.authority = "https://localhost:1" }) { (site: Site) async throws in
            let bearer = try await site.bearer()
            let (hash, timestamp, _) = try await site.document(bearer)
            let question: [String: any Sendable] = [
                "verificationData": [String: String].signature(hash), "timestamp": timestamp,
            ]
            let (status, json) = try await site.post("/verify-signature", question, bearer: bearer)
            #expect(status == 503 && json["verifier"] as? String == "not asked" && json["message"] is String)
        }
    }

    @Test("A verifier that has not counted the signature is said to be not asked, unless an answer was lost before")
    func anUncountedSignatureIsSaid() async throws {
        try await Site.run { (site: Site) async throws in
            let bearer = try await site.bearer()
            let (hash, timestamp, _) = try await site.document(bearer)
            let question: [String: any Sendable] = [
                "verificationData": [String: String].signature(hash), "timestamp": timestamp,
            ]
            site.server.tell { $0.verify = { _, _ in (503, #"{"counted":false}"#) } }
            let (status, json) = try await site.post("/verify-signature", question, bearer: bearer)
            #expect(status == 503 && json["verifier"] as? String == "not asked")
            #expect(site.server.questions.count == 1)
            let count = Mutex(0)
            site.server.tell {
                $0.verify = { _, _ in
                    let number = count.withLock { count in
                        count += 1
                        return count
                    }
                    return number == 1 ? nil : (503, #"{"counted":false}"#)
                }
            }
            let (later, answer) = try await site.post("/verify-signature", question, bearer: bearer)
            #expect(later == 502 && answer["verifier"] == nil && count.withLock(\.self) > 1)
        }
    }

    @Test("A relying party that cannot read or write a user's key says so before it asks the verifier")
    func aFailureBeforeTheVerifierIsSaid() async throws {
        try await Site.run { (site: Site) async throws in
            let bearer = try await site.bearer()
            let (hash, timestamp, _) = try await site.document(bearer)
            let question: [String: any Sendable] = [
                "verificationData": [String: String].signature(hash), "timestamp": timestamp,
            ]
            let keys = try BoundKeys(directory: site.directory.path)
            #expect(try keys.bind("aa", to: Site.alice))
            let name = try #require(try FileManager.default.contentsOfDirectory(atPath: keys.directory).first)
            try Data("{}".utf8).write(to: URL(filePath: "\(keys.directory)/\(name)"))
            let (damaged, one) = try await site.post("/verify-signature", question, bearer: bearer)
            #expect(damaged == 503 && one["verifier"] as? String == "not asked")
            try FileManager.default.removeItem(atPath: keys.directory)
            let (unwritable, other) = try await site.post("/verify-signature", question, bearer: bearer)
            #expect(unwritable == 503 && other["verifier"] as? String == "not asked")
            #expect(site.server.questions.isEmpty)
        }
    }

    @Test("A signature that is not valid leaves no draft of a key behind")
    func noDraftStays() async throws {
        try await Site.run { (site: Site) async throws in
            let bearer = try await site.bearer()
            let (hash, timestamp, _) = try await site.document(bearer)
            site.server.tell { $0.verify = { _, _ in (401, "{}") } }
            #expect(try await site.verify(.signature(hash), timestamp, bearer: bearer).verdict == "BadPin")
            let directory = try BoundKeys(directory: site.directory.path).directory
            #expect(try FileManager.default.contentsOfDirectory(atPath: directory) == [])
        }
    }

    @Test func aVerifierThatDoesNotAnswerIsSaid() async throws {
        try await Site.run(timeout: .seconds(40)) { (site: Site) async throws in
            let bearer = try await site.bearer()
            let (hash, timestamp, _) = try await site.document(bearer)
            let (never, end) = AsyncStream.makeStream(of: Void.self)
            site.server.tell {
                $0.verify = { _, _ in
                    for await _ in never {}
                    return nil
                }
            }
            #expect(try await site.verify(.signature(hash), timestamp, bearer: bearer) == (504, nil, nil))
            end.finish()
        }
    }

    @Test("A lost answer of the verifier is asked for again, with the same signature")
    func aLostAnswerIsAskedForAgain() async throws {
        try await Site.run { (site: Site) async throws in
            let bearer = try await site.bearer()
            let (hash, timestamp, _) = try await site.document(bearer)
            let count = Mutex(0)
            site.server.tell {
                $0.verify = { question, server in
                    guard
                        count.withLock({
                            $0 += 1; return $0
                        }) > 1
                    else { return nil }
                    return (200, try server.receipt(for: question))
                }
            }
            #expect(try await site.verify(.signature(hash), timestamp, bearer: bearer) == (200, "ValidSignature", true))
            #expect(site.server.questions.count == 2)
            #expect(Set(site.server.questions.map(\.signature.u)).count == 1)
        }
    }

    @Test("Only hashes that were given out within ten minutes reach the verifier")
    func onlyGivenHashesAreVerified() async throws {
        try await Site.run { (site: Site) async throws in
            let bearer = try await site.bearer()
            let (hash, timestamp, _) = try await site.document(bearer)
            let other = String(repeating: "0", count: 64)
            let invalid = (200, "InvalidSignature", false)
            #expect(try await site.verify(.signature(other), timestamp, bearer: bearer) == invalid)
            for time in [timestamp - 1, timestamp + 1, 0, -1] {
                #expect(try await site.verify(.signature(hash), time, bearer: bearer) == invalid)
            }
            #expect(
                try await site.verify(.signature(hash), timestamp, bearer: bearer, authToken: "cnAgMSs6MDA=") == invalid
            )
            site.clock.advance(598)
            #expect(try await site.verify(.signature(hash), timestamp, bearer: bearer) == (200, "ValidSignature", true))
            site.clock.advance(4)
            #expect(try await site.verify(.signature(hash), timestamp, bearer: bearer) == invalid)
            #expect(site.server.questions.count == 1)
        }
    }

    @Test("A hash is the user's who asked for it, and no other user uses it up")
    func aHashIsOfItsUser() async throws {
        try await Site.run { (site: Site) async throws in
            let (alice, bob) = (try await site.bearer(), try await site.bearer(Site.bob))
            let (hash, timestamp, _) = try await site.document(alice)
            let mine = [String: String].signature(hash), bobs = [String: String].signature(hash, of: Site.bob, key: "b")
            #expect(try await site.verify(bobs, timestamp, bearer: bob).verdict == "InvalidSignature")
            #expect(try await site.verify(mine, timestamp, bearer: alice).verdict == "ValidSignature")
            #expect(try await site.document(bob).hash == hash)
            #expect(try await site.verify(bobs, timestamp, bearer: bob).verdict == "ValidSignature")
            #expect(site.server.questions.count == 2)
        }
    }

    @Test("A bearer token is needed, of the user that the signature names")
    func aTokenIsOfItsUser() async throws {
        try await Site.run { (site: Site) async throws in
            let bearer = try await site.bearer()
            let (hash, timestamp, _) = try await site.document(bearer)
            for token in [nil, "", "wrong", bearer + "x", "pr0vider-t0ken"] {
                #expect(try await site.verify(.signature(hash), timestamp, bearer: token).status == 401)
            }
            #expect(site.log.all.contains("request refused"))
            #expect(site.log.all.contains("The access token is missing, unknown or over"))
            #expect(try await site.verify(.signature(hash, of: Site.bob), timestamp, bearer: bearer).status == 403)
            // The same text for Swift, and another user.
            let composed = try await site.bearer("am\u{e9}lie")
            let decomposed = [String: String].signature(hash, of: "ame\u{301}lie")
            #expect(try await site.verify(decomposed, timestamp, bearer: composed).status == 403)
            site.clock.advance(3601)
            #expect(try await site.verify(.signature(hash), timestamp, bearer: bearer).status == 401)
            #expect(site.server.questions.isEmpty)
        }
    }

    @Test("A user's first key is the only one, also after a restart, until it is forgotten")
    func theFirstKeyIsTheOnlyOne() async throws {
        let directory = try TemporaryDirectory()
        @Sendable func verdict(_ site: Site, _ key: Character) async throws -> String? {
            let bearer = try await site.bearer()
            let (hash, timestamp, _) = try await site.document(bearer)
            return try await site.verify(.signature(hash, key: key), timestamp, bearer: bearer).verdict
        }
        try await Site.run(in: directory) { (site: Site) async throws in
            // A signature that is not valid binds nothing.
            site.server.tell { $0.verify = { _, _ in (401, "{}") } }
            #expect(try await verdict(site, "c") == "BadPin")
            site.server.tell { $0.verify = nil }
            #expect(try await verdict(site, "a") == "ValidSignature")
            #expect(try await verdict(site, "b") == "InvalidSignature")
            #expect(site.server.questions.count == 2)
        }
        try await Site.run(in: directory) { (site: Site) async throws in
            #expect(try await verdict(site, "b") == "InvalidSignature")
            #expect(try await verdict(site, "a") == "ValidSignature")
            #expect(try BoundKeys(directory: directory.path).forget(Site.alice))
            #expect(try await verdict(site, "b") == "ValidSignature")
        }
    }

    @Test("Of two first keys at a time, one counts")
    func oneFirstKeyCounts() async throws {
        let directory = try TemporaryDirectory()
        let keys = try BoundKeys(directory: directory.path)
        let bound = try await withThrowingTaskGroup(of: Bool.self) { group in
            for index in 0..<20 { group.addTask { try keys.bind("key \(index)", to: "a/b\0c") } }
            return try await group.reduce(into: 0) { $0 += $1 ? 1 : 0 }
        }
        #expect(bound == 1)
        #expect(try FileManager.default.contentsOfDirectory(atPath: keys.directory).count == 1)
        // A damaged record lets no other key in.
        let name = try #require(try FileManager.default.contentsOfDirectory(atPath: keys.directory).first)
        try Data("{}".utf8).write(to: URL(filePath: "\(keys.directory)/\(name)"))
        let error = #expect(throws: ProviderError.self) { try keys.key(of: "a/b\0c") }
        #expect(error?.message.contains("relying-party forget-user --config FILE ") == true)
    }

    @Test("Only RS256 by the named key of the verifier is a receipt", arguments: TokenMaker.Signature.allCases)
    func onlyRS256IsAReceipt(signature: TokenMaker.Signature) async throws {
        try await Site.run { (site: Site) async throws in
            let bearer = try await site.bearer()
            let (hash, timestamp, _) = try await site.document(bearer)
            site.server.tell { $0.receiptSignature = signature }
            let verdict = try await site.verify(.signature(hash), timestamp, bearer: bearer).verdict
            #expect(verdict == (signature == .right ? "ValidSignature" : "InvalidSignature"))
        }
    }

    static let receipts: [(String, @Sendable (inout TokenMaker.Claims) -> Void)] = [
        ("iss", { $0["iss"] = "https://localhost" }), ("no iss", { $0["iss"] = nil }),
        ("aud", { $0["aud"] = "another" }), ("no aud", { $0["aud"] = nil }),
        ("auds", { $0["aud"] = [ScriptedServer.clientID, "another"] }),
        ("hash", { $0["hash"] = String(repeating: "0", count: 64) }), ("no hash", { $0["hash"] = nil }),
        ("mpinId", { $0["mpinId"] = "00" }), ("no mpinId", { $0["mpinId"] = nil }),
        ("publicKey", { $0["publicKey"] = "00" }), ("no publicKey", { $0["publicKey"] = nil }),
        ("timestamp", { $0["timestamp"] = ($0["timestamp"] as? Int ?? 0) - 1 }),
        ("no timestamp", { $0["timestamp"] = nil }),
        ("cAt", { $0["cAt"] = ($0["timestamp"] as? Int ?? 0) - 1 }), ("no cAt", { $0["cAt"] = nil }),
        ("exp", { $0["exp"] = ($0["iat"] as? Int ?? 0) }), ("no exp", { $0["exp"] = nil }),
    ]

    @Test("A receipt with a wrong claim is none", arguments: receipts.map(\.0))
    func aReceiptIsOfTheSignature(name: String) async throws {
        try await Site.run { (site: Site) async throws in
            let bearer = try await site.bearer()
            let (hash, timestamp, _) = try await site.document(bearer)
            let change = try #require(Self.receipts.first { $0.0 == name }).1
            site.server.tell { $0.receipt = change }
            #expect(
                try await site.verify(.signature(hash), timestamp, bearer: bearer) == (200, "InvalidSignature", false))
            #expect(try BoundKeys(directory: site.directory.path).key(of: Site.alice) == nil)
            #expect(site.log.all.contains("receipt refused"))
        }
    }

    @Test func theVerifiersURLMayEndWithASlash() async throws {
        try await Site.run(configure: { $0.authority += "/" }) { (site: Site) async throws in
            let bearer = try await site.bearer()
            let (hash, timestamp, _) = try await site.document(bearer)
            #expect(try await site.verify(.signature(hash), timestamp, bearer: bearer) == (200, "ValidSignature", true))
        }
    }

    @Test("No change of one bit of the verification data is a valid signature")
    func noBitMayChange() async throws {
        try await Site.run { (site: Site) async throws in
            let bearer = try await site.bearer()
            let (hash, timestamp, _) = try await site.document(bearer)
            let signature = try JSONDecoder().decode(
                SignatureObject.self, from: JSONEncoder().encode([String: String].signature(hash)))
            // The scripted verifier knows the right signature.
            site.server.tell {
                $0.verify = { question, server in
                    question.signature == signature && question.timestamp == timestamp
                        ? (200, try server.receipt(for: question)) : (401, "{}")
                }
            }
            let question =
                #"{"verificationData":\#(String(decoding: try JSONEncoder().encode(signature), as: UTF8.self)),"timestamp":\#(timestamp)}"#
            let bytes = Array(question.utf8)
            let first = try await site.send("/verify-signature", Data(bytes), bearer: bearer).json
            #expect(first["verified"] as? Bool == true)
            var valid = 0
            // What is in u and v the verifier alone can tell: of their inside, some digits are enough here.
            let inside = [signature.u, signature.v].compactMap { question.range(of: $0) }.map {
                range in
                let start = question.utf8.distance(from: question.startIndex, to: range.lowerBound)
                return (start + 8)..<(start + 186)
            }
            for bit in 0..<(bytes.count * 8) {
                guard bit / 8 % 9 == 0 || !inside.contains(where: { $0.contains(bit / 8) }) else { continue }
                var changed = bytes
                changed[bit / 8] ^= 1 << (bit % 8)
                let (status, json) = try await site.send("/verify-signature", Data(changed), bearer: bearer)
                #expect([200, 400, 403].contains(status), "\(bit): \(status)")
                guard json["verified"] as? Bool == true else { continue }
                valid += 1
                // The other case of a digit, or of mpinId's I, and nothing else.
                #expect(changed[bit / 8] ^ bytes[bit / 8] == 0x20, "\(bit)")
            }
            #expect(valid > 0)
        }
    }

    @Test("What is malformed is 400, and reaches no verifier")
    func whatIsMalformedIsRefused() async throws {
        try await Site.run { (site: Site) async throws in
            let bearer = try await site.bearer()
            let (hash, timestamp, _) = try await site.document(bearer)
            let right = [String: String].signature(hash)
            for name in right.keys {
                for value in [nil, "", "0", "zz", (right[name] ?? "") + "00"] {
                    let (status, verdict, _) = try await site.verify(right.with(name, value), timestamp, bearer: bearer)
                    #expect(status == 400 && verdict == nil, "\(name) \(value ?? "nil")")
                }
            }
            let identities = ["{}", "[]", "a", #"{"userID":1}"#]
            for identity in identities {
                let changed = right.with("mpinId", DisplayText.hexadecimal(identity.utf8))
                #expect(try await site.verify(changed, timestamp, bearer: bearer).status == 400)
            }
            let issuers = right.with("dtas", Data(#"["dta1"]"#.utf8).base64EncodedString())
            #expect(try await site.verify(issuers, timestamp, bearer: bearer).status == 400)
            for body in ["", "{}", #"{"verificationData":{},"timestamp":1}"#, #"{"timestamp":1.5}"#, "nul"] {
                #expect(try await site.send("/verify-signature", Data(body.utf8), bearer: bearer).status == 400)
            }
            #expect(site.server.questions.isEmpty)
        }
    }
}
