import CertificateProviding
import RemoteMDMProvider
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(5))) struct ESTEnrolmentTests {
    @Test func anIdentityIsEnrolledAndStored() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let storage = InMemoryStorage()
        let provider = try server.provider(storage: storage)
        #expect(try provider.getStoredCertificate() == nil)
        let identity = try await provider.getCertificate(NoUserInteraction())
        #expect(identity.certificate.subject == "CN=client,O=Example")
        try server.verify(identity)
        try await identity.verifyPossession()
        #expect(server.issued == 1)
        let stored = try #require(try server.provider(storage: storage).getStoredCertificate())
        #expect(stored.certificate == identity.certificate)
        try provider.deleteStoredCertificate()
        #expect(try provider.getStoredCertificate() == nil)
    }

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

    /// The current certificate speaks for a renewal.
    @Test(arguments: ["username", "bearer-source", "client-secret-source"])
    func aRenewalNeedsNoSecretThatIsGone(parameter: String) async throws {
        let server = try await ESTServer.start("--auth", "basic+bearer")
        let storage = InMemoryStorage()
        _ = try await server.provider(storage: storage).getCertificate(NoUserInteraction())
        var gone = ["username": "", "password-source": ""]
        switch parameter {
        case "username": gone = ["password-source": "file:/nowhere/password"]
        case "bearer-source": gone[parameter] = "env:GONE"
        default:
            gone.merge([parameter: "systemd:gone", "client-id": "a", "token-url": "https://localhost:1/token"]) { $1 }
        }
        let without = try server.provider(storage: InMemoryStorage(), gone)
        #expect(await code { _ = try await without.getCertificate(NoUserInteraction()) } != nil)
        try server.verify(
            try await server.provider(storage: storage, gone).getCertificate(NoUserInteraction()))
        let last = try #require(try server.requests().last)
        #expect(last["operation"] as? String == "simplereenroll" && last["authorization"] as? String == nil)
    }

    /// The server compares what the request holds with the connection as its own OpenSSL sees it.
    @Test(arguments: ["1.2", "1.3"], ["basic", "digest"])
    func theRequestIsBoundToItsConnection(tls: String, auth: String) async throws {
        let server = try await ESTServer.start("--tls", tls, "--binding", "required", "--auth", auth)
        _ = try await server.provider().getCertificate(NoUserInteraction())
        #expect(try server.requests().contains { $0["binding"] as? String == "matched" })
    }

    /// And presented in the handshake of the renewal.
    @Test(arguments: ["p256", "p384", "p521", "rsa2048", "ed25519"], ["1.2", "1.3"])
    func anyKeyIsCertifiedAndRenewed(type: String, tls: String) async throws {
        let server = try await ESTServer.start("--auth", "basic", "--tls", tls)
        let provider = try server.provider(["key-type": type])
        try server.verify(try await provider.getCertificate(NoUserInteraction()))
        try server.verify(try await provider.getCertificate(NoUserInteraction()))
        #expect(try server.requests().last?["operation"] as? String == "simplereenroll")
    }

    @Test(arguments: [("key:ec:P-384", "EC P-384"), ("key:ed25519", "Ed25519")])
    func whatTheServerWantsIsMade(wish: String, kind: String) async throws {
        let server = try await ESTServer.start("--csrattrs", wish, "--enforce-csrattrs")
        let identity = try await server.provider().getCertificate(NoUserInteraction())
        #expect(identity.certificate.publicKey.displayName == kind)
    }

    @Test func aRenewalTakesANewKeyAndTheOldCertificate() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let provider = try server.provider()
        let first = try await provider.getCertificate(NoUserInteraction())
        let second = try await provider.getCertificate(NoUserInteraction())
        #expect(second.certificate != first.certificate)
        #expect(second.certificate.publicKey != first.certificate.publicKey)
        try server.verify(second)
        let last = try #require(try server.requests().last)
        #expect(last["operation"] as? String == "simplereenroll")
        #expect(try provider.getStoredCertificate()?.certificate == second.certificate)
    }

    /// The server compares what a renewal asks for with the certificate, and has its own ways of writing names.
    @Test func aRenewalAsksForWhatTheCertificateSays() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let settings = ["subject-alternative-names": "dns:client.example"]
        let provider = try server.provider(label: "fault-other-names", settings)
        let first = try await provider.getCertificate(NoUserInteraction())
        #expect(first.certificate.subjectAlternativeNames == ["dns:client.example", "dns:added.example"])
        let second = try await provider.getCertificate(NoUserInteraction())
        #expect(second.certificate.subjectAlternativeNames == first.certificate.subjectAlternativeNames)
        #expect(second.certificate.subjectDER == first.certificate.subjectDER)
        #expect(try server.requests().last?["operation"] as? String == "simplereenroll")
    }

    /// The administrator means what the configuration says now.
    @Test func anotherConfigurationAsksForWhatItSays() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let storage = OneIdentity()
        _ = try await server.provider(storage: storage).getCertificate(NoUserInteraction())
        let provider = try server.provider(storage: storage, ["subject": "CN=renamed,O=Example"])
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .rejected)
        #expect(try server.requests().last?["csr_subject"] as? String == "CN=renamed,O=Example")
    }

    @Test(arguments: [
        ("", "/.well-known/est"), ("label", "/.well-known/est/label"), (".well-known/est", "/.well-known/est"),
        (".well-known/est/label", "/.well-known/est/label"),
        (".well-known/estimate", "/.well-known/est/.well-known/estimate"),
    ])
    func theLabelIsWhatIsNotTheWellKnownPath(path: String, target: String) async throws {
        let server = try await ESTServer.start("--auth", "basic")
        _ = await code { _ = try await server.provider(label: path).getCertificate(NoUserInteraction()) }
        #expect(try server.requests().first?["path"] as? String == "\(target)/cacerts")
    }

    @Test func whatIsPendingGoesOnWithItsKey() async throws {
        let server = try await ESTServer.start("--auth", "basic", "--pending", "1", "--retry-after", "3600")
        let storage = InMemoryStorage()
        #expect(
            await code { _ = try await server.provider(storage: storage).getCertificate(NoUserInteraction()) }
                == .pending)
        let identity = try await server.provider(storage: storage).getCertificate(NoUserInteraction())
        try server.verify(identity)
        let keys = try server.requests().compactMap { $0["csr_sha256"] as? String }
        #expect(keys.count == 2 && Set(keys).count == 1)
    }

    @Test func aWrongPasswordIsRejected() async throws {
        let server = try await ESTServer.start("--auth", "basic", "--password", "another")
        #expect(await code { _ = try await server.provider().getCertificate(NoUserInteraction()) } == .rejected)
        #expect(server.issued == 0)
    }

    @Test func aPinIsLookedAtBeforeAnythingIsSent() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let pin = String(decoding: try server.directory.read("server.pin"), as: UTF8.self)
            .split(whereSeparator: \.isWhitespace).joined()
        _ = try await server.provider(["pin": pin]).getCertificate(NoUserInteraction())
        let before = try server.requests().filter { $0["event"] as? String == "request" }.count
        let another = "sha256/" + String(repeating: "A", count: 43) + "="
        let wrong = try server.provider(["pin": another])
        #expect(await code { _ = try await wrong.getCertificate(NoUserInteraction()) } == .serverNotTrusted)
        let unreadable = try server.provider(["pin": "sha256/abc"])
        #expect(await code { _ = try await unreadable.getCertificate(NoUserInteraction()) } == .configurationInvalid)
        #expect(try server.requests().filter { $0["event"] as? String == "request" }.count == before)
    }

    @Test func aPinAloneIsEnoughWhereThatIsAskedFor() async throws {
        let server = try await ESTServer.start("--auth", "basic", "--server-certificate", "self-signed")
        let settings = ["pin": server.directory["server.pem"], "trust-anchors": ""]
        let strict = try server.provider(settings)
        #expect(await code { _ = try await strict.getCertificate(NoUserInteraction()) } == .serverNotTrusted)
        let pinned = try server.provider(settings.merging(["pin-mode": "pin-only"]) { $1 })
        _ = try await pinned.getCertificate(NoUserInteraction())
        let wrong = try server.provider(
            settings.merging(["pin-mode": "pin-only", "pin": server.directory["ca.pem"]]) { $1 })
        #expect(await code { _ = try await wrong.getCertificate(NoUserInteraction()) } == .serverNotTrusted)
    }

    /// What a server has refused is not sent for the certificate once more, since it may lock accounts.
    @Test(arguments: ["basic", "digest"]) func aPasswordThatIsRefusedForTheWishesIsNotSentAgain(scheme: String)
        async throws
    {
        let server = try await ESTServer.start(
            "--auth", scheme, "--authenticate-csrattrs", "--csrattrs", "key:ec:P-384")
        let wrong = try server.provider(["password-source": "env:WRONG"], variables: ["WRONG": "wr0ng"])
        let error = await #expect(throws: CertificateProviderError.self) {
            try await wrong.getCertificate(NoUserInteraction())
        }
        #expect(error?.code == .rejected && error?.nativeCode == 401)
        #expect(error?.message.contains("wr0ng") == false)
        let requests = try server.requests()
        #expect(requests.compactMap { $0["operation"] as? String } == ["cacerts", "csrattrs", "csrattrs"])
        #expect(requests.compactMap { $0["authorization"] as? String }.count == 1)
        let identity = try await server.provider().getCertificate(NoUserInteraction())
        #expect(identity.certificate.publicKey.curve == "P-384")
    }

    @Test func nobodyIsTrustedWithoutAReason() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let without = try server.provider(["trust-anchors": ""])
        #expect(await code { _ = try await without.getCertificate(NoUserInteraction()) } == .configurationInvalid)
        let stranger = try server.provider(["trust-anchors": server.directory["stranger-ca.pem"]])
        #expect(await code { _ = try await stranger.getCertificate(NoUserInteraction()) } == .serverNotTrusted)
        #expect(try server.requests().allSatisfy { $0["event"] as? String != "request" })
    }
}
