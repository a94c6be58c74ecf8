import AsyncHTTPClient
import CertificateProviding
import NIOSSL
import TestSupport
import Testing

@testable import CertificateTLS

@Suite struct TLSCredentialsTests {
    @Test(arguments: TestAuthority.KeyKind.allCases, KeyHome.allCases)
    func offersWhatTheKeyHas(kind: TestAuthority.KeyKind, home: KeyHome) throws {
        let identity = try Pair.of(kind).client.kept(home)
        let credentials = try TLSCredentials(identity)
        #expect(credentials.signatureAlgorithms.map(\.scheme) == identity.key.signatureSchemes)
        #expect(credentials.isKeyNative == (home == .exportable))
        #expect(credentials.certificateChain.count == 2)
    }

    /// AsyncHTTPClient looks up its contexts by hash, which must not trap for any kind of key.
    @Test(arguments: TestAuthority.KeyKind.allCases, KeyHome.allCases)
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

    @Test func refusesAKeyWithoutASchemeForTLS() throws {
        let identity = try Pair.of(.rsa2048).client
        let restricted = RestrictedKey(inner: identity.key, signatureSchemes: [.rsaPSSPSSSHA256])
        let other = try Identity(
            certificateChain: identity.certificateChain, key: restricted, provenance: identity.provenance)
        #expect { try TLSCredentials(other) } throws: { error in
            guard let error = error as? CertificateProviderError else { return false }
            return error.code == .unsupportedAlgorithm && error.message.contains("rsa_pss_pss_sha256")
        }
    }

    @Test func dropsRepetitions() throws {
        let identity = try authority.get().issue("one")
        let stuttering = RestrictedKey(
            inner: identity.key, signatureSchemes: [.ecdsaP256SHA256, .ecdsaP256SHA256, .init(rawValue: 0xfefe)])
        let other = try Identity(
            certificateChain: identity.certificateChain, key: stuttering, provenance: identity.provenance)
        #expect(try TLSCredentials(other).signatureAlgorithms == [.ecdsaSecp256R1Sha256])
    }
}

private struct RestrictedKey: IdentityKey {
    var inner: any IdentityKey
    var signatureSchemes: [SignatureScheme]
    var publicKey: PublicKeyInfo { inner.publicKey }
    var location: KeyLocation { .token }
    func signature(
        for message: [UInt8], using scheme: SignatureScheme
    ) async throws(CertificateProviderError) -> [UInt8] {
        try await inner.signature(for: message, using: scheme)
    }
}
