import CertificateProviding
import Crypto
import Foundation
import Signing
import SigningRequests
import TestSupport
import Testing
import X509

/// The caller's side: replies as a signer gives them, and with each mistake.
@Suite struct SigningReplyTests {
    private static let authority = Result { try TestAuthority() }
    private let authority: TestAuthority
    private let challenge = (0..<64).map { UInt8(truncatingIfNeeded: $0 &* 71) }

    init() throws { authority = try Self.authority.get() }

    /// The mistakes, in the order in which they are found.
    enum Mistake: Int, CaseIterable, Sendable {
        case url, host, message, certificate, key, signature

        var code: ResponseCode {
            switch self {
            case .url: .parseURLError
            case .host: .wrongOperationType
            case .message: .wrongUserCode
            case .certificate: .certificateParseError
            case .key: .publicKeyCopyError
            case .signature: .signatureVerificationError
            }
        }
    }

    private static let pairs = Mistake.allCases.flatMap { one in
        Mistake.allCases.filter { $0.rawValue >= one.rawValue }.map { Set([one, $0]) }
    }

    private func url(_ operation: SigningOperation, _ items: [RequestURL.Item], _ mistakes: Set<Mistake>) -> [UInt8] {
        var url = RequestURL(scheme: "bank", host: operation.rawValue, items: [.init("status", "success")] + items)
        if mistakes.contains(.host) { url.host = operation == .signPDF ? "sign-challenge" : "sign-pdf" }
        if mistakes.contains(.message) {
            url.items = [.init("status", "error"), .init("message", "wrong-user-code")] + items
        }
        return Array((url.text + (mistakes.contains(.url) ? "%" : "")).utf8)
    }

    private func error(
        _ reply: [UInt8], to operation: SigningOperation, of data: [UInt8], anchors: [X509Certificate]? = nil
    ) async -> ProviderError? {
        await failure { try await SigningReply(reply, to: operation, of: data, anchors: anchors) }
    }

    // MARK: - Challenges

    private func challengeReply(_ mistakes: Set<Mistake> = [], by signer: Identity? = nil) async throws -> [UInt8] {
        let identity =
            if let signer { signer } else {
                try authority.issue("signer", kind: mistakes.contains(.key) ? .p384 : .p256)
            }
        let scheme = try #require(identity.key.signatureSchemes.first)
        var signature = try await identity.key.signature(for: challenge, using: scheme)
        if mistakes.contains(.signature) { signature[signature.count - 1] ^= 1 }
        var certificate = identity.certificate.derRepresentation
        if mistakes.contains(.certificate) { certificate.removeLast() }
        let items: [RequestURL.Item] = [
            .init("signature", signature.base64), .init("certificate", certificate.base64),
        ]
        return url(.signChallenge, items, mistakes)
    }

    @Test("The signature of a challenge is verified, and its certificate by the anchors")
    func validChallenge() async throws {
        let identity = try authority.issue("signer")
        let reply = try await challengeReply(by: identity)
        let plain = try await SigningReply(reply, to: .signChallenge, of: challenge)
        #expect(plain.certificate == identity.certificate && plain.chain == nil)
        #expect(identity.key.publicKey.isValidSignature(plain.data, for: challenge, using: .ecdsaP256SHA256))
        // The reply has no intermediates: they are anchors.
        let trusted = try await SigningReply(
            reply, to: .signChallenge, of: challenge, anchors: [authority.root, authority.intermediate])
        #expect(trusted.chain?.first == identity.certificate && trusted.chain?.last != identity.certificate)
        for anchors in [[], [authority.root], [try TestAuthority("Other").intermediate]] {
            let error = await error(reply, to: .signChallenge, of: challenge, anchors: anchors)
            #expect(error?.reason?.rawValue == "signature-verification-error" && error?.code == .keyMismatch)
        }
        let late = await failure {
            try await SigningReply(
                reply, to: .signChallenge, of: challenge, anchors: [authority.intermediate], at: Date() + 1_000_000)
        }
        #expect(late?.message.contains("expired") == true, "\(String(describing: late))")
        let other = await error(reply, to: .signChallenge, of: challenge + [0])
        #expect(other?.reason?.rawValue == "signature-verification-error")
    }

    @Test("Of two mistakes in the reply to a challenge, the earlier one is named", arguments: pairs)
    func challengeMistakes(_ mistakes: Set<Mistake>) async throws {
        let first = try #require(mistakes.min { $0.rawValue < $1.rawValue })
        let error = await error(try await challengeReply(mistakes), to: .signChallenge, of: challenge)
        #expect(error?.reason?.rawValue == first.code.rawValue, "\(String(describing: error))")
        #expect(error?.message.hasPrefix("\(first.code): ") == true)
        // The caller's own host is another one's: that is not the caller's command line.
        #expect(error?.code == (first == .host ? .malformedData : first.code.errorCode))
    }

    @Test(
        "The certificate of a challenge's signature permits digitalSignature, and is valid",
        arguments: [
            (nil, 86_400.0, true), (KeyUsage(digitalSignature: true), 86_400, true),
            (KeyUsage(nonRepudiation: true), 86_400, false),
            (KeyUsage(keyCertSign: true, cRLSign: true), 86_400, false), (nil, -60, false),
        ] as [(KeyUsage?, Double, Bool)])
    func certificatesThatMaySign(usage: KeyUsage?, lifetime: Double, isAccepted: Bool) async throws {
        let key = P256.Signing.PrivateKey()
        let certificate = try TestParty("signer", key: .init(key)).certify(
            isAuthority: false, lifetime: lifetime, usage.map { [try Certificate.Extension($0, critical: true)] } ?? [])
        let items: [RequestURL.Item] = [
            .init("signature", Array(try key.signature(for: challenge).derRepresentation).base64),
            .init("certificate", certificate.derRepresentation.base64),
        ]
        let error = await error(url(.signChallenge, items, []), to: .signChallenge, of: challenge)
        #expect((error == nil) == isAccepted, "\(String(describing: error))")
        #expect(isAccepted || error?.reason?.rawValue == "signature-verification-error")
        #expect(isAccepted || error?.message.contains("cannot sign") == true)
    }

    @Test("A reply that lacks something, or has it in another form, is not accepted")
    func otherForms() async throws {
        let identity = try authority.issue("signer")
        let reply = try #require(RequestURL(try await challengeReply(by: identity)))
        func code(_ change: (inout RequestURL) -> Void) async -> String? {
            var changed = reply
            change(&changed)
            return await error(Array(changed.text.utf8), to: .signChallenge, of: challenge)?.reason?.rawValue
        }
        #expect(await code { _ in } == nil)
        #expect(await code { $0.items.removeAll { $0.name == "signature" } } == "signature-verification-error")
        #expect(await code { $0.items.removeAll { $0.name == "certificate" } } == "certificate-parse-error")
        #expect(await code { $0.items.removeAll { $0.name == "status" } } == "parse-url-error")
        #expect(await code { $0.items[0].value = "failure" } == "parse-url-error")
        #expect(await code { $0.items = [.init("status", "error")] } == "parse-url-error")
        #expect(await code { $0.items[1].value += "=" } == "signature-verification-error")
        #expect(await code { $0.items[2].value = String($0.items[2].value.dropLast(4)) } == "certificate-parse-error")
        // A point that is not on the curve.
        let certificate = identity.certificate.derRepresentation
        let point = identity.key.publicKey.keyBits
        let place = try #require(certificate.indices.first { certificate[$0...].starts(with: point) })
        var broken = certificate
        broken[place + 40] ^= 1
        #expect(await code { $0.items[2].value = broken.base64 } == "public-key-copy-error")
        for reply in ["", "\n", "\r\n"] {
            let error = await error(Array(reply.utf8), to: .signChallenge, of: challenge)
            #expect(error?.reason?.rawValue == "empty-response" && error?.code == .unavailable)
        }
    }

    @Test("A code of another signer is shown without its control characters, and not at any length")
    func foreignWord() async throws {
        let code = "\u{1b}[2Jgone" + String(repeating: "x", count: 1000)
        let reply = RequestURL(
            scheme: "bank", host: "sign-pdf", items: [.init("status", "error"), .init("message", code)])
        let error = try #require(await error(Array(reply.text.utf8), to: .signPDF, of: [1]))
        #expect(error.code == .rejected && error.message.hasPrefix("\\1b[2Jgone") && error.message.count < 300)
        #expect(error.reason?.rawValue.utf8.contains(0x1b) == false)
    }

    // MARK: - Documents

    private func documentReply(_ document: [UInt8], _ mistakes: Set<Mistake> = []) -> [UInt8] {
        url(.signPDF, [.init("document", document.base64)], mistakes)
    }

    @Test(
        "A signed document is verified: what this project signs",
        arguments: [TestAuthority.KeyKind.p256, .p384, .rsa2048])
    func validDocument(kind: TestAuthority.KeyKind) async throws {
        let identity = try authority.issue("signer", kind: kind)
        let signed = try await Signer(identity).signedPDF(of: TestPDF.bytes)
        // The intermediate is in the signature.
        let reply = try await SigningReply(
            documentReply(signed), to: .signPDF, of: TestPDF.bytes, anchors: [authority.root])
        #expect(reply.data == signed && reply.certificate == identity.certificate)
        #expect(reply.chain == identity.certificateChain + [authority.root])
        // Signed twice: the last signature is the reply's.
        let twice = try await Signer(authority.issue("second")).signedPDF(of: signed)
        let second = try await SigningReply(documentReply(twice), to: .signPDF, of: signed, anchors: [authority.root])
        #expect(second.certificate.subject.contains("second"))
        for (document, sent) in [
            (signed, signed), (TestPDF.bytes, TestPDF.bytes), (signed, TestPDF.bytes + [0x20]),
            (signed + [0x0a], TestPDF.bytes), (Array(signed.dropLast()), TestPDF.bytes),
            (twice, [UInt8]("%PDF-1.6".utf8)),
        ] {
            let error = await error(documentReply(document), to: .signPDF, of: sent)
            #expect(error?.reason?.rawValue == "signature-verification-error", "\(document.count) \(sent.count)")
        }
        // One byte, wherever it is outside the value of /Contents.
        let start = try #require(signed.indices.last { signed[$0...].starts(with: "/Contents <".utf8) }) + 11
        let end = try #require(signed[start...].firstIndex(of: UInt8(ascii: ">")))
        for place in stride(from: 20, to: signed.count, by: 97) where !(start..<end).contains(place) {
            var changed = signed
            changed[place] ^= 1
            let error = await error(documentReply(changed), to: .signPDF, of: TestPDF.bytes)
            #expect(error?.reason?.rawValue == "signature-verification-error", "\(place)")
        }
    }

    /// A document with a signature by OpenSSL's command, as another program might write it.
    private struct Foreign {
        let folder: TemporaryDirectory

        init() throws { folder = try TemporaryDirectory() }

        func sign(
            _ options: [String] = [], key: [String] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
            range: (Int, Int, Int) -> String = { "[0 \($0) \($1) \($2)]" },
            name: String = "/Contents", text: (String) -> String = { $0 }
        ) throws -> [UInt8] {
            try Subprocess.run(
                ["openssl", "req", "-x509", "-noenc", "-subj", "/CN=Foreign", "-keyout", "key", "-out", "certificate"]
                    + key,
                in: folder.path)
            let (document, room) = (TestPDF.bytes, 8192)
            // An update with a field (4) and its value (5).
            let catalog = "1 0 obj\n<</Type/Catalog/Pages 2 0 R/AcroForm<</Fields[4 0 R]/SigFlags 3>>>>\nendobj\n"
            let field = "4 0 obj\n<</FT/Sig/T(S)/V 5 0 R>>\nendobj\n"
            let head = catalog + field + "5 0 obj\n<</Type/Sig/SubFilter/adbe.pkcs7.detached \(name) "
            let start = document.count + head.utf8.count
            func entry(_ offset: Int) -> String {
                String(repeating: "0", count: 10 - "\(offset)".count) + "\(offset) 00000 n \n"
            }
            let offsets = [0, catalog.utf8.count, (catalog + field).utf8.count].map { entry(document.count + $0) }
            var (tail, length) = ("", 0)
            for _ in 0..<3 {
                let end = " /ByteRange \(range(start, start + room, length)) >>\nendobj\n"
                tail =
                    end + "xref\n1 1\n\(offsets[0])4 2\n\(offsets[1])\(offsets[2])"
                    + "trailer\n<</Size 6/Root 1 0 R/Prev 170>>\nstartxref\n\(start + room + end.utf8.count)\n%%EOF\n"
                length = tail.utf8.count
            }
            try folder.write(document + Array((head + tail).utf8), to: "content")
            try Subprocess.run(
                [
                    "openssl", "cms", "-sign", "-binary", "-in", "content", "-signer", "certificate", "-inkey", "key",
                    "-outform",
                    "DER", "-out", "signature",
                ] + options, in: folder.path)
            let signature = text(try folder.read("signature").hexEncoded)
            let zeros = String(repeating: "0", count: max(0, room - 2 - signature.utf8.count))
            return document + Array((head + "<" + signature + zeros + ">" + tail).utf8)
        }
    }

    private static let secp256k1 = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:secp256k1"]

    @Test("Of two mistakes in the reply with a document, the earlier one is named", arguments: pairs)
    func documentMistakes(_ mistakes: Set<Mistake>) async throws {
        let first = try #require(mistakes.min { $0.rawValue < $1.rawValue })
        let foreign = try Foreign()
        var document = mistakes.contains(.key) ? try foreign.sign(key: Self.secp256k1) : try foreign.sign()
        if mistakes.contains(.certificate) { document = try foreign.sign(["-nocerts"]) }
        // Another document is sent: not in front of the signature, so that it is found.
        let sent = mistakes.contains(.signature) ? TestPDF.bytes.dropLast(5) + [0x20] : TestPDF.bytes
        let error = await error(documentReply(document, mistakes), to: .signPDF, of: Array(sent))
        #expect(error?.reason?.rawValue == first.code.rawValue, "\(String(describing: error))")
    }

    private static let badRanges: [@Sendable (Int, Int, Int) -> String] = [
        { "[0 \($0) \($1) \($2 - 1)]" }, { "[0 \($0) \($1) \($2 + 1)]" }, { "[1 \($0) \($1) \($2)]" },
        { "[0 \($0 - 1) \($1) \($2)]" }, { "[0 \($0 + 1) \($1) \($2)]" },
        { first, second, _ in "[0 \(first) \(second)]" },
        { "[0 \($0) \($1) \($2) 1]" }, { "[0 \($0) \($1) \($2)" }, { "[0 -\($0) \($1) \($2)]" },
        { first, second, _ in "[0 \(first) \(second) 99999999999999999999]" }, { "0 \($0) \($1) \($2)" },
        { "[0 \($1) \($0) \($2)]" },
    ]

    @Test("A signature of another program is verified, and one that does not cover the file is not")
    func foreignDocument() async throws {
        let foreign = try Foreign()
        func code(_ document: [UInt8]) async -> String? {
            await error(documentReply(document), to: .signPDF, of: TestPDF.bytes)?.reason?.rawValue
        }
        #expect(await code(try foreign.sign()) == nil)
        #expect(await code(try foreign.sign(name: "/Contents \r\n")) == nil)
        #expect(await code(try foreign.sign(text: { $0.uppercased() })) == nil)
        #expect(await code(try foreign.sign(range: { "\n[ 0 \($0)\n\($1) \($2)  ]" })) == nil)
        #expect(await code(try foreign.sign(["-cades"])) == nil)
        let bad = "signature-verification-error"
        for range in Self.badRanges { #expect(await code(try foreign.sign(range: range)) == bad) }
        #expect(await code(try foreign.sign(name: "/Content")) == bad)
        #expect(await code(try foreign.sign(text: { $0 + "01" })) == bad)
        #expect(await code(try foreign.sign(text: { String($0.dropLast()) + "x" })) == bad)
        #expect(await code(try foreign.sign(text: { _ in "" })) == bad)
        // The sent bytes are not a document: they end where the value begins, in front of it, and behind it.
        let whole = try foreign.sign()
        let gap = try #require(whole.lastIndex(of: UInt8(ascii: "<")))
        for count in [gap, whole.count - 1, whole.count, 0, gap + 1] + Array(gap - 12..<gap) {
            let code = await error(documentReply(whole), to: .signPDF, of: Array(whole[..<count]))?.reason?.rawValue
            #expect(code == bad, "\(count - gap)")
        }
        // By a digest that can be forged; with content of its own; without attributes, which a raw signature would do for.
        #expect(await code(try foreign.sign(["-md", "sha1"])) == bad)
        #expect(await code(try foreign.sign(["-nodetach"])) == bad)
        #expect(await code(try foreign.sign(["-noattr"])) == bad)
    }

    @Test(
        "The certificate of a document's signature permits digitalSignature or nonRepudiation",
        arguments: [
            ("digitalSignature", true), ("nonRepudiation", true), ("keyAgreement", false),
            ("keyCertSign,cRLSign", false),
        ])
    func documentsByCertificatesThatMaySign(usage: String, isAccepted: Bool) async throws {
        let document = try Foreign().sign(
            key: ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-addext", "keyUsage=critical,\(usage)"])
        let error = await error(documentReply(document), to: .signPDF, of: TestPDF.bytes)
        #expect((error == nil) == isAccepted, "\(String(describing: error))")
        #expect(
            isAccepted
                || error?.reason?.rawValue == "signature-verification-error"
                    && error?.message.contains("cannot sign") == true
        )
    }

    @Test("A certificate that the signature does not name is not its signer's, though it has the same key")
    func substitutedCertificate() async throws {
        let foreign = try Foreign()
        let document = try foreign.sign(["-cades"])
        func der(_ name: String) throws -> String {
            try #require(try CertificateFile.read(foreign.folder[name]).first).derRepresentation.hexEncoded
        }
        let old = try der("certificate")
        var new = ""
        // Of one length, or the message would be another one.
        while new.count != old.count {
            try Subprocess.run(
                ["openssl", "x509", "-in", "certificate", "-signkey", "key", "-days", "77", "-out", "other"],
                in: foreign.folder.path)
            new = try der("other")
        }
        let changed = Array(String(decoding: document, as: UTF8.self).replacing(old, with: new).utf8)
        #expect(changed != document && changed.count == document.count)
        let error = await error(documentReply(changed), to: .signPDF, of: TestPDF.bytes)
        #expect(error?.reason?.rawValue == "signature-verification-error")
    }
}

/// Damaged replies, the same ones in every run.
@Suite struct ReplyFuzzTests {
    @Test("A damaged reply is verified or refused with a code")
    func replies() async throws {
        let identity = try TestAuthority().issue("signer")
        let signed = try await Signer(identity).signedPDF(of: TestPDF.bytes)
        let challenge = [UInt8](repeating: 7, count: 32)
        let signature = try await identity.key.signature(for: challenge, using: .ecdsaP256SHA256)
        let codes = Set(
            [
                ResponseCode.emptyResponse, .parseURLError, .wrongOperationType, .certificateParseError,
                .publicKeyCopyError, .signatureVerificationError,
            ].map(\.rawValue))
        // The data itself, since most changes of its base64 end there.
        var (documents, certificates) = (
            Mutator(seeds: [signed], seed: 4), Mutator(seeds: [identity.certificate.derRepresentation], seed: 5)
        )
        var texts = Mutator(
            seeds: ["bank://sign-pdf?status=success&document=" + signed.base64].map { Array($0.utf8) }, seed: 6)
        var rounds = FuzzRounds(atLeast: 3000)
        while rounds.next() {
            let document = documents.next()
            let replies: [(SigningOperation, [UInt8])] = [
                (.signPDF, Array("a://sign-pdf?status=success&document=\(document.base64)".utf8)),
                (.signPDF, texts.next()),
                (
                    .signChallenge,
                    Array(
                        "a://sign-challenge?status=success&signature=\(signature.base64)&certificate=\(certificates.next().base64)"
                            .utf8)
                ),
            ]
            for (operation, reply) in replies {
                let data = operation == .signPDF ? TestPDF.bytes : challenge
                let error = await failure { try await SigningReply(reply, to: operation, of: data) }
                if let error { #expect(codes.contains(error.reason?.rawValue ?? ""), "\(error)") }
            }
        }
    }
}
