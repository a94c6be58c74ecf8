import CertificateProviding
import TestSupport
import Testing

@testable import PKCS11TokenProvider

/// Signatures in the forms that modules give them.
@Suite struct SignatureTests {
    private func encoded(
        _ bytes: [UInt8], _ scheme: SignatureScheme, _ kind: TestAuthority.KeyKind
    ) throws -> [UInt8] {
        let key = try TestAuthority().issue("key", kind: kind).key.publicKey
        return try TokenSignature(bytes: bytes, scheme: scheme).encoded(for: key, token: "alpha")
    }

    /// Two numbers as DER.
    private func der(_ r: [UInt8], _ s: [UInt8]) -> [UInt8] {
        let body = [2, UInt8(r.count)] + r + [2, UInt8(s.count)] + s
        return [0x30, UInt8(body.count)] + body
    }

    @Test func ecdsaOfAnyForm() throws {
        let (r, s) = ([UInt8](repeating: 0x11, count: 31), [UInt8](repeating: 0x22, count: 31))
        let expected = der(r, s)
        for bytes in [[0] + r + [0] + s, r + s, [0, 0] + r + [0, 0] + s, expected] {
            #expect(try encoded(bytes, .ecdsaP256SHA256, .p256) == expected)
        }
        #expect(try encoded(r + s, .ecdsaP384SHA384, .p384) == expected)
        #expect(try encoded(r + s, .ecdsaP521SHA512, .p521) == expected)
    }

    @Test("A signature of a wrong length is not an ECDSA signature", arguments: [0, 1, 63, 65, 66, 128])
    func whatIsNoECDSASignature(count: Int) throws {
        #expect(throws: ProviderError.self) {
            try encoded([UInt8](repeating: 0x11, count: count), .ecdsaP256SHA256, .p256)
        }
    }

    /// A number below the modulus has leading zeros now and then.
    @Test func rsaIsAsLongAsItsModulus() throws {
        let digits = [UInt8](repeating: 0x11, count: 254)
        for bytes in [digits, [0, 0] + digits, [0, 0, 0] + digits] {
            #expect(try encoded(bytes, .rsaPSSRSAESHA256, .rsa2048) == [0, 0] + digits)
        }
        for bytes in [[], [1, 1, 1] + digits] {
            #expect(throws: ProviderError.self) { try encoded(bytes, .rsaPSSRSAESHA256, .rsa2048) }
        }
    }

    /// Objects of other programs on a token that no peer of ours would accept.
    @Test(.serialized, arguments: ["EC 1.3.132.0.10", "Ed448"]) func aKindOfKeyThatCannotBeUsedIsNamed(kind: String)
        async throws
    {
        let tokens = try EmptyTokens.shared.get()
        let folder = try TemporaryDirectory()
        let (name, id) = kind == "Ed448" ? ("edwards", "e1") : ("koblitz", "e2")
        let algorithm = kind == "Ed448" ? ["ED448"] : ["EC", "-pkeyopt", "ec_paramgen_curve:secp256k1"]
        try Subprocess.run(["openssl", "genpkey", "-out", folder["key.pem"], "-algorithm"] + algorithm)
        try Subprocess.openssl(
            "req", "-x509", "-new", "-key", "key.pem", "-subj", "/CN=client", "-outform", "DER", "-out", "cert",
            in: folder.path)
        try tokens.run(
            "softhsm2-util", "--import", folder["key.pem"], "--token", "kinds", "--label", name, "--id", id, "--pin",
            EmptyTokens.pin)
        try tokens.write("cert", folder["cert"], labelled: name, to: .kinds, id: id)
        let provider = try tokens.provider(.kinds, object: ";object=\(name)")
        let error = try #require(await failure { try await provider.getCertificate(NoUserInteraction()) })
        #expect(error.code == .unsupportedAlgorithm && error.message.contains("\(kind) keys are not supported"))
        // Beside one that can, it is not meant.
        let good = try TestAuthority().issue("good")
        let key = try #require(good.key.exporter)
        let der = try folder.write(key.pkcs8Representation().withUnsafeBytes { Array($0) }, to: "good.key")
        let certificate = try folder.write(good.certificate.derRepresentation, to: "good.crt")
        try tokens.write("privkey", der, labelled: "good", to: .kinds, id: "f1")
        try tokens.write("cert", certificate, labelled: "good", to: .kinds, id: "f1")
        #expect(try await tokens.provider(.kinds).getCertificate(NoUserInteraction()).certificate == good.certificate)
        for type in ["privkey", "cert"] { try tokens.destroy(type, labelled: "good", on: .kinds) }
    }
}
