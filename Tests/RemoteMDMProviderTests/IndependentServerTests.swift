import CertificateProviding
import RemoteMDMProvider
import TestSupport
import Testing

/// Enrolment with a server that shares no code with the client: its TLS is OpenSSL's, and its certificates are those of
/// Python's cryptography.
@Suite(.timeLimit(.minutes(5))) struct IndependentServerTests {
    @Test(arguments: ["basic", "digest", "bearer"], ["1.2", "1.3"])
    func theServerKnowsTheClient(by scheme: String, tls: String) async throws {
        let server = try await ESTServer.start("--auth", scheme, "--tls", tls)
        let settings = scheme == "bearer" ? ["username": "", "password-source": "", "bearer-source": "env:TOKEN"] : [:]
        try server.verify(try await server.provider(settings).getCertificate(NoUserInteraction()))
        #expect(server.issued == 1)
    }

    /// One challenge is answered again and again, and its session's key is that of the first answer.
    @Test(arguments: ["MD5-sess", "SHA-256-sess"]) func aSessionOfDigestGoesOn(algorithm: String) async throws {
        let server = try await ESTServer.start(
            "--auth", "digest", "--digest-algorithm", algorithm, "--pending", "2", "--retry-after", "1")
        try server.verify(try await server.provider(clock: TurnedClock()).getCertificate(NoUserInteraction()))
        let statuses = try server.requests().filter { $0["operation"] as? String == "simpleenroll" }
            .map { $0["status"] as? Int }
        #expect(statuses == [401, 202, 202, 200])
    }

    /// The server compares what the request holds with the connection as its own OpenSSL sees it.
    @Test(arguments: ["1.2", "1.3"], ["basic", "digest"])
    func theRequestIsBoundToItsConnection(tls: String, auth: String) async throws {
        let server = try await ESTServer.start("--tls", tls, "--binding", "required", "--auth", auth)
        _ = try await server.provider().getCertificate(NoUserInteraction())
        #expect(try server.requests().contains { $0["binding"] as? String == "matched" })
    }

    /// And presented in the handshake of the renewal.
    @Test(arguments: ["1.2", "1.3"]) func anyKeyIsCertifiedAndRenewed(tls: String) async throws {
        let server = try await ESTServer.start("--auth", "basic", "--tls", tls)
        for type in ["p256", "p384", "p521", "rsa2048", "ed25519"] {
            let provider = try server.provider(["key-type": type])
            try server.verify(try await provider.getCertificate(NoUserInteraction()))
            try server.verify(try await provider.getCertificate(NoUserInteraction()))
            #expect(try server.requests().last?["operation"] as? String == "simplereenroll", "\(type)")
        }
    }

    @Test(arguments: [("pkcs8", "p256"), ("pkcs8", "p384"), ("pkcs8", "rsa2048"), ("pkcs1", "rsa2048")])
    func theServersKeyIsTheIdentitys(form: String, type: String) async throws {
        let server = try await ESTServer.start("--auth", "basic", "--serverkeygen", form)
        let storage = InMemoryStorage()
        let settings = ["server-keygen": "true", "key-type": type]
        let first = try await server.provider(storage: storage, settings).getCertificate(NoUserInteraction())
        try server.verify(first)
        try await first.verifyPossession()
        let again = try await server.provider(storage: storage, settings).getCertificate(NoUserInteraction())
        try server.verify(again)
        #expect(again.certificate.publicKey != first.certificate.publicKey)
        let stored = try server.provider(storage: storage, settings).getStoredCertificate()
        #expect(stored?.certificate == again.certificate)
        let asked = try server.requests().filter { $0["serial"] as? String != nil }
        #expect(asked.map { $0["operation"] as? String } == ["serverkeygen", "serverkeygen"])
        // The key that had signed the request is nobody's.
        let sent = asked.compactMap { $0["csr_key_sha256"] as? String }
        #expect(!sent.contains(first.certificate.publicKey.sha256.hexEncoded))
    }
}
