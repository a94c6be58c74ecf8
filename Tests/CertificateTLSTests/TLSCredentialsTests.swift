import AsyncHTTPClient
import CertificateProviding
import FoundationEssentials
import NIOSSL
import TestSupport
import Testing

@testable import CertificateTLS

@Suite(.timeLimit(.minutes(20))) struct TLSCredentialsTests {
    @Test(
        "TLS credentials offer the signature schemes of the key", arguments: TestAuthority.KeyKind.allCases,
        KeyHome.allCases)
    func offersWhatTheKeyHas(kind: TestAuthority.KeyKind, home: KeyHome) throws {
        let identity = try Pair.of(kind).client.kept(home)
        let credentials = try TLSCredentials(identity)
        #expect(credentials.signatureAlgorithms.map(\.scheme) == identity.key.signatureSchemes)
        #expect(credentials.isKeyNative == (home == .exportable))
        #expect(credentials.certificateChain.count == 2)
    }

    /// AsyncHTTPClient looks up its contexts by hash, which must not trap for any kind of key.
    @Test(
        "TLS credentials with each kind of key authenticate an HTTP client", arguments: TestAuthority.KeyKind.allCases,
        KeyHome.allCases)
    func servesAnHTTPClient(kind: TestAuthority.KeyKind, home: KeyHome) async throws {
        let authority = try authority.get()
        let identity = try Pair.of(kind).client.kept(home)
        let configuration = try HTTPClient.Configuration.mutualTLS(
            presenting: TLSCredentials(identity), trusting: authority.anchors)
        try await withHTTPServer { group, port in
            try await withHTTPClient(configuration, on: group) { client in
                let seen = try await whoami(client, port: port)
                #expect(seen == identity.fingerprint)
            }
        }
    }

    private func expect(
        _ code: ProviderError.Code, _ fragment: String, from identity: Identity,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        #expect(sourceLocation: sourceLocation) { try TLSCredentials(identity) } throws: { error in
            guard let error = error as? ProviderError else { return false }
            return error.code == code && error.message.contains(fragment)
                && error.provider == identity.provenance.provider
        }
    }

    @Test func refusesAKeyWithoutASchemeForTLS() throws {
        let identity = try Pair.of(.rsa2048).client
        let other = try identity.with(TestKey(identity.key, signatureSchemes: [.rsaPSSPSSSHA256]))
        expect(.unsupportedAlgorithm, "rsa_pss_pss_sha256", from: other)
    }

    @Test func refusesAKeyThatIsOnlyForPSS() throws {
        let certificate = try OpenSSL.certificate(keyOptions: [
            "rsa-pss", "-pkeyopt", "rsa_keygen_bits:2048", "-pkeyopt", "rsa_keygen_pubexp:65537",
        ])
        let identity = try Identity(
            certificateChain: [certificate], key: nonsense(for: certificate.publicKey),
            provenance: .init(provider: ProviderID("test")))
        expect(.unsupportedAlgorithm, "id-RSASSA-PSS", from: identity)
    }

    @Test func refusesACurveThatTLSDoesNotHave() throws {
        let certificate = try OpenSSL.certificate(keyOptions: ["ec", "-pkeyopt", "ec_paramgen_curve:secp256k1"])
        let identity = try Identity(
            certificateChain: [certificate], key: nonsense(for: certificate.publicKey),
            provenance: .init(provider: ProviderID("test")))
        expect(.unsupportedAlgorithm, "use RSA, EC (P-256, P-384, P-521) or Ed25519", from: identity)
    }

    @Test("A certificate that BoringSSL cannot read is refused with the reason", arguments: EncodingFault.allCases)
    func refusesABrokenEncoding(fault: EncodingFault) throws {
        let identity = try Pair.of(.p256).client
        let (leaf, issuer) = (identity.certificate, identity.certificateChain[1])
        let broken = try Identity(
            certificateChain: [fault.applied(to: leaf), issuer], key: identity.key, provenance: identity.provenance)
        expect(.malformedData, "cannot be used for TLS: it has \(fault.words)", from: broken)
        let other = try Identity(
            certificateChain: [leaf, fault.applied(to: issuer)], key: identity.key, provenance: identity.provenance)
        expect(.malformedData, "' in its chain has \(fault.words)", from: other)
        for chain in [broken.certificateChain, other.certificateChain] {
            let error = #expect(throws: ProviderError.self) {
                try TLSCredentials.check(chain, of: identity.provenance.provider)
            }
            #expect(error?.code == .malformedData && error?.message.contains(fault.words) == true)
        }
        try TLSCredentials.check(identity.certificateChain, of: identity.provenance.provider)
    }

    @Test("An identity that TLS takes is not replaced by one that it refuses", arguments: KeyHome.allCases)
    func onlyWhatTLSTakesReplacesIt(home: KeyHome) throws {
        let (good, now) = (try authority.get().issue("good").kept(home), Date())
        let mute = try authority.get().issue("mute", permitsSignatures: false).kept(home)
        let error = #expect(throws: ProviderError.self) {
            try mute.requireUsableInTLS(toReplace: good, at: now)
        }
        #expect(error?.code == .unsupportedAlgorithm)
        #expect(error?.message.hasSuffix("The stored one can be used, and stays in use.") == true, "\(error as Any)")
        // Both may be for signatures.
        try authority.get().issue("mute", permitsSignatures: false).requireUsableInTLS(toReplace: mute, at: now)
        try mute.requireUsableInTLS(toReplace: mute, at: now)
        try good.requireUsableInTLS(toReplace: mute, at: now)
        try authority.get().issue("next").requireUsableInTLS(toReplace: good, at: now)
        // An expired one is still one that TLS takes.
        let old = try authority.get().issue("old", notBefore: now - 7200, notAfter: now - 3600)
        #expect(throws: ProviderError.self) { try mute.requireUsableInTLS(toReplace: old, at: now) }
    }

    @Test(arguments: KeyHome.allCases) func refusesACertificateThatPermitsNoSignatures(home: KeyHome) throws {
        let identity = try authority.get().issue("mute", permitsSignatures: false).kept(home)
        expect(.unsupportedAlgorithm, "its key usage does not permit digital signatures", from: identity)
    }

    @Test(arguments: TestAuthority.KeyKind.allCases) func refusesAKeyThatIsExportedAsAnother(
        kind: TestAuthority.KeyKind
    ) throws {
        let (identity, other) = (try Pair.of(kind).client, try Pair.of(kind).server)
        let mixed = try identity.with(
            TestKey(other.key, publicKey: identity.certificate.publicKey, exporter: other.key.exporter))
        expect(.keyMismatch, "does not match its certificate", from: mixed)
    }

    @Test func refusesAKeyThatIsExportedAsNonsense() throws {
        let identity = try Pair.of(.p256).client
        let broken = try identity.with(nonsense(for: identity.certificate.publicKey))
        expect(.unsupportedAlgorithm, "cannot load its key", from: broken)
    }

    @Test("TLS credentials drop repeated and unknown signature schemes")
    func dropsRepetitions() throws {
        let identity = try authority.get().issue("one")
        let stuttering = TestKey(
            identity.key, signatureSchemes: [.ecdsaP256SHA256, .ecdsaP256SHA256, .init(rawValue: 0xfefe)])
        #expect(try TLSCredentials(identity.with(stuttering)).signatureAlgorithms == [.ecdsaSecp256R1Sha256])
    }
}

/// A key that is exported as three bytes that are none.
private func nonsense(for publicKey: PublicKeyInfo) throws -> TestKey {
    struct Nonsense: KeyExporting {
        func pkcs8Representation() -> SecretBytes { SecretBytes(copying: [1, 2, 3]) }
    }
    return TestKey(try SoftwareKey.generate(.p256, location: .file), publicKey: publicKey, exporter: Nonsense())
}
