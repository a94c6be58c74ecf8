import CertificateProviding
import Crypto
import Foundation
import Signing
import SigningRequests
import SwiftASN1
import Synchronization
import TestSupport
import Testing

/// Each forgery is first shown to be valid where it counts, by a verifier that is not ours, and then refused. CertificateTLSTests take
/// those of TLS from real handshakes.
@Suite struct ChallengeFilterTests {
    private static let authority = Result { try TestAuthority() }
    private let authority: TestAuthority
    private let raw: RawSigner
    private let folder: TemporaryDirectory

    init() throws {
        authority = try Self.authority.get()
        raw = try RawSigner(authority)
        folder = try TemporaryDirectory()
    }

    private func expectRefused(
        _ challenge: [UInt8], as text: String, _ sourceLocation: SourceLocation = #_sourceLocation
    ) {
        #expect(challenge.count <= SigningRequest.maximumChallenge, sourceLocation: sourceLocation)
        #expect(
            ChallengeFilter.refusal(of: challenge)?.contains(text) == true, "\(challenge.prefix(64))",
            sourceLocation: sourceLocation)
    }

    @discardableResult
    private func openssl(_ arguments: String...) throws -> String {
        let output = try Subprocess(["openssl"] + arguments, in: folder.path, .captured()).wait()
        guard output.status == 0 else { throw Subprocess.Failure(description: "\(arguments): \(output)") }
        return output.stdout + output.stderr
    }

    /// An identity whose key shows what it signs.
    private func watched() throws -> (identity: Identity, messages: Messages) {
        let messages = Messages()
        let identity = try raw.identity.with(
            TestKey(raw.identity.key) { [raw] message, _ throws(ProviderError) in
                messages.add(message)
                return try await raw.identity.key.signature(for: message, using: .ecdsaP256SHA256)
            })
        return (identity, messages)
    }

    private final class Messages: Sendable {
        private let all = Mutex<[[UInt8]]>([])
        func add(_ message: [UInt8]) { all.withLock { $0.append(message) } }
        var only: [UInt8] { all.withLock { $0.count == 1 ? $0[0] : [] } }
    }

    @Test("A signature over the signed attributes of CMS, and it is a CMS signature")
    func signedAttributes() async throws {
        let (identity, messages) = try watched()
        let content = Array("I owe you".utf8)
        try folder.write(try await Signer(identity).detachedCMS(of: SigningContent(content)), to: "message")
        try folder.write(content, to: "content")
        try folder.write(authority.root.pemRepresentation.utf8, to: "ca.pem")
        try openssl(
            "cms", "-verify", "-cades", "-binary", "-inform", "DER", "-in", "message", "-content", "content", "-CAfile",
            "ca.pem", "-purpose", "any", "-out", "/dev/null")
        #expect(messages.only.first == 0x31)
        expectRefused(messages.only, as: "DER")
    }

    @Test("A signature over the signed attributes of a PDF, and it is a signed PDF")
    func signedDocument() async throws {
        let (identity, messages) = try watched()
        let path = try folder.write(try await Signer(identity).signedPDF(of: TestPDF.bytes), to: "signed.pdf")
        try Subprocess.run(
            ["sh", "-c", "mkdir nss && certutil -d sql:nss -N --empty-password"], in: folder.path)
        let verdict = try Subprocess.run(["pdfsig", "-nssdir", "nss", path], in: folder.path)
        #expect(String(decoding: verdict, as: UTF8.self).contains("Signature is Valid"))
        expectRefused(messages.only, as: "DER")
    }

    @Test(
        "A signature over a PDF without its /Contents, and it is a signed PDF: CMS without signed attributes",
        arguments: ["%PDF-1.7\n", "%!\n", "%" + String(repeating: "x", count: 1024) + "\n%PDF-1.7\n"])
    func documentWithoutAttributes(header: String) async throws {
        let room = 4096
        let objects = [
            "<< /Type /Catalog /Pages 2 0 R /AcroForm << /Fields [5 0 R] /SigFlags 3 >> >>",
            "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 300] /Annots [5 0 R] >>",
            "<< /Type /Sig /Filter /Adobe.PPKLite /SubFilter /adbe.pkcs7.detached /ByteRange [0 AAAA BBBB CCCC] /Contents |>>",
            "<< /Type /Annot /Subtype /Widget /FT /Sig /T (S) /V 4 0 R /Rect [0 0 0 0] /F 132 /P 3 0 R >>",
        ]
        var text = header
        var table = "xref\n0 6\n0000000000 65535 f \n"
        for (index, object) in objects.enumerated() {
            // The value of /Contents stands before the fifth object.
            let offset = String(text.utf8.count + (index == 4 ? room + 1 : 0))
            table += String(repeating: "0", count: 10 - offset.count) + offset + " 00000 n \n"
            text += "\(index + 1) 0 obj\n\(object)\nendobj\n"
        }
        let start = text.utf8.count + room + 1
        text += table + "trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n\(start)\n%%EOF\n"
        let parts = text.split(separator: "|", maxSplits: 1).map(String.init)
        let gap = parts[0].utf8.count
        let numbers = [("AAAA", gap), ("BBBB", gap + room + 2), ("CCCC", parts[1].utf8.count)]
        let (head, tail) = (
            numbers.reduce(parts[0]) { text, number in
                text.replacing(
                    number.0, with: String(number.1) + String(repeating: " ", count: 4 - String(number.1).count))
            }, parts[1]
        )
        let challenge = Array((head + tail).utf8)
        try makeCertificates()
        try folder.write(challenge, to: "challenge")
        try openssl(
            "cms", "-sign", "-binary", "-noattr", "-in", "challenge", "-signer", "root.pem", "-inkey", "key.pem",
            "-outform",
            "DER", "-out", "signature")
        let signature = try folder.read("signature").hexEncoded
        let value = "<" + signature + String(repeating: "0", count: room - signature.utf8.count) + ">"
        let path = try folder.write((head + value + tail).utf8, to: "signed.pdf")
        try Subprocess.run(
            ["sh", "-c", "mkdir nss && certutil -d sql:nss -N --empty-password"], in: folder.path)
        let verdict = String(
            decoding: try Subprocess.run(["pdfsig", "-nssdir", "nss", path], in: folder.path), as: UTF8.self)
        #expect(verdict.contains("Signature is Valid") && verdict.contains("Total document signed"), "\(verdict)")
        expectRefused(challenge, as: "PDF")
        expectRefused([UInt8](repeating: 0x20, count: 60) + challenge, as: "PDF")
        for part in [
            "%PDF-", "/ByteRange", "/Byte#52ange", "/#42#79teRange", "\nstartxref\n", "12 0 obj", "1\r0\n obj",
        ] {
            expectRefused([UInt8](repeating: 0xa5, count: 2000) + part.utf8 + [0xa5], as: "PDF")
        }
    }

    @Test("A signature over mail, and it is signed mail: CMS without signed attributes")
    func mail() async throws {
        try makeCertificates()
        let content = "Content-Type: text/plain\r\n\r\nI owe you\r\n"
        try folder.write(content.utf8, to: "content")
        try openssl(
            "cms", "-sign", "-binary", "-noattr", "-in", "content", "-signer", "root.pem", "-inkey", "key.pem",
            "-outform", "DER", "-out", "signature")
        let signature = Data(try folder.read("signature")).base64EncodedString(options: .lineLength64Characters)
        let type = "multipart/signed; protocol=\"application/pkcs7-signature\"; micalg=sha-256; boundary=\"bound\""
        let message =
            "MIME-Version: 1.0\r\nContent-Type: \(type)\r\n\r\n--bound\r\n\(content)\r\n--bound\r\n"
            + "Content-Type: application/pkcs7-signature\r\nContent-Transfer-Encoding: base64\r\n\r\n"
            + "\(signature)\r\n--bound--\r\n"
        try folder.write(message.utf8, to: "message")
        try openssl(
            "cms", "-verify", "-in", "message", "-CAfile", "root.pem", "-purpose", "any", "-out", "verified")
        #expect(try folder.read("verified") == Array(content.utf8))
        expectRefused(Array(content.utf8), as: "mail")
        expectRefused(Array("Subject: x\r\ncontent-type: text/html\r\n\r\n".utf8), as: "mail")
    }

    /// A root of the raw key, `root.pem`, and a certificate below it, `leaf.der`.
    private func makeCertificates() throws {
        try raw.writeKey(to: folder, "key.der")
        try openssl("pkey", "-inform", "DER", "-in", "key.der", "-out", "key.pem")
        try openssl("req", "-x509", "-new", "-key", "key.pem", "-subj", "/CN=Root", "-days", "2", "-out", "root.pem")
        try openssl(
            "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-keyout", "leaf.key",
            "-subj",
            "/CN=Mallory", "-out", "leaf.csr")
        for form in ["DER", "PEM"] {
            try openssl(
                "x509", "-req", "-in", "leaf.csr", "-CA", "root.pem", "-CAkey", "key.pem", "-set_serial", "7", "-days",
                "1", "-outform", form, "-out", "leaf.\(form.lowercased())")
        }
    }

    @Test("A signature over a TBSCertificate, in DER and in BER, and it is a certificate")
    func certificate() async throws {
        try makeCertificates()
        let leaf = try folder.read("leaf.der")
        let content = try DERText.content(try DERText.elements(leaf)[0])
        let length = bigEndian(content.count, 2)
        let forms: [[UInt8]] = [
            [0x30, 0x82] + length + content,
            // The indefinite form, a length with more bytes than it needs, and a tag in the form of higher ones.
            [0x30, 0x80] + content + [0, 0], [0x30, 0x85, 0, 0, 0] + length + content,
            [0x3f, 0x10, 0x82] + length + content,
        ]
        for form in forms {
            let forged = try await raw.resign(leaf, content: form)
            try folder.write(forged.structure, to: "forged.der")
            // It keeps the bytes that it has read, and verifies these.
            #expect(try openssl("verify", "-CAfile", "root.pem", "forged.der").contains("OK"))
            expectRefused(forged.content, as: "DER")
        }
    }

    @Test("A signature over a CertificationRequestInfo, and it is a certificate request")
    func request() async throws {
        try makeCertificates()
        try openssl("req", "-new", "-key", "key.pem", "-subj", "/CN=x", "-outform", "DER", "-out", "request.der")
        let forged = try await raw.resign(try folder.read("request.der"))
        try folder.write(forged.structure, to: "forged.der")
        #expect(try openssl("req", "-verify", "-inform", "DER", "-in", "forged.der", "-noout").contains("OK"))
        expectRefused(forged.content, as: "DER")
    }

    @Test("A signature over a TBSCertList, and it is a revocation list")
    func revocationList() async throws {
        try makeCertificates()
        let root = try #require(try CertificateFile.read(folder["root.pem"]).first)
        let times = ["260101000000Z", "490101000000Z"].map { DERText.value(0x17, Array($0.utf8)) }
        let content = DERText.value(
            0x30, DERText.value(0x02, [1]), DERText.ecdsaWithSHA256, root.subjectDER, times[0], times[1])
        let forged = try await raw.resign(
            DERText.value(0x30, content, DERText.ecdsaWithSHA256, DERText.value(0x03, [0])))
        try folder.write(forged.structure, to: "forged.der")
        let verdict = try openssl("crl", "-inform", "DER", "-in", "forged.der", "-CAfile", "root.pem", "-noout")
        #expect(verdict.contains("verify OK"))
        expectRefused(content, as: "DER")
    }

    @Test("A signature over OCSP's ResponseData, and it is a response")
    func response() async throws {
        try makeCertificates()
        try folder.write("V\t490101000000Z\t\t07\tunknown\t/CN=Mallory\n".utf8, to: "index")
        try openssl("ocsp", "-issuer", "root.pem", "-cert", "leaf.pem", "-no_nonce", "-reqout", "request")
        try openssl(
            "ocsp", "-index", "index", "-CA", "root.pem", "-rsigner", "root.pem", "-rkey", "key.pem", "-reqin",
            "request",
            "-respout", "response")
        let parts = try DERText.elements(try folder.read("response"))
        let body = try DERText.elements(try DERText.content(parts[1]))
        let forged = try await raw.resign(try DERText.content(body[1]))
        let wrapped = DERText.value(0x30, body[0], DERText.value(0x04, forged.structure))
        try folder.write(DERText.value(0x30, parts[0], DERText.value(0xa0, wrapped)), to: "forged")
        let verdict = try openssl(
            "ocsp", "-respin", "forged", "-issuer", "root.pem", "-cert", "leaf.pem", "-CAfile", "root.pem", "-no_nonce")
        #expect(verdict.contains("Response verify OK") && verdict.contains("leaf.pem: good"))
        expectRefused(forged.content, as: "DER")
    }

    @Test("A signature over SSHSIG, and ssh-keygen verifies it")
    func sshSignature() async throws {
        let message = Array("I owe you\n".utf8)
        let fields = SSH.string("file") + SSH.string("") + SSH.string("sha512")
        let content = Array("SSHSIG".utf8) + fields + SSH.string(Array(SHA512.hash(data: message)))
        let key = SSH.publicKey(raw.identity.key.publicKey)
        let signature = try SSH.signature(try await raw.sign(content))
        let blob = Array("SSHSIG".utf8) + bigEndian(1, 4) + SSH.string(key) + fields + SSH.string(signature)
        let text = Data(blob).base64EncodedString(options: [.lineLength64Characters, .endLineWithLineFeed])
        try folder.write("-----BEGIN SSH SIGNATURE-----\n\(text)\n-----END SSH SIGNATURE-----\n".utf8, to: "signature")
        try folder.write("jean \(SSH.type) \(Data(key).base64EncodedString())\n".utf8, to: "signers")
        try Subprocess.run(
            ["ssh-keygen", "-Y", "verify", "-f", "signers", "-I", "jean", "-n", "file", "-s", "signature"],
            input: message, in: folder.path)
        expectRefused(content, as: "SSHSIG")
    }

    @Test("A signature over an SSH certificate, and ssh-keygen takes it for one")
    func sshCertificate() async throws {
        try raw.writeKey(to: folder, "key.der")
        try openssl("pkey", "-inform", "DER", "-in", "key.der", "-out", "key.pem")
        try Subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", "user"], in: folder.path)
        try Subprocess.run(["ssh-keygen", "-q", "-s", "key.pem", "-I", "x", "-n", "jean", "user.pub"], in: folder.path)
        let words = String(decoding: try folder.read("user-cert.pub"), as: UTF8.self).split(separator: " ")
        let certificate = Array(try #require(Data(base64Encoded: String(words[1]))))
        // Its last string is the signature; numbers stand between the others.
        var place = 0
        for size in [nil, nil, nil, nil, 8, 4, nil, nil, 8, 8, nil, nil, nil, nil] as [Int?] {
            place += size ?? 4 + certificate[place..<(place + 4)].reduce(0) { $0 << 8 | Int($1) }
        }
        let content = Array(certificate[..<place])
        var signature = try SSH.signature(try await raw.sign(content))
        func write() throws {
            let blob = Data(content + SSH.string(signature)).base64EncodedString()
            try folder.write("\(words[0]) \(blob) x\n".utf8, to: "forged.pub")
        }
        try write()
        let shown = try Subprocess.run(["ssh-keygen", "-L", "-f", "forged.pub"], in: folder.path)
        #expect(String(decoding: shown, as: UTF8.self).contains("Principals: \n                jean"))
        // It does verify.
        signature[signature.count - 1] ^= 1
        try write()
        #expect(throws: Subprocess.Failure.self) {
            try Subprocess.run(["ssh-keygen", "-L", "-f", "forged.pub"], in: folder.path)
        }
        expectRefused(content, as: "SSH")
    }

    @Test("Signatures over what other protocols sign verify with the certificate's key")
    func bareBytes() async throws {
        try raw.writeKey(to: folder, "key.der")
        try openssl("pkey", "-inform", "DER", "-in", "key.der", "-pubout", "-out", "public.pem")
        let key = raw.identity.key.publicKey
        let session = [UInt8](repeating: 0x5a, count: 32)
        let prove = SSH.string("hostkeys-prove-00@openssh.com") + SSH.string(session) + SSH.string(SSH.publicKey(key))
        var contents: [([UInt8], String)] =
            [
                (SSH.authentication(key, session: session), "authentication"),
                (SSH.hostAuthentication(key, session: session + session), "authentication"),
                (prove, "host key"), (Array("SSHKRL\n\0".utf8) + bigEndian(1, 4), "revocation list"),
                (OldHandshake.tls, "handshake"), (OldHandshake.datagram, "handshake"),
                (OldHandshake.version2, "handshake"),
            ]
        contents += OldHandshake.keyExchanges.map { ($0, "key-exchange") }
        contents += OtherProtocols.contents
        for (content, text) in contents {
            try folder.write(content, to: "content")
            try folder.write(try await raw.sign(content), to: "signature")
            try openssl("dgst", "-sha256", "-verify", "public.pem", "-signature", "signature", "content")
            expectRefused(content, as: text)
        }
    }

    @Test("A structure of DER is found in whatever form a verifier may read")
    func forms() throws {
        let algorithm = DERText.ecdsaWithSHA256
        func nested(_ depth: Int, _ content: [UInt8]) -> [UInt8] {
            (0..<depth).reduce(content) { inner, _ in DERText.value(0xa0, inner) }
        }
        let unending: [UInt8] = [0xa0, 0x80, 0xa0, 0x80, 0, 0, 0, 0]
        let deep = (0..<1000).reduce([UInt8]()) { inner, _ in [0xa0, 0x80] + inner + [0, 0] }
        // An identifier in the form of higher tags, and a length of many bytes.
        let name = Array(algorithm.dropFirst(3))
        let higherTag: [UInt8] = [0x30, 0x0b, 0x1f, 0x06] + name
        let longLength: [UInt8] = [0x30, 0x8b] + [UInt8](repeating: 0, count: 10) + Array(algorithm.dropFirst())
        // Constructed elements that hold no elements, in definite and in indefinite ones.
        let opaque: [UInt8] = [0xa5, 3, 0xff, 0xff, 0xff]
        let opaqueInUnending: [UInt8] = [0xa0, 0x80, 0xa5, 2, 0x30, 0x7f, 0, 0]
        // Bytes behind the fields that a verifier knows.
        let cut: [UInt8] = DERText.value(0x30, algorithm, [0x1f]) + [0xff]
        // Identifiers that X.690 forbids: with padding, without an end, empty, constructed. A SEQUENCE that says that it is not.
        let identifiers: [[UInt8]] = [
            [0x06, 9, 0x2a, 0x80, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02], [0x06, 3, 0x80, 0x2a, 0x03],
            [0x06, 2, 0x2a, 0x86], [0x06, 0], [0x26, 0], [0x10] + algorithm.dropFirst(),
            DERText.value(0x06, Array("\u{7f}\u{7f}".utf8)), [0x06, 1, 0x2a, 0xff],
        ]
        var contents: [[UInt8]] = [
            algorithm, nested(200, algorithm), unending + algorithm, deep + algorithm, opaque + algorithm,
            opaqueInUnending + algorithm, algorithm + [0x30], algorithm + [0x04, 0x7f], cut, higherTag, longLength,
        ]
        contents += identifiers
        for content in contents {
            for tag: UInt8 in [0x30, 0x31] {
                expectRefused(DERText.value(tag, content), as: "DER")
                expectRefused([tag, 0x80] + content + [0, 0], as: "DER")
            }
        }
        // The attributes as they are in the message, the body of a card-verifiable certificate, and the content of a SEQUENCE.
        expectRefused(DERText.value(0xa0, algorithm), as: "DER")
        expectRefused([0x7f, 0x4e, UInt8(algorithm.count)] + algorithm, as: "DER")
        let digest = DERText.value(0x30, algorithm, DERText.value(0x04, [UInt8](repeating: 7, count: 32)))
        expectRefused(algorithm + digest, as: "DER")
        // A certificate in front of a nonce, and the same without an identifier.
        let nonce = [UInt8](repeating: 0xff, count: 32)
        let long = DERText.value(0x04, [UInt8](repeating: 7, count: 300))
        expectRefused(DERText.value(0x30, DERText.value(0x30, long, algorithm)) + nonce, as: "DER")
        #expect(ChallengeFilter.refusal(of: DERText.value(0x30, long, long) + nonce) == nil)
    }

    @Test("Near misses pass")
    func nearMisses() {
        let algorithm = DERText.ecdsaWithSHA256
        let noise = (0..<64).map { UInt8(truncatingIfNeeded: $0 &* 167 &+ 13) }
        let integer = DERText.value(0x02, [1])
        let octets = DERText.value(0x04, algorithm)
        let spaces = [UInt8](repeating: 0x20, count: 63)
        let challenges: [[UInt8]] = [
            [], [0x30], [0x31, 0x80], noise, [UInt8](repeating: 0, count: 128), spaces + noise, Array("SSHSI".utf8),
            Array("transfer 5000 to DE02".utf8), algorithm + [0], [0] + algorithm, DERText.value(0x30, integer, octets),
            octets,
            [1] + bigEndian(40, 3) + noise, OldHandshake.parameters(noise), OldHandshake.parameters([3, 0, 23], noise),
            OldHandshake.parameters([3, 0, 23], OldHandshake.vector(65), [0]),
            SSH.string(noise) + [51] + SSH.string("jean"),
            algorithm + DERText.value(0x04, noise) + [0x04], DERText.value(0xa1, algorithm), [0x84] + noise,
            OtherProtocols.ike([UInt8](repeating: 0, count: 28), length: 57),
            OtherProtocols.openPGP(version: 4, length: 99), OtherProtocols.openPGP(version: 3),
        ]
        let texts = [
            "0c6a1f3e-3f0e-4b39-9b60-8d0f3a5a7c11", noise.hexEncoded, Data(noise).base64EncodedString(),
            #"{"nonce": "a.b", "type": "sign-in"}"#, "bank.example", Data(#"{"nonce": 1}"#.utf8).base64EncodedString(),
            "sign in to https://bank.example/?session=1 at 10:00", ".", "a.b", "signed info", "PDF-1.7", "1 object",
            "a 0 obj",
        ]
        for text in texts { #expect(ChallengeFilter.refusal(of: Array(text.utf8)) == nil, "\(text)") }
        for challenge in challenges {
            #expect(ChallengeFilter.refusal(of: challenge) == nil, "\(challenge)")
        }
    }

    @Test("Random challenges of 64 bytes pass")
    func randomChallenges() {
        var generator = SeededGenerator(seed: 43)
        for _ in 0..<TestLength.rounds(20_000, full: 100_000, soak: 100_000) {
            let challenge = (0..<8).flatMap { _ in bigEndian(Int(bitPattern: UInt(generator.next())), 8) }
            #expect(ChallengeFilter.refusal(of: challenge) == nil, "\(challenge)")
        }
    }

    /// Random bytes can be a structure of DER, which begins with one of three tags and its own length; the parameters of a key
    /// exchange behind 64 bytes; a header of JOSE, which begins with one of four triples of the 66 characters. Each is so by chance
    /// with the given probability, and the share of these that is refused is counted. All else is rarer than one in 10⁷.
    @Test("Of random challenges of any length, fewer than one in a million are refused")
    func share() {
        var generator = SeededGenerator(seed: 42)
        func share(
            _ count: Int, probability: Double, _ change: (inout [UInt8], inout SeededGenerator) -> Void
        ) -> Double {
            let rounds = max(200, 300_000 / count)
            let all = TestLength.rounds(min(rounds, 4000), full: 10 * rounds, soak: 10 * rounds)
            let refused = (0..<all).count { _ in
                var challenge = (0..<count).map { _ in UInt8.random(in: .min ... .max, using: &generator) }
                change(&challenge, &generator)
                return ChallengeFilter.refusal(of: challenge) != nil
            }
            return probability * Double(refused) / Double(all)
        }
        var largest = 0.0
        for count in [16, 20, 32, 48, 64, 96, 127, 128, 129, 200, 256, 960, 4096] {
            let header: [UInt8] =
                count < 130
                ? [UInt8(count - 2)] : count < 259 ? [0x81, UInt8(count - 3)] : [0x82] + bigEndian(count - 4, 2)
            var total = share(count, probability: 3 / pow(256, Double(1 + header.count))) { bytes, generator in
                bytes[0] = [0x30, 0x31, 0xa0].randomElement(using: &generator) ?? 0x30
                bytes.replaceSubrange(1..<(1 + header.count), with: header)
            }
            if count > 68, count - 68 < 256 {
                total += share(count, probability: 1 / pow(256, 2)) { bytes, _ in
                    (bytes[64], bytes[67]) = (3, UInt8(count - 68))
                }
            } else if count > 68 {
                total += share(count, probability: 2 / 256) { bytes, generator in
                    bytes[64] = .random(in: 1...2, using: &generator)
                }
            }
            total += share(count, probability: 4 / pow(66, 3)) { bytes, generator in
                let third = UInt8.random(in: UInt8(ascii: "I")...UInt8(ascii: "L"), using: &generator)
                bytes.replaceSubrange(0..<3, with: Array("ey".utf8) + [third])
            }
            #expect(total < 1e-6, "\(count) bytes")
            largest = max(largest, total)
        }
        // It is not far below either.
        #expect(largest > 1e-8)
    }

    private static let field = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent().appending(path: "shared/testdata/sima").path

    @Test(
        "The requests of the folder pass or are refused as it says",
        .enabled(if: FileManager.default.fileExists(atPath: field), "the folder is not there"))
    func fieldFiles() throws {
        var counts = [0, 0]
        for name in try FileManager.default.contentsOfDirectory(atPath: Self.field)
        where name.hasSuffix(".url") && (name.hasPrefix("sign-challenge") || name.hasPrefix("14-")) {
            let bytes = Array(try Data(contentsOf: URL(filePath: Self.field + "/" + name)))
            guard let url = RequestURL(bytes), let challenge = url["challenge"]?.strictBase64 else { continue }
            let isRefused = ChallengeFilter.refusal(of: challenge) != nil
            #expect(isRefused == name.hasPrefix("14-"), "\(name)")
            counts[isRefused ? 1 : 0] += 1
        }
        #expect(counts == [15, 8])
    }
}

/// Damaged forgeries, the same ones in every run.
@Suite struct ChallengeFuzzTests {
    /// Whether swift-asn1 finds an OBJECT IDENTIFIER in a SEQUENCE or SET.
    private static func isStructure(_ bytes: [UInt8]) -> Bool {
        guard let root = try? BER.parse(bytes), root.identifier == .sequence || root.identifier == .set else {
            return false
        }
        return hasIdentifier(root)
    }

    private static func hasIdentifier(_ node: ASN1Node) -> Bool {
        switch node.content {
        case .constructed(let nodes): nodes.contains { hasIdentifier($0) }
        case .primitive: node.identifier == .objectIdentifier
        }
    }

    @Test("What another reader of BER takes for a structure with an identifier is refused")
    func structures() throws {
        let authority = try TestAuthority()
        let identity = try authority.issue("seed")
        let key = identity.key.publicKey
        let structures = try identity.certificateChain.map { try DERText.elements($0.derRepresentation)[0] }
        let unending: [UInt8] = [0x30, 0x80] + DERText.ecdsaWithSHA256 + [0, 0]
        let small: [[UInt8]] = [DERText.value(0x31, DERText.ecdsaWithSHA256), unending]
        let others: [[UInt8]] = [
            OldHandshake.tls, OldHandshake.datagram, OldHandshake.version2,
            SSH.authentication(key, session: [1, 2, 3]),
            Array("SSHSIG".utf8), [UInt8](repeating: 0x20, count: 64),
        ]
        let seeds: [[UInt8]] = structures + small + small + others + OldHandshake.keyExchanges
        var mutator = Mutator(seeds: seeds, seed: 9)
        var rounds = FuzzRounds(atLeast: 20_000)
        var found = 0
        while rounds.next() {
            let challenge = mutator.next()
            let refusal = ChallengeFilter.refusal(of: challenge)
            guard Self.isStructure(challenge) else { continue }
            found += 1
            #expect(refusal != nil, "\(challenge.hexEncoded)")
        }
        #expect(found > 10)
    }

    /// Whether another reader takes the bytes for a header of JOSE and a payload.
    private static func isSigningInput(_ bytes: [UInt8]) -> Bool {
        guard let point = bytes.firstIndex(of: UInt8(ascii: ".")) else { return false }
        var text = String(decoding: bytes[..<point], as: UTF8.self).replacing("-", with: "+").replacing("_", with: "/")
        text += String(repeating: "=", count: (4 - text.utf8.count % 4) % 4)
        guard let header = Data(base64Encoded: text, options: .ignoreUnknownCharacters) else { return false }
        let object = try? JSONSerialization.jsonObject(with: header) as? [String: Any]
        return object?["alg"] != nil
    }

    @Test("What another reader takes for a header of JOSE and a payload is refused")
    func signingInputs() throws {
        func encoded(_ data: Data) -> [UInt8] {
            Array(
                data.base64EncodedString().replacing("+", with: "-").replacing("/", with: "_").utf8.filter {
                    $0 != 0x3d
                })
        }
        var headers = [
            #"{"alg":"ES256"}"#, #" { "\u0061lg" : "ES256" }"#, #"{"alg":"ES256","b64":false,"crit":["b64"]}"#,
            "\r\n\t{\"typ\":\"JWT\",\n\"alg\":\"ES256\"}",
        ].map { encoded(Data($0.utf8)) }
        for encoding in [String.Encoding.utf16, .utf16BigEndian, .utf32LittleEndian] {
            headers.append(encoded(try #require(#"{"alg":"ES256"}"#.data(using: encoding))))
        }
        let inputs = headers.map { $0 + Array(".".utf8) + encoded(Data(#"{"sub":"admin"}"#.utf8)) }
        for input in inputs { #expect(ChallengeFilter.refusal(of: input) != nil, "\(input)") }
        var mutator = Mutator(seeds: inputs + headers, seed: 11)
        var rounds = FuzzRounds(atLeast: 20_000)
        var found = 0
        while rounds.next() {
            let challenge = mutator.next()
            guard Self.isSigningInput(challenge) else { continue }
            found += 1
            #expect(ChallengeFilter.refusal(of: challenge) != nil, "\(String(decoding: challenge, as: UTF8.self))")
        }
        #expect(found > 10)
    }
}
