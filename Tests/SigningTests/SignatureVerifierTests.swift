import CertificateProviding
import CertificateTLS
import Foundation
import TestSupport
import Testing

@testable import Signing

/// Verdicts on signatures of this project and of OpenSSL, beside those of OpenSSL's commands.
@Suite struct SignatureVerifierTests {
    private static let authority = Result { try TestAuthority() }
    private let authority: TestAuthority
    private let content = (0..<100_000).map { UInt8(truncatingIfNeeded: $0 &* 31) }

    init() throws { authority = try Self.authority.get() }

    private func verifier(_ anchors: [X509Certificate]? = nil, time: Date? = nil) throws -> SignatureVerifier {
        try SignatureVerifier(anchors: anchors ?? [authority.root], time: time)
    }

    static let schemes: [(TestAuthority.KeyKind, SignatureScheme)] = [
        (.p256, .ecdsaP256SHA256), (.p384, .ecdsaP384SHA384), (.p521, .ecdsaP521SHA512), (.rsa2048, .rsaPKCS1SHA256),
        (.rsa2048, .rsaPSSRSAESHA512), (.ed25519, .ed25519),
    ]

    @Test(
        "CMS and raw signatures of each scheme hold, and neither with a byte changed nor of another CA",
        arguments: schemes)
    func eachScheme(kind: TestAuthority.KeyKind, scheme: SignatureScheme) async throws {
        let identity = try authority.issue("signer", kind: kind)
        let signer = try Signer(identity, scheme: scheme)
        let message = try await signer.detachedCMS(of: SigningContent(content))
        let good = try await verifier().cms(message, content: SigningContent(content))
        #expect(good.holds && good.chain?.count ?? 0 > 1 && good.timeSource == .now, "\(good)")
        #expect(good.certificate == identity.certificate && good.claimedTime != nil && good.coverage == nil)
        #expect(try await verifier().cms(signer.attachedCMS(of: content)).holds)
        var other = content
        other[50_000] ^= 1
        let altered = try await verifier().cms(message, content: SigningContent(other))
        #expect(altered.isUnaltered.holds == false && altered.isSigned.holds == true && !altered.isIntact)
        let stranger = try await verifier([TestAuthority().root]).cms(message, content: SigningContent(content))
        #expect(stranger.isIntact && stranger.isTrusted.holds == false && !stranger.holds, "\(stranger)")
        let unknown = try await SignatureVerifier(anchors: nil).cms(message, content: SigningContent(content))
        #expect(unknown.isIntact && unknown.isTrusted.holds == nil && !unknown.holds)
        // The signature's own bytes.
        var changed = message
        changed[changed.count - 3] ^= 1
        let wrong = try await verifier().cms(changed, content: SigningContent(content))
        #expect(wrong.isUnaltered.holds == true && wrong.isSigned.holds == false, "\(wrong)")

        let raw = try await signer.rawSignature(of: SigningContent(content))
        for (bytes, isGood) in [(content, true), (other, false)] {
            let named = try await verifier().raw(
                raw, of: SigningContent(bytes), by: identity.certificate, scheme: scheme)
            #expect(named.isIntact == isGood && named.isSigned.holds == isGood, "\(named)")
            let bare = try await verifier().raw(
                raw, of: SigningContent(bytes), by: identity.certificate.publicKey, scheme: scheme)
            #expect(bare.isIntact == isGood && bare.isTrusted.holds == nil && bare.certificate == nil)
        }
    }

    @Test("A certificate that is expired or not yet valid is not trusted now, and was at its time")
    func times() async throws {
        let identity = try authority.issue("signer")
        let message = try await Signer(identity).detachedCMS(of: SigningContent(content))
        for date in [identity.certificate.notValidAfter + 1, identity.certificate.notValidBefore - 1] {
            let verdict = try await verifier(time: date).cms(message, content: SigningContent(content))
            #expect(verdict.isIntact && verdict.isTrusted.holds == false && verdict.timeSource == .given, "\(verdict)")
        }
        let late = try await SignatureVerifier(
            anchors: [authority.root], time: identity.certificate.notValidBefore + 1,
            now: { identity.certificate.notValidAfter + 99 }
        ).cms(message, content: SigningContent(content))
        #expect(late.holds)
    }

    @Test("What OpenSSL signs is judged as OpenSSL judges it; SHA-1 is not accepted")
    func openssl() async throws {
        let folder = try TemporaryDirectory()
        try folder.write(content, to: "content")
        let script = """
            set -eu
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -keyout ca.key -out ca.pem -days 2 -subj '/CN=CA'
            openssl req -new -newkey rsa:2048 -noenc -keyout a.key -out a.csr -subj /CN=Alice
            printf 'keyUsage=critical,digitalSignature\\n' >good; printf 'keyUsage=critical,keyAgreement\\n' >bad
            for use in good bad; do
                openssl x509 -req -in a.csr -CA ca.pem -CAkey ca.key -days 1 -out $use.pem -extfile $use
                for digest in sha256 sha512 sha1; do
                    openssl cms -sign -binary -md $digest -in content -signer $use.pem -inkey a.key -certfile ca.pem \\
                        -outform DER -out $use-$digest.p7s
                done
            done
            openssl cms -sign -binary -noattr -in content -signer good.pem -inkey a.key -outform DER -out bare.p7s
            openssl cms -sign -binary -nocerts -in content -signer good.pem -inkey a.key -outform DER -out nocerts.p7s
            """
        try Subprocess.run(["bash", "-c", script], in: folder.path)
        let anchors = try CertificateFile.read(folder["ca.pem"])
        for (name, unaltered, signed, maySign) in [
            ("good-sha256", true, true, true), ("good-sha512", true, true, true), ("good-sha1", nil, nil, true),
            ("bad-sha256", true, true, false),
        ] as [(String, Bool?, Bool?, Bool?)] {
            let verdict = try await verifier(anchors).cms(
                folder.read("\(name).p7s"), content: SigningContent(content))
            #expect(verdict.isUnaltered.holds == unaltered && verdict.isSigned.holds == signed, "\(name): \(verdict)")
            #expect(verdict.maySign.holds == maySign && verdict.isTrusted.holds == true, "\(name): \(verdict)")
            let isAccepted =
                (try? Subprocess.run(
                    [
                        "openssl", "cms", "-verify", "-binary", "-purpose", "any", "-inform", "DER", "-in",
                        "\(name).p7s", "-content", "content", "-CAfile", "ca.pem", "-out", "out",
                    ], in: folder.path)) != nil
            // OpenSSL accepts SHA-1, and looks at no key usage for any purpose.
            #expect(isAccepted, "\(name)")
        }
        let nobody = try await verifier(anchors).cms(folder.read("nocerts.p7s"), content: SigningContent(content))
        #expect(nobody.isUnaltered.holds == true && nobody.isSigned.holds == nil && nobody.certificate == nil)
        for file in ["bare.p7s", "content", "ca.pem"] {
            await #expect(throws: ProviderError.self, "\(file)") {
                try await verifier(anchors).cms(folder.read(file), content: SigningContent(content))
            }
        }
        let message = try folder.read("good-sha256.p7s")
        #expect(await failure { try await verifier(anchors).cms(message) }?.code == .notFound)
    }

    @Test("The type of the content is data, and the one that was signed: else the bytes were signed as something else")
    func contentTypes() async throws {
        let folder = try TemporaryDirectory()
        try folder.write(content, to: "content")
        let script = """
            set -eu
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -keyout a.key -out a.pem -days 2 -subj '/CN=Alice'
            for type in 1 5; do
                openssl cms -sign -binary -md sha256 -econtent_type 1.2.840.113549.1.7.$type -in content -signer a.pem -inkey a.key \\
                    -outform DER -out $type.p7s
            done
            """
        try Subprocess.run(["bash", "-c", script], in: folder.path)
        /// Replaces the first object identifier of content, which no signature covers.
        func retyped(_ message: [UInt8], _ old: UInt8, _ new: UInt8) throws -> [UInt8] {
            let type: [UInt8] = [0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, old]
            var message = message
            let start = try #require(message.firstRange(of: type))
            message[start.upperBound - 1] = new
            return message
        }
        let (data, digested) = (try folder.read("1.p7s"), try folder.read("5.p7s"))
        for (name, message, isGood) in [
            ("data", data, true), ("another type", digested, false),
            ("data, signed as another type", try retyped(digested, 5, 1), false),
            ("another type, signed as data", try retyped(data, 1, 5), false),
        ] {
            let verdict = try await verifier().cms(message, content: SigningContent(content))
            // The signature is over the attributes, and their digest is that of the bytes.
            #expect(verdict.isSigned.holds == true, "\(name): \(verdict)")
            #expect(verdict.isUnaltered.holds == (isGood ? true : nil) && verdict.isIntact == isGood, "\(name)")
        }
    }

    @Test("RSA keys that are too small or have the exponent 1 prove nothing")
    func weakKeys() async throws {
        let identity = try authority.issue("signer", kind: .rsa2048)
        let modulus = try #require(identity.certificate.publicKey.rsaModulus)
        let prefix: [UInt8] = [
            0x30, 0x82, 0x01, 0x20, 0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05,
            0x00, 0x03, 0x82, 0x01, 0x0d, 0x00, 0x30, 0x82, 0x01, 0x08, 0x02, 0x82, 0x01, 0x01, 0x00,
        ]
        // With that exponent the padded digest is its own signature.
        let key = try PublicKeyInfo(derRepresentation: prefix + modulus + [0x02, 0x01, 0x01])
        let digestInfo: [UInt8] = [
            0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05, 0x00, 0x04,
            0x20,
        ]
        let padding = [0x00, 0x01] + [UInt8](repeating: 0xff, count: 256 - 3 - digestInfo.count - 32) + [0x00]
        let forged = padding + digestInfo + Array(DigestAlgorithm.sha256.digest(of: content))
        let verdict = try await verifier().raw(forged, of: SigningContent(content), by: key)
        #expect(verdict.isSigned.holds == nil && !verdict.isIntact, "\(verdict)")
        #expect(verdict.isSigned.reason?.contains("exponent") == true)

        let folder = try TemporaryDirectory()
        try folder.write(content, to: "content")
        let script = """
            set -eu
            openssl req -x509 -newkey rsa:1024 -noenc -keyout a.key -out a.pem -days 2 -subj /CN=Alice
            openssl dgst -sha256 -sign a.key -out a.sig content
            openssl cms -sign -binary -md sha256 -in content -signer a.pem -inkey a.key -outform DER -out a.p7s
            """
        try Subprocess.run(["bash", "-c", script], in: folder.path)
        let certificate = try #require(try CertificateFile.read(folder["a.pem"]).first)
        for verdict in [
            try await verifier().raw(folder.read("a.sig"), of: SigningContent(content), by: certificate),
            try await verifier().raw(folder.read("a.sig"), of: SigningContent(content), by: certificate.publicKey),
            try await verifier().cms(folder.read("a.p7s"), content: SigningContent(content)),
        ] {
            #expect(verdict.isSigned.holds == nil && !verdict.isIntact && verdict.isTrusted.holds != true, "\(verdict)")
            #expect(verdict.isSigned.reason?.contains("1024 bits") == true)
        }
    }

    @Test("A revoked signer is named as that; without the CA's list it is not known")
    func revocation() async throws {
        let folder = try TemporaryDirectory()
        try folder.write(content, to: "content")
        let script = """
            set -eu
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -keyout ca.key -out ca.pem -days 2 -subj '/CN=CA'
            openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -keyout a.key -out a.csr -subj /CN=Alice
            openssl x509 -req -in a.csr -CA ca.pem -CAkey ca.key -days 1 -out a.pem
            openssl cms -sign -binary -in content -signer a.pem -inkey a.key -outform DER -out a.p7s
            : >index; echo 01 >number
            printf '[ca]\\ndefault_ca=d\\n[d]\\ndatabase=index\\ncrlnumber=number\\ndefault_md=sha256\\ndefault_crl_days=2\\n' >conf
            openssl ca -config conf -gencrl -keyfile ca.key -cert ca.pem -out good.crl
            openssl ca -config conf -revoke a.pem -keyfile ca.key -cert ca.pem
            openssl ca -config conf -gencrl -keyfile ca.key -cert ca.pem -out revoked.crl
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -keyout b.key -out b.pem -days 2 -subj '/CN=Other'
            openssl ca -config conf -gencrl -keyfile b.key -cert b.pem -out other.crl
            """
        try Subprocess.run(["bash", "-c", script], in: folder.path)
        let anchors = try CertificateFile.read(folder["ca.pem"])
        for (list, holds) in [("good", true), ("revoked", false), ("other", nil)] as [(String, Bool?)] {
            let verdict = try await SignatureVerifier(
                anchors: anchors, revocationLists: RevocationLists(path: folder["\(list).crl"])
            ).cms(folder.read("a.p7s"), content: SigningContent(content))
            #expect(verdict.isNotRevoked?.holds == holds && verdict.holds == (holds == true), "\(list): \(verdict)")
        }
        #expect(
            failure { try SignatureVerifier(anchors: nil, revocationLists: RevocationLists(path: folder["none"])) }?
                .code == .fileNotFound)
    }

    @Test("A time stamp moves the time that counts, if it is of this signature and of a trusted server")
    func timeStamps() async throws {
        let stamps = try TimeStampAuthority.shared.get()
        let identity = try authority.issue("signer")
        let signer = try Signer(identity, timeStamps: stamps.server("good"))
        let message = try await signer.detachedCMS(of: SigningContent(content))
        let end = identity.certificate.notValidAfter
        func verdict(_ stampAnchors: [X509Certificate]?, _ message: [UInt8] = message) async throws -> SignatureVerdict
        {
            try await SignatureVerifier(
                anchors: [authority.root], timeStampAnchors: stampAnchors ?? [authority.root], now: { end + 60 }
            ).cms(message, content: SigningContent(content))
        }
        let good = try await verdict(stamps.anchors)
        #expect(good.holds && good.timeSource == .timeStamp && good.time < end, "\(good)")
        let stranger = try await verdict(nil)
        #expect(stranger.timeStamp?.isTrusted.holds == false && stranger.isTrusted.holds == false, "\(stranger)")
        // The stamp of another signature.
        let other = try await Signer(identity).detachedCMS(of: SigningContent(content))
        #expect(try await verdict(stamps.anchors, other).timeStamp == nil)
        let pdf = try await Signer(authority.issue("signer"), timeStamps: stamps.server("good")).signedPDF(
            of: TestPDF.bytes)
        let stamped = try await SignatureVerifier(anchors: [authority.root], timeStampAnchors: stamps.anchors).pdf(
            SigningContent(pdf))
        #expect(stamped.count == 1 && stamped[0].holds && stamped[0].timeStamp?.isTrusted.holds == true, "\(stamped)")
    }

    @Test("A time-stamp token and a server's answer are judged as openssl ts does")
    func tokens() async throws {
        let stamps = try TimeStampAuthority.shared.get()
        let token = try await stamps.server("good").token(for: content)
        let folder = try TemporaryDirectory()
        try folder.write(token, to: "token")
        try folder.write(stamps.anchors.flatMap { Array($0.pemRepresentation.utf8) }, to: "ca.pem")
        var other = content
        other[9] ^= 1
        for (bytes, isGood) in [(content, true), (other, false)] {
            let verdict = try await SignatureVerifier(anchors: stamps.anchors).cms(
                token, content: SigningContent(bytes))
            #expect(verdict.form == .timeStamp && verdict.holds == isGood, "\(verdict)")
            #expect(verdict.isUnaltered.holds == isGood && verdict.isSigned.holds == true && verdict.claimedTime != nil)
            try folder.write(bytes, to: "data")
            let openssl = try? Subprocess.run(
                ["openssl", "ts", "-verify", "-in", "token", "-token_in", "-data", "data", "-CAfile", "ca.pem"],
                in: folder.path)
            #expect((openssl != nil) == isGood)
        }
        let stranger = try await verifier().cms(token, content: SigningContent(content))
        #expect(stranger.isUnaltered.holds == true && stranger.isTrusted.holds == false, "\(stranger)")
        #expect(await failure { try await verifier().cms(token) }?.code == .notFound)
    }

    @Test("A PDF of two signers holds, and a change behind them or a byte in it does not")
    func pdf() async throws {
        let (alice, bob) = (try authority.issue("Alice"), try authority.issue("Bob", kind: .rsa2048))
        let once = try await Signer(alice).signedPDF(of: TestPDF.bytes, PDFSignatureDetails(reason: "I agree"))
        let twice = try await Signer(bob).signedPDF(of: once, PDFSignatureDetails(name: "Zoë, for Łukasz"))
        let verdicts = try await verifier().pdf(SigningContent(twice))
        #expect(verdicts.map(\.claimedName) == ["Alice", "Zoë, for Łukasz"])
        #expect(verdicts.map(\.claimedReason) == ["I agree", nil])
        #expect(verdicts.map(\.certificate) == [alice.certificate, bob.certificate] && verdicts.allSatisfy(\.holds))
        #expect(verdicts.map(\.coverage?.change) == [.signatures, .nothing])
        #expect(verdicts.map(\.coverage?.signedBytes) == [once.count, twice.count])
        #expect(try SignatureVerifier.addsOnlySignatures(to: TestPDF.bytes, in: twice).holds == true)
        #expect(try SignatureVerifier.addsOnlySignatures(to: twice, in: twice).holds == false)

        // Another page content behind the signatures, with a section of its own.
        let text = "3 0 obj\n<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]>>\nendobj\n"
        let last = try #require(String(decoding: twice, as: UTF8.self).split(separator: "\n").dropLast().last)
        let offset = String(repeating: "0", count: 10 - "\(twice.count)".count) + "\(twice.count)"
        let section =
            "xref\n3 1\n\(offset) 00000 n \ntrailer\n<</Size 20/Root 1 0 R/Prev \(last)>>\nstartxref\n\(twice.count + text.utf8.count)\n%%EOF\n"
        let attacked = twice + Array((text + section).utf8)
        let changed = try await verifier().pdf(SigningContent(attacked))
        #expect(changed.allSatisfy { $0.coverage?.change == .other && !$0.isIntact && !$0.holds }, "\(changed)")
        #expect(changed.allSatisfy { $0.isUnaltered.holds == true && $0.isSigned.holds == true })
        #expect(try SignatureVerifier.addsOnlySignatures(to: TestPDF.bytes, in: attacked).holds == false)

        var flipped = twice
        flipped[20] ^= 0x20
        let broken = try? await verifier().pdf(SigningContent(flipped))
        #expect(broken?.contains(where: \.isIntact) != true)
        // A tag of the CMS of the first: the other one is judged all the same.
        let tag = try #require(twice.firstRange(of: Array("2a864886f70d010702a0".utf8)))
        flipped = twice
        flipped[tag.upperBound - 1] = UInt8(ascii: "1")
        let damaged = try await verifier().pdf(SigningContent(flipped))
        #expect(damaged.map(\.isSigned.holds) == [false, true] && damaged.map(\.isUnaltered.holds) == [nil, false])
        #expect(await failure { try await verifier().pdf(SigningContent(TestPDF.bytes)) }?.code == .notFound)
        #expect(await failure { try await verifier().pdf(SigningContent(Array("hello".utf8))) }?.code == .malformedData)
    }
}
