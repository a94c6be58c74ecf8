import CertificateProviding
import Foundation
import PKCS11TokenProvider
import TestSupport
import Testing

/// Requests that are signed on a token, read by OpenSSL.
@Suite struct RequestTests {
    private let tokens: EmptyTokens

    init() throws { tokens = try EmptyTokens.shared.get() }

    @Test(arguments: [KeyType.p256, .p384, .p521, .rsa2048, .ed25519])
    func opensslAcceptsTheRequest(type: KeyType) async throws {
        let provider = try tokens.provider(.types)
        let key = try await provider.generateKey(type, label: "request", NoUserInteraction())
        let request = try await CertificateRequest(
            CertificateRequest.Names(
                subject: "CN=a\\, b,OU=x+L=y,O=\u{e9}xample,C=DE",
                subjectAlternativeNames: [
                    .dns("host.example"), .ip([192, 0, 2, 1]), AlternativeName("ip:2001:db8::7"),
                    .email("me@example.org"), .uri("https://a.example/x,y"), .upn("alice@example.com"),
                ]), key: key)
        let folder = try TemporaryDirectory()
        let file = try folder.write(request.pemRepresentation.utf8, to: "request.pem")
        let text = String(
            decoding: try Subprocess.run(
                ["openssl", "req", "-verify", "-in", file, "-noout", "-text", "-nameopt", "RFC2253,utf8,-esc_msb"]),
            as: UTF8.self)
        #expect(text.contains("CN=a\\, b,"), "\(text)")
        #expect(text.contains("O=\u{e9}xample,C=DE"), "\(text)")
        #expect(
            text.contains(
                "DNS:host.example, IP Address:192.0.2.1, IP Address:2001:DB8:0:0:0:0:0:7, email:me@example.org, "
                    + "URI:https://a.example/x,y, othername: UPN::alice@example.com"), "\(text)")
        try await provider.discard(key, NoUserInteraction())
    }
}
