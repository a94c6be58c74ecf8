import CertificateProviding
import Enrolment
import Glibc
import RemoteMDMProvider
import TestSupport
import Testing

/// Enrolment with a server that shares no code with the client: its TLS is OpenSSL's, and its certificates are those of
/// Python's cryptography.
@Suite(.timeLimit(.minutes(20))) struct IndependentServerTests {
    @Test(
        "The client enrols and renews with each authentication scheme and TLS version",
        arguments: ["basic", "digest", "bearer", "certificate"], ["1.2", "1.3"])
    func theServerKnowsTheClient(by scheme: String, tls: String) async throws {
        let server = try await ESTServer.start("--auth", scheme, "--tls", tls)
        let (certificate, key) = (server.directory["manufacturer.pem"], server.directory["manufacturer.key"])
        chmod(key, 0o600)
        var settings = scheme == "basic" || scheme == "digest" ? [:] : ["username": "", "password-source": ""]
        if scheme == "bearer" { settings["bearer-source"] = "env:TOKEN" }
        if scheme == "certificate" {
            settings.merge(["client-certificate": certificate, "client-key-source": "file:\(key)"]) { $1 }
        }
        let provider = try server.provider(settings)
        try server.verify(try await provider.getCertificate(NoUserInteraction()))
        #expect(server.issued == 1)
        try server.verify(try await provider.getCertificate(NoUserInteraction()))
        #expect(server.issued == 2)
        #expect(try server.requests().last?["operation"] as? String == "simplereenroll")
    }

    /// Of TCP, and of OpenSSL. A pair of sockets has no RST.
    @Test("Each way that a connection can end gives a certificate or the expected error code")
    func aConnectionMayEndAnywhere() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let expected: [(String, [ProviderError.Code?])] = [
            ("close-after-request", [.unavailable]), ("half-close", [.unavailable]), ("no-length", [nil]),
            ("close-after-answer", [nil]), ("endless", [.protocolError]), ("headers-endless", [.protocolError]),
            ("cut-400", [.unavailable, .protocolError]), ("cut-400-abrupt", [.unavailable, .protocolError]),
            ("cut-400-reset", [.unavailable, .protocolError]), ("cut-0-reset", [.unavailable]),
        ]
        for (fault, codes) in expected {
            let provider = try server.provider(label: "fault-\(fault)")
            let code = await code { _ = try await provider.getCertificate(NoUserInteraction()) }
            #expect(codes.contains(code), "\(fault): \(String(describing: code))")
        }
    }

    /// One challenge is answered again and again, and its session's key is that of the first answer.
    @Test(
        "A Digest session remains valid for all polls of a pending enrolment", arguments: ["MD5-sess", "SHA-256-sess"])
    func aSessionOfDigestGoesOn(algorithm: String) async throws {
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

    @Test(
        "A server-generated key becomes the key of the identity",
        arguments: [("pkcs8", "p256"), ("pkcs8", "p384"), ("pkcs8", "rsa2048"), ("pkcs1", "rsa2048")])
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
        // The key that signed the request is destroyed.
        let sent = asked.compactMap { $0["csr_key_sha256"] as? String }
        #expect(!sent.contains(first.certificate.publicKey.sha256.hexEncoded))
    }
}
