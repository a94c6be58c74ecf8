import CertificateProviding
import Crypto
import Foundation
import HostSockets
import TestSupport
import Testing

@testable import HostService

/// The token as a connection has it, without a socket.
@Suite struct TokenConnectionTests {
    private let authority: TestAuthority
    private let directory: TemporaryDirectory

    init() throws {
        authority = try TestAuthority()
        directory = try TemporaryDirectory()
    }

    private static let message = Array("a message".utf8)

    struct Signature: CustomTestStringConvertible {
        var kind: TestAuthority.KeyKind
        var mechanism: TokenMechanism
        var digest: DigestAlgorithm?
        var parameters: [UInt64]?
        /// Those of `openssl pkeyutl`.
        var options: [String] = []
        var testDescription: String { "\(kind) \(mechanism) \(digest.map { "\($0)" } ?? "")" }
    }

    private static func pss(_ digest: DigestAlgorithm, _ name: String, _ hash: UInt64, _ mask: UInt64) -> Signature {
        .init(
            kind: .rsa2048, mechanism: .rsaPSS, digest: digest, parameters: [hash, mask, UInt64(digest.size)],
            options: ["digest:\(name)", "rsa_padding_mode:pss", "rsa_pss_saltlen:digest"])
    }

    private static let signatures: [Signature] = [
        .init(kind: .p256, mechanism: .ecdsa, digest: .sha256), .init(kind: .p384, mechanism: .ecdsa, digest: .sha384),
        .init(kind: .p521, mechanism: .ecdsa, digest: .sha512),
        // Cut, and filled.
        .init(kind: .p256, mechanism: .ecdsa, digest: .sha512), .init(kind: .p384, mechanism: .ecdsa, digest: .sha256),
        .init(kind: .rsa2048, mechanism: .rsaPKCS, digest: .sha256, options: ["digest:sha256"]),
        .init(kind: .rsa2048, mechanism: .rsaPKCS, digest: .sha384, options: ["digest:sha384"]),
        .init(kind: .rsa2048, mechanism: .rsaPKCS, digest: .sha512, options: ["digest:sha512"]),
        pss(.sha256, "sha256", 0x250, 2), pss(.sha384, "sha384", 0x260, 3), pss(.sha512, "sha512", 0x270, 4),
        .init(kind: .ed25519, mechanism: .eddsa),
    ]

    @Test("OpenSSL verifies what the token signs, whole and in parts", arguments: signatures)
    func signing(_ one: Signature) async throws {
        let identity = try authority.issue("web", kind: one.kind)
        let dialogue = try await TestHost([.init("web", identity)]).dialogue()
        let key = try #require(try await dialogue.find(.privateKey, "web").first)
        let digest = one.digest?.digest(of: Self.message) ?? Self.message
        let data = one.mechanism == .rsaPKCS ? one.digest?.digestInfo(digest) ?? [] : digest
        // Without and with the byte that newer versions of p11-kit write.
        var forms: [[UInt8]] = [[], [0], [0, 0, 0, 0], [0xff, 0xff, 0xff, 0xff]]
        if let parameters = one.parameters {
            let bytes = parameters.flatMap { number in
                (0..<8).map { UInt8(truncatingIfNeeded: number >> (56 - 8 * $0)) }
            }
            forms = [bytes, [1] + bytes]
        }
        for (index, form) in forms.enumerated() {
            try await dialogue.signInit(one.mechanism.rawValue, key, form)
            var signature: [UInt8]?
            if index == 0 {
                let size = try await dialogue.sign(data, room: 0).size
                #expect(try await dialogue.sign(data, room: UInt32(size - 1)) == (nil, size))
                #expect(try await dialogue.sign(data, room: .max) == (nil, size))
                signature = try await dialogue.sign(data, room: UInt32(size)).signature
                #expect(signature?.count == size)
            } else {
                try await dialogue.signUpdate(Array(data.prefix(3)))
                try await dialogue.signUpdate(Array(data.dropFirst(3)))
                #expect(try await dialogue.sign(nil, room: 0).signature == nil)
                signature = try await dialogue.sign(nil).signature
            }
            try verify(try #require(signature), of: digest, one, identity)
            await #expect(throws: ReturnCode.operationNotInitialized) { try await dialogue.sign(data) }
        }
    }

    private func verify(_ signature: [UInt8], of digest: [UInt8], _ one: Signature, _ identity: Identity) throws {
        try directory.write(identity.certificate.pemRepresentation.utf8, to: "a.pem")
        try directory.write(digest, to: "in")
        let written: [UInt8] =
            switch one.kind {
            case .p256: Array(try P256.Signing.ECDSASignature(rawRepresentation: signature).derRepresentation)
            case .p384: Array(try P384.Signing.ECDSASignature(rawRepresentation: signature).derRepresentation)
            case .p521: Array(try P521.Signing.ECDSASignature(rawRepresentation: signature).derRepresentation)
            default: signature
            }
        try directory.write(written, to: "sig")
        let raw = one.mechanism == .eddsa ? ["-rawin"] : []
        let output = try Subprocess(
            ["openssl", "pkeyutl", "-verify", "-certin", "-inkey", "a.pem", "-in", "in", "-sigfile", "sig"] + raw
                + one.options.flatMap { ["-pkeyopt", $0] }, in: directory.path, .captured()
        ).wait()
        #expect(output.status == 0, "\(output)")
    }

    @Test("Certificate and keys of an identity have one id, the SHA-1 of the public key, and the name as their label")
    func objects() async throws {
        let web = try authority.issue("www.example.com", kind: .rsa2048),
            mail = try authority.issue("mail", kind: .p384)
        let dialogue = try await TestHost([.init("mail", mail), .init("web", web)]).dialogue()
        #expect(try await dialogue.find().count == 7)
        let objects = try await dialogue.find([(.label, .bytes(Array("web".utf8)))])
        let key = web.certificate.publicKey.derRepresentation
        for (object, kind) in zip(objects, [1, 2, 3] as [UInt64]) {
            #expect(try await dialogue.value(object, .objectClass) == .number(kind))
            #expect(try await dialogue.value(object, .id) == .bytes(Array(Insecure.SHA1.hash(data: key))))
            #expect(try await dialogue.value(object, .publicKeyInfo) == .bytes(key))
            #expect(try await dialogue.value(object, .isPrivate) == .byte(0))
        }
        let der = web.certificate.derRepresentation
        #expect(try await dialogue.value(objects[0], .value) == .bytes(der))
        #expect(try await dialogue.find([(.value, .bytes(der)), (.objectClass, .number(1))]) == [objects[0]])
        guard case .bytes(let serial) = try await dialogue.value(objects[0], .serialNumber) else {
            throw TokenDialogue.Ended()
        }
        #expect(Array(serial.dropFirst(2)) == web.certificate.serialNumber && serial[0] == 2)
        #expect(
            try await dialogue.value(objects[1], .modulus) == web.certificate.publicKey.rsaModulus.map { .bytes($0) })
        #expect(try await dialogue.value(objects[2], .publicExponent) == .bytes([1, 0, 1]))
        // A file had the key: it may have been elsewhere.
        for (type, flag) in [
            (.sign, 1), (.sensitive, 1), (.extractable, 0), (.alwaysSensitive, 0), (.neverExtractable, 0),
        ] as [(AttributeType, UInt8)] {
            #expect(try await dialogue.value(objects[2], type) == .byte(flag), "\(type)")
        }
        let curve = try #require(try await dialogue.find(.publicKey, "mail").first)
        #expect(try await dialogue.value(curve, .ecParameters) == .bytes([6, 5, 0x2b, 0x81, 4, 0, 0x22]))
        #expect(
            try await dialogue.value(curve, .ecPoint) == .bytes([4, 97] + mail.certificate.publicKey.keyBits))
        let issuer = try #require(try await dialogue.find(.certificate, "Test Intermediate").first)
        #expect(try await dialogue.value(issuer, .certificateCategory) == .number(2))
    }

    @Test("The parts of a private key stay in their place, and a size or too little room gets no value")
    func sensitiveAttributes() async throws {
        let identity = try authority.issue("web")
        let dialogue = try await TestHost([.init("web", identity)]).dialogue()
        let key = try #require(try await dialogue.find(.privateKey, "web").first)
        for type in [0x11, 0x123, 0x124, 0x125, 0x126, 0x127, 0x128].map(AttributeType.init(rawValue:)) {
            let found = try await dialogue.attributes(key, [.label, type])
            #expect(found.values == [.bytes(Array("web".utf8)), nil] && found.code == .attributeSensitive)
            #expect(try await dialogue.find([(type, .bytes([]))]).isEmpty)
        }
        #expect(try await dialogue.attributes(key, [.value], room: 0).code == .attributeSensitive)
        #expect(try await dialogue.attributes(key, [.issuer]).code == .attributeTypeInvalid)
        #expect(try await dialogue.attributes(key, [.label], room: 2).code == .bufferTooSmall)
        // A null pointer where the value would be.
        let size = try await dialogue.attributes(key, [.label], room: 0)
        #expect(size.values == [.bytes([])] && size.code == .ok)
    }

    @Test(
        "After a renewal a search finds the new pair, and the old one by its id alone; an old handle signs until its pair is gone"
    )
    func renewal() async throws {
        let old = try authority.issue("web"), new = try authority.issue("web")
        let host = TestHost([.init("web", old)])
        let dialogue = try await host.dialogue()
        let before = try #require(try await dialogue.find(.privateKey, "web").first)
        host.set([.init("web", new, old)])
        let after = try await dialogue.find(.privateKey, "web")
        #expect(after.count == 1 && after[0] != before)
        #expect(
            try await dialogue.value(after[0], .publicKeyInfo) == .bytes(new.certificate.publicKey.derRepresentation))
        let id = try #require(try await dialogue.value(before, .id))
        #expect(try await dialogue.find([(.id, id), (.objectClass, .number(3))]) == [before])
        #expect(try await dialogue.find([(.id, id)]).count == 3)
        let digest = DigestAlgorithm.sha256.digest(of: Self.message)
        for (handle, identity) in [(before, old), (after[0], new)] {
            try await dialogue.signInit(TokenMechanism.ecdsa.rawValue, handle)
            let signature = try #require(try await dialogue.sign(digest).signature)
            try verify(signature, of: digest, .init(kind: .p256, mechanism: .ecdsa, digest: .sha256), identity)
        }
        try await dialogue.signInit(TokenMechanism.ecdsa.rawValue, before)
        host.set([.init("web", new)])
        await #expect(throws: ReturnCode.keyHandleInvalid) { try await dialogue.sign(digest) }
        await #expect(throws: ReturnCode.keyHandleInvalid) {
            try await dialogue.signInit(TokenMechanism.ecdsa.rawValue, before)
        }
        await #expect(throws: ReturnCode.objectHandleInvalid) { try await dialogue.value(before, .label) }
        // Another certificate of the same key.
        let renewed = try Identity(
            certificateChain: [try authority.renew(new, as: "web", notBefore: .now)], key: new.key,
            provenance: new.provenance)
        host.set([.init("web", renewed, new)])
        #expect(try await dialogue.find(.privateKey, "web") == [after[0]])
        let same = try #require(try await dialogue.value(after[0], .id))
        #expect(try await dialogue.find([(.id, same), (.objectClass, .number(1))]).count == 2)
    }

    @Test("Sessions and handles of another connection are none, and a connection has a bounded number")
    func otherConnections() async throws {
        let host = TestHost([.init("web", try authority.issue("web"))])
        let one = try await host.dialogue(), other = try await host.dialogue()
        let key = try #require(try await one.find(.privateKey, "web").first)
        await #expect(throws: ReturnCode.objectHandleInvalid) { try await other.value(key, .label) }
        await #expect(throws: ReturnCode.keyHandleInvalid) {
            try await other.signInit(TokenMechanism.ecdsa.rawValue, key)
        }
        await #expect(throws: ReturnCode.sessionHandleInvalid) {
            _ = try await other.call(.getSessionInfo) { $0.write(one.session) }
        }
        for _ in 1..<256 { _ = try await one.open() }
        await #expect(throws: ReturnCode.sessionCount) { try await one.open() }
        _ = try await one.call(.closeAllSessions) { $0.write(0) }
        await #expect(throws: ReturnCode.sessionHandleInvalid) { try await one.find() }
        _ = try await one.open()
        // The process has ended.
        host.set(nil)
        await #expect(throws: TokenDialogue.Ended.self) { try await other.find() }
    }

    @Test("What the token does not do has its return code")
    func returnCodes() async throws {
        let host = TestHost([
            .init("rsa", try authority.issue("rsa", kind: .rsa2048)),
            .init("web", try authority.issue("web", kind: .p521)),
        ])
        let dialogue = try await host.dialogue()
        let rsa = try #require(try await dialogue.find(.privateKey, "rsa").first)
        let web = try #require(try await dialogue.find(.privateKey, "web").first)
        func expect(_ code: ReturnCode, line: Int = #line, _ body: () async throws -> Void) async {
            await #expect(throws: code, "line \(line)") { try await body() }
        }
        func raw(_ number: UInt32, _ signature: String, _ rest: [UInt8] = []) async throws {
            _ = try await dialogue.send(RPCWriter(number, signature).bytes + rest, .getInfo)
        }
        await expect(.functionNotSupported) { try await raw(66, "uuayay") }
        await expect(.functionNotSupported) { try await raw(59, "uMaAaA") }
        await expect(.functionNotSupported) { try await raw(.max, "") }
        await expect(.argumentsBad) { try await raw(RPCFunction.getInfo.rawValue, "u") }
        await expect(.argumentsBad) { try await raw(RPCFunction.getInfo.rawValue, "", [0]) }
        await expect(.argumentsBad) { try await raw(RPCFunction.openSession.rawValue, "uu", [0, 0]) }
        await expect(.slotIDInvalid) { _ = try await dialogue.call(.getTokenInfo) { $0.write(1) } }
        await expect(.tokenWriteProtected) { _ = try await dialogue.open(6) }
        await expect(.sessionParallelNotSupported) { _ = try await dialogue.open(0) }
        await expect(.cryptokiAlreadyInitialized) { try await dialogue.begin() }
        await expect(.userPINNotInitialized) {
            _ = try await dialogue.call(.login) { writer in
                writer.write(dialogue.session)
                writer.write(1)
                writer.write(Array("123456".utf8), room: .max)
            }
        }
        // The caller can do what a user can, without a login.
        var session = try await dialogue.call(.getSessionInfo) { $0.write(dialogue.session) }
        #expect(try [session.number(), session.number()] == [0, 1])
        await expect(.randomNoRNG) {
            _ = try await dialogue.call(.generateRandom) { writer in
                writer.write(dialogue.session)
                writer.write32(16)
            }
        }
        await expect(.noEvent) { _ = try await dialogue.call(.waitForSlotEvent) { $0.write(1) } }
        await expect(.functionNotSupported) { _ = try await dialogue.call(.waitForSlotEvent) { $0.write(0) } }
        await expect(.argumentsBad) { _ = try await dialogue.find(Array(repeating: (.label, .bytes([])), count: 33)) }
        await expect(.argumentsBad) { _ = try await dialogue.find(room: 8193) }
        _ = try await dialogue.call(.findObjectsFinal) { $0.write(dialogue.session) }
        await expect(.argumentsBad) { _ = try await dialogue.attributes(rsa, [.label], room: 1 << 16 + 1) }
        await expect(.attributeTypeInvalid) {
            _ = try await dialogue.find([(AttributeType(rawValue: 0x4000_0211), .bytes([]))])
        }
        await expect(.operationNotInitialized) {
            _ = try await dialogue.call(.findObjects) { writer in
                writer.write(dialogue.session)
                writer.write32(1)
            }
        }
        await expect(.mechanismInvalid) { try await dialogue.signInit(0x40, rsa) }
        await expect(.keyTypeInconsistent) { try await dialogue.signInit(TokenMechanism.ecdsa.rawValue, rsa) }
        await expect(.mechanismParameterInvalid) { try await dialogue.signInit(TokenMechanism.rsaPSS.rawValue, rsa) }
        await expect(.mechanismParameterInvalid) {
            try await dialogue.signInit(TokenMechanism.ecdsa.rawValue, web, [1, 0])
        }
        await expect(.keyFunctionNotPermitted) {
            let certificate = try #require(try await dialogue.find(.certificate, "rsa").first)
            try await dialogue.signInit(TokenMechanism.rsaPKCS.rawValue, certificate)
        }
        // SHA-1, the concatenation of TLS 1.0, and other bytes than a DigestInfo.
        for data in [[0x30, 0x21] + Array(repeating: 0, count: 33), Array(repeating: 1, count: 36), []] as [[UInt8]] {
            try await dialogue.signInit(TokenMechanism.rsaPKCS.rawValue, rsa)
            await expect(.operationActive) { try await dialogue.signInit(TokenMechanism.rsaPKCS.rawValue, rsa) }
            await expect(.dataInvalid) { _ = try await dialogue.sign(data) }
        }
        for size in [0, 65] {
            try await dialogue.signInit(TokenMechanism.ecdsa.rawValue, web)
            await expect(.dataLengthRange) { _ = try await dialogue.sign(Array(repeating: 1, count: size)) }
        }
        // An operation is ended by a null pointer for its mechanism, and by too many bytes.
        try await dialogue.signInit(TokenMechanism.ecdsa.rawValue, web)
        try await dialogue.signInit(.max, 0, [])
        await expect(.operationNotInitialized) { _ = try await dialogue.sign([1]) }
        try await dialogue.signInit(TokenMechanism.ecdsa.rawValue, web)
        try await dialogue.signUpdate(Array(repeating: 1, count: 60_000))
        await expect(.dataLengthRange) { try await dialogue.signUpdate(Array(repeating: 1, count: 6000)) }
        await expect(.operationNotInitialized) { _ = try await dialogue.sign(nil) }
        _ = try await dialogue.call(.finalize)
        await expect(.cryptokiNotInitialized) { _ = try await dialogue.open() }
    }

    @Test("A key that does not sign digests signs by no mechanism, but for Ed25519")
    func keyWithoutDigests() async throws {
        let identity = try authority.issue("web")
        let whole = try Identity(
            certificateChain: identity.certificateChain, key: WholeMessageKey(identity.key),
            provenance: identity.provenance)
        let dialogue = try await TestHost([.init("web", whole)]).dialogue()
        let key = try #require(try await dialogue.find(.privateKey, "web").first)
        #expect(try await dialogue.value(key, .sign) == .byte(0))
        #expect(try await dialogue.value(key, .neverExtractable) == .byte(1))
        await #expect(throws: ReturnCode.keyFunctionNotPermitted) {
            try await dialogue.signInit(TokenMechanism.ecdsa.rawValue, key)
        }
    }
}

/// A key that hashes the message itself, and cannot leave its place.
private struct WholeMessageKey: IdentityKey {
    private let key: any IdentityKey

    init(_ key: any IdentityKey) { self.key = key }

    var publicKey: PublicKeyInfo { key.publicKey }
    var signatureSchemes: [SignatureScheme] { key.signatureSchemes }
    var location: KeyLocation { .token }

    func signature(for message: [UInt8], using scheme: SignatureScheme) async throws(ProviderError) -> [UInt8] {
        try await key.signature(for: message, using: scheme)
    }
}
