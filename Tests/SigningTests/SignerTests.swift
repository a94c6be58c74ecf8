import CertificateProviding
import Foundation
import PDFUpdate
import SignedData
import Synchronization
import TestSupport
import Testing

@testable import Signing

/// Raw signatures and CMS, verified by OpenSSL's command.
@Suite struct SignerTests {
    private static let authority = Result { try TestAuthority() }
    private let authority: TestAuthority
    private let content = (0..<300_000).map { UInt8(truncatingIfNeeded: $0 &* 31) }

    init() throws { authority = try Self.authority.get() }

    /// Throws unless OpenSSL's command accepts a CMS signature, as CAdES.
    private func opensslVerify(_ message: [UInt8], content: [UInt8]?) throws -> [UInt8] {
        let folder = try TemporaryDirectory()
        try folder.write(message, to: "message")
        try folder.write(authority.root.pemRepresentation.utf8, to: "ca.pem")
        var arguments = [
            "openssl", "cms", "-verify", "-cades", "-binary", "-inform", "DER", "-in", "message", "-CAfile", "ca.pem",
            "-purpose", "any", "-out", "out",
        ]
        if let content {
            try folder.write(content, to: "content")
            arguments += ["-content", "content"]
        }
        try Subprocess.run(arguments, in: folder.path)
        return try folder.read("out")
    }

    static let kinds: [TestAuthority.KeyKind] = [.p256, .p384, .p521, .rsa2048]
    static let cases: [(TestAuthority.KeyKind, SignatureScheme)] = [
        (.p256, .ecdsaP256SHA256), (.p384, .ecdsaP384SHA384), (.p521, .ecdsaP521SHA512), (.rsa2048, .rsaPKCS1SHA256),
        (.rsa2048, .rsaPKCS1SHA384), (.rsa2048, .rsaPKCS1SHA512), (.rsa2048, .rsaPSSRSAESHA256),
        (.rsa2048, .rsaPSSRSAESHA384), (.rsa2048, .rsaPSSRSAESHA512),
    ]

    @Test("OpenSSL verifies CMS of each scheme, detached and attached, and notices one flipped byte", arguments: cases)
    func cms(kind: TestAuthority.KeyKind, scheme: SignatureScheme) async throws {
        let signer = try Signer(authority.issue("signer", kind: kind), scheme: scheme)
        let detached = try await signer.detachedCMS(of: SigningContent(content))
        #expect(try opensslVerify(detached, content: content) == content)
        var changed = content
        changed[150_000] ^= 1
        #expect(throws: Subprocess.Failure.self) { try opensslVerify(detached, content: changed) }
        let attached = try await signer.attachedCMS(of: content)
        #expect(try opensslVerify(attached, content: nil) == content)
        let place = try #require(attached.indices.first { attached[$0...].starts(with: content.prefix(500)) })
        changed = attached
        changed[place + 150_000] ^= 1
        #expect(throws: Subprocess.Failure.self) { try opensslVerify(changed, content: nil) }
    }

    @Test(
        "Content of each size near a change of the lengths' form is signed",
        arguments: [0, 1, 127, 128, 255, 256, 65535, 65536])
    func sizes(count: Int) async throws {
        let signer = try Signer(authority.issue("signer"))
        let content = Array(self.content.prefix(count))
        #expect(try opensslVerify(try await signer.attachedCMS(of: content), content: nil) == content)
        let spool = try ContentSpool(in: "/tmp")
        let written = Mutex<[UInt8]>([])
        try await signer.attachedCMS(of: SigningContent(content), spool: spool) { bytes in
            written.withLock { $0 += bytes }
        }
        #expect(try opensslVerify(written.withLock(\.self), content: nil) == content)
    }

    @Test("OpenSSL verifies raw signatures of each scheme", arguments: cases)
    func raw(kind: TestAuthority.KeyKind, scheme: SignatureScheme) async throws {
        let identity = try authority.issue("signer", kind: kind)
        let digest = try #require(scheme.digestAlgorithm?.digest(of: content))
        // With a digest, and by a key that takes the message only.
        for key in [identity.key, TestKey(identity.key)] as [any IdentityKey] {
            let signature = try await Signer(identity.with(key), scheme: scheme).rawSignature(
                of: SigningContent(content))
            try scheme.opensslVerify(signature, ofDigest: digest, by: identity.key.publicKey)
        }
    }

    @Test("Ed25519 signs raw data and CMS with SHA-512")
    func edwards() async throws {
        let identity = try authority.issue("signer", kind: .ed25519)
        let signer = try Signer(identity)
        let signature = try await signer.rawSignature(of: SigningContent(content))
        #expect(identity.key.publicKey.isValidSignature(signature, for: content, using: .ed25519))
        // OpenSSL 3.0 reads it, and cannot verify it; pyHanko does, in the tests of the command.
        let message = try await signer.detachedCMS(of: SigningContent(content))
        let folder = try TemporaryDirectory()
        try folder.write(message, to: "message")
        let text = String(
            decoding: try Subprocess.run(
                ["openssl", "cms", "-cmsout", "-print", "-inform", "DER", "-in", "message"], in: folder.path),
            as: UTF8.self)
        #expect(text.contains("algorithm: sha512") && text.contains("ED25519"), "\(text)")
    }

    @Test("The signed attributes are those of CAdES B-B; the time is the clock's")
    func attributes() async throws {
        let now = Date(timeIntervalSince1970: 1_795_000_000)
        let identity = try authority.issue("signer", notBefore: now - 3600, notAfter: now + 86400)
        let signer = try Signer(identity, now: { now })
        let folder = try TemporaryDirectory()
        try folder.write(try await signer.detachedCMS(of: SigningContent(content)), to: "message")
        let text = String(
            decoding: try Subprocess.run(
                ["openssl", "cms", "-cmsout", "-print", "-inform", "DER", "-in", "message"], in: folder.path),
            as: UTF8.self)
        for part in [
            "contentType", "messageDigest", "signingTime", "id-smime-aa-signingCertificateV2", "Nov 18 11:06:40 2026",
        ] {
            #expect(text.contains(part), "\(part) in \(text)")
        }
        // The chain without its root.
        #expect(text.components(separatedBy: "subject:").count == 3, "\(text)")
    }

    @Test("The bound of a signature's size holds, and is exact but for ECDSA", arguments: kinds)
    func maximumSize(kind: TestAuthority.KeyKind) async throws {
        let signer = try Signer(authority.issue("signer", kind: kind)).cmsSigner()
        let attributes = [CMSSignerAttribute.signingCertificate(signer.certificateChain[0])]
        let bound = signer.maximumSize(attributes: attributes)
        for _ in 0..<(kind == .rsa2048 ? 1 : 50) {
            let digest = signer.digestAlgorithm.digest(of: content)
            let message = try await signer.signature(ofDigest: digest, attributes: attributes).derRepresentation()
            #expect(message.count <= bound && message.count > bound - (kind == .rsa2048 ? 1 : 12))
        }
    }

    @Test("A key whose signature does not verify gives none", arguments: kinds)
    func faultyKeys(kind: TestAuthority.KeyKind) async throws {
        let identity = try authority.issue("signer", kind: kind)
        let other = try authority.issue("other", kind: kind).key
        let faulty = try identity.with(
            TestKey(identity.key) { message, scheme throws(ProviderError) in
                try await other.signature(for: message, using: scheme)
            })
        let digesting = try identity.with(
            TestKey(identity.key, digestSigner: other.digestSigner) {
                message, scheme throws(ProviderError) in
                try await other.signature(for: message, using: scheme)
            })
        for signer in [try Signer(faulty), try Signer(digesting)] {
            #expect(await code { try await signer.rawSignature(of: SigningContent(content)) } == .keyMismatch)
            #expect(await code { try await signer.detachedCMS(of: SigningContent(content)) } == .keyMismatch)
            #expect(await code { try await signer.attachedCMS(of: content) } == .keyMismatch)
        }
    }

    @Test("A certificate that is not valid now or not for signatures is refused before its key is used")
    func unusable() throws {
        for identity in [
            try authority.issue("expired", notBefore: Date() - 7200, notAfter: Date() - 3600),
            try authority.issue("early", notBefore: Date() + 3600),
            try authority.issue("agreement", permitsSignatures: false),
        ] {
            let key = TestKey(identity.key) { _, _ throws(ProviderError) in
                Issue.record("the key is used")
                return []
            }
            let error = try #require(failure { try Signer(identity.with(key)) })
            #expect(error.code == .certificateNotUsable, "\(error)")
        }
    }

    @Test("A scheme that the key does not have is refused, with those that it has")
    func schemes() throws {
        let error = try #require(failure { try Signer(authority.issue("signer"), scheme: .rsaPKCS1SHA256) })
        #expect(error.code == .unsupportedAlgorithm && error.message.contains("ecdsa_secp256r1_sha256"), "\(error)")
        #expect(try Signer(authority.issue("signer", kind: .rsa2048)).scheme == .rsaPKCS1SHA256)
    }

    @Test("A time stamp is about the value of the signature; without it there is no signature")
    func timeStamp() async throws {
        let stamps = try TimeStampAuthority.shared.get()
        let signer = try Signer(authority.issue("signer"), timeStamps: stamps.server())
        let message = try await signer.detachedCMS(of: SigningContent(content))
        #expect(try opensslVerify(message, content: content) == content)
        let folder = try TemporaryDirectory()
        try folder.write(message, to: "message")
        let text = String(
            decoding: try Subprocess.run(
                ["openssl", "cms", "-cmsout", "-print", "-inform", "DER", "-in", "message"], in: folder.path),
            as: UTF8.self)
        #expect(text.contains("unsignedAttrs") && text.contains("id-smime-aa-timeStampToken"), "\(text)")
        let refused = try Signer(authority.issue("signer"), timeStamps: stamps.server("imprint"))
        #expect(await code { try await refused.detachedCMS(of: SigningContent(content)) } == .protocolError)
    }

    private static let tests = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    private static let pyHanko = tests.deletingLastPathComponent().appending(path: ".build/pyhanko/bin/python").path

    @Test(
        "pyHanko verifies the time stamp in a PDF; without the stamp there is no PDF",
        .enabled(if: access(pyHanko, X_OK) == 0, "pyHanko was not run: make test installs it"))
    func timeStampedPDF() async throws {
        let stamps = try TimeStampAuthority.shared.get()
        let signed = try await Signer(authority.issue("signer"), timeStamps: stamps.server())
            .signedPDF(of: TestPDF.bytes)
        #expect(signed.starts(with: TestPDF.bytes))
        let folder = try TemporaryDirectory()
        try folder.write(signed, to: "signed.pdf")
        let anchors = stamps.anchors.map(\.pemRepresentation).joined() + authority.root.pemRepresentation
        try folder.write(anchors.utf8, to: "anchors.pem")
        let script = Self.tests.appending(path: "PDFUpdateTests/validate.py").path
        let verdict = String(
            decoding: try Subprocess.run(
                [Self.pyHanko, "-B", script, folder["anchors.pem"], folder["signed.pdf"]]), as: UTF8.self)
        for part in [#""stamp": {"valid": true, "trusted": true"#, #""trusted": true, "coverage": "ENTIRE_FILE""#] {
            #expect(verdict.contains(part), "\(verdict)")
        }
        let refused = try Signer(authority.issue("signer"), timeStamps: stamps.server("other-nonce"))
        #expect(await code { try await refused.signedPDF(of: TestPDF.bytes) } == .protocolError)
    }

    @Test("A PDF is signed as it was checked, whatever happens to its file before the signature")
    func aPDFThatChanges() async throws {
        let folder = try TemporaryDirectory()
        let path = try folder.write(TestPDF.bytes, to: "contract.pdf")
        let file = open(path, O_RDONLY | O_CLOEXEC)
        defer { close(file) }
        let content = SigningContent(descriptor: file, name: path)
        let pdf = try PDFToSign(content, hasTimeStamp: false, directory: folder.path)
        try #require(truncate(path, 0) == 0)
        let signed = Mutex<[UInt8]>([])
        try await Signer(authority.issue("signer")).signPDF(pdf) { bytes in signed.withLock { $0 += bytes } }
        let result = signed.withLock(\.self)
        #expect(result.starts(with: TestPDF.bytes))
        #expect(try await SignatureVerifier(anchors: nil).pdf(SigningContent(result)).map(\.isIntact) == [true])
    }

    @Test("Content that cannot be read is an error; too much for a key that takes no digest as well")
    func unreadable() async throws {
        let signer = try Signer(authority.issue("signer"))
        let closed = SigningContent(descriptor: -1, name: "a\u{1b}file")
        let error = try #require(await failure { try await signer.detachedCMS(of: closed) })
        #expect(error.code == .storeReadFailed && !error.message.contains("\u{1b}"), "\(error)")
        let folder = try TemporaryDirectory()
        let path = try folder.write([], to: "large")
        try #require(truncate(path, SigningContent.maximumInMemory + 1) == 0)
        let file = open(path, O_RDONLY | O_CLOEXEC)
        defer { close(file) }
        let edwards = try Signer(authority.issue("signer", kind: .ed25519))
        let large = SigningContent(descriptor: file, name: path)
        #expect(await code { try await edwards.rawSignature(of: large) } == .unsupportedAlgorithm)
    }
}
