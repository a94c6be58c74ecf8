import CertificateProviding
import Enrolment
import NIOHTTP1
import TestSupport
import Testing

@testable import ProviderTransport
@testable import RemoteMDMProvider

/// SCEP over https: what says which CA it is, and what says which server.
@Suite(.timeLimit(.minutes(20))) struct SCEPOverTLSTests {
    private let folder: TemporaryDirectory
    private let identity: Identity
    private let server: SCEPHTTPServer
    private let fingerprint: String

    init() async throws {
        folder = try TemporaryDirectory()
        let web = try TestAuthority("Web")
        let authority = try CertifiedKey.authority.get().certificate
        fingerprint = authority.sha256Fingerprint.hexEncoded
        identity = try web.issue("web")
        server = try await SCEPHTTPServer(SCEPResponder(), showing: identity)
        try folder.write(identity.certificate.pemRepresentation.utf8, to: "leaf.pem")
        try folder.write(web.root.pemRepresentation.utf8, to: "web.pem")
        try folder.write((web.root.pemRepresentation + authority.pemRepresentation).utf8, to: "both.pem")
    }

    private func provider(
        _ settings: [String: String], storage: any IdentityStorage = InMemoryStorage()
    ) throws -> EnrollingProvider {
        let environment = ProviderEnvironment.testing(
            storage: storage, variables: ["CHALLENGE": SCEPServer.challenge, "TOKEN": "t0ken", "SECRET": "estsecret"],
            transport: Transport(retryPolicy: TurnedClock().retryPolicy))
        let parameters = [
            "protocol": "scep", "url": server.url, "challenge-source": "env:CHALLENGE",
            "subject": "CN=client,O=Example", "timeout": "600",
        ].merging(settings) { $1 }
        let provider = try RemoteMDMProvider.make(
            environment: environment, parameters: ProviderParameters(parameters.mapValues { .init($0) }))
        return provider
    }

    /// For the CA and for the connection.
    @Test(
        "Trust settings for both the CA and the TLS server allow the enrolment",
        arguments: [
            ["trust-anchors": "both"], ["trust-anchors": "both", "ca-fingerprint": ""],
            ["pin": "leaf", "pin-mode": "pin-only", "ca-fingerprint": ""],
            ["pin": "leaf", "pin-mode": "pin-only", "trust-anchors": "both"],
        ])
    func bothAreKnown(settings: [String: String]) async throws {
        var settings = settings
        for (name, file) in settings where name != "pin-mode" { settings[name] = folder["\(file).pem"] }
        if settings["ca-fingerprint"] != nil { settings["ca-fingerprint"] = fingerprint }
        _ = try await provider(settings).getCertificate(NoUserInteraction())
        #expect(server.requests.last?.operation == "PKIOperation")
    }

    @Test("A CA that matches 'ca-fingerprint' must also match the trust anchors")
    func anchorsAreForTheCAAsWell() async throws {
        let settings = ["trust-anchors": folder["web.pem"], "ca-fingerprint": fingerprint]
        #expect(
            await code { _ = try await provider(settings).getCertificate(NoUserInteraction()) } == .serverNotTrusted)
        #expect(server.operations == ["GetCACert"])
    }

    /// The host's list is left for the connection, and this server is not on it.
    @Test("With 'ca-fingerprint' alone, the system trust store verifies the TLS server")
    func withAFingerprintAloneTheConnectionIsOneOfTheWeb() async throws {
        for settings in [["ca-fingerprint": fingerprint], ["ca-fingerprint": fingerprint, "pin": folder["leaf.pem"]]] {
            #expect(
                await code { _ = try await provider(settings).getCertificate(NoUserInteraction()) } == .serverNotTrusted
            )
        }
        #expect(server.requests.isEmpty)
        for more in [
            ["username": "somebody"], ["bearer-source": "env:TOKEN"],
            [
                "token-url": "https://localhost/token", "client-id": "x",
                "client-secret-source": "env:SECRET",
            ],
        ] {
            let settings = ["ca-fingerprint": fingerprint].merging(more) { $1 }
            #expect(await code { _ = try provider(settings) } == .configurationInvalid, "\(more)")
        }
    }

    /// It says nothing of the CA, for which a person is asked once.
    @Test func withAPinAloneAPersonIsAskedForTheAuthority() async throws {
        let storage = InMemoryStorage()
        let settings = ["pin": folder["leaf.pem"], "pin-mode": "pin-only"]
        let provider = try provider(settings, storage: storage)
        let error = await #expect(throws: ProviderError.self) {
            try await provider.getCertificate(NoUserInteraction())
        }
        #expect(error?.code == .configurationInvalid && error?.message.contains("'ca-fingerprint'") == true)
        #expect(server.requests.isEmpty)
        let person = Person(confirming: true)
        _ = try await provider.getCertificate(person)
        #expect(person.questions.count == 1)
        _ = try await self.provider(settings, storage: storage).getCertificate(NoUserInteraction())
    }

    @Test("Without trust settings, no request is sent and the user is not asked")
    func withNothingThereIsNothingToAsk() async throws {
        let provider = try provider([:])
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .configurationInvalid)
        let person = Person(confirming: true)
        #expect(await code { _ = try await provider.getCertificate(person) } == .serverNotTrusted)
        #expect(person.questions.isEmpty && server.requests.isEmpty)
    }

    @Test func aPinIsNotForPlainHTTP() async throws {
        let plain = ["url": "http://localhost/scep", "ca-fingerprint": fingerprint, "pin": folder["leaf.pem"]]
        #expect(await code { _ = try provider(plain) } == .configurationInvalid)
    }

    private var pinned: [String: String] {
        ["ca-fingerprint": fingerprint, "pin": folder["leaf.pem"], "pin-mode": "pin-only"]
    }
    private static let credentials = [
        ["username": "somebody", "password-source": "env:SECRET"], ["bearer-source": "env:TOKEN"],
    ]

    private static func demand() -> HTTPResponse {
        HTTPResponse(status: 401, headers: ["WWW-Authenticate": "Basic realm=\"x\""], body: [])
    }

    @Test(
        "A password or a token that is refused for an optional operation is not sent for the next one",
        arguments: ["GetCACaps", "GetNextCACert"], Self.credentials)
    func refusedCredentialsAreSentOnce(operation: String, credentials: [String: String]) async throws {
        let responder = try SCEPResponder()
        let server = try await SCEPHTTPServer(showing: identity) { request in
            request.operation == operation ? Self.demand() : try responder.answer(request)
        }
        let provider = try provider(pinned.merging(credentials) { $1 }.merging(["url": server.url]) { $1 })
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .rejected)
        #expect(server.operations.last == operation)
        let refused = server.requests.filter { $0.operation == operation }
        #expect(refused.count { $0.headers.contains(name: "Authorization") } == 1)
    }

    /// The first one was replaced for GetCACert, and another one so soon after that would be refused as well.
    @Test("A token that is refused for GetCACaps and cannot be replaced is not sent for the next operation")
    func aTokenThatCannotBeReplacedIsSentOnce() async throws {
        let responder = try SCEPResponder()
        let seen = Counter()
        let server = try await SCEPHTTPServer(showing: identity) { request in
            seen.increment()
            return seen.value == 1 || request.operation == "GetCACaps"
                ? Self.demand() : try responder.answer(request)
        }
        let issuer = try await ESTServer.start("--auth", "oauth")
        let settings = pinned.merging(oauth(issuer)) { $1 }.merging(["url": server.url]) { $1 }
        let provider = try provider(settings)
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .rejected)
        #expect(server.operations == ["GetCACert", "GetCACert", "GetCACaps"])
    }

    private func oauth(_ issuer: ESTServer) -> [String: String] {
        [
            "token-url": "https://localhost:\(issuer.port)/token", "client-id": "estclient",
            "client-secret-source": "env:SECRET", "token-trust-anchors": issuer.directory["ca.pem"],
        ]
    }

    /// RFC 8894, section 3.5.1.
    @Test(
        "A server that has accepted the credentials may refuse GetCACaps", arguments: [403, 404], Self.credentials)
    func aRefusedOperationIsNoRefusalOfCredentials(status: Int, credentials: [String: String]) async throws {
        let responder = try SCEPResponder(.init(statuses: ["GetCACaps": status]))
        let server = try await SCEPHTTPServer(showing: identity) { request in
            request.headers.contains(name: "Authorization") ? try responder.answer(request) : Self.demand()
        }
        let provider = try provider(pinned.merging(credentials) { $1 }.merging(["url": server.url]) { $1 })
        _ = try await provider.getCertificate(NoUserInteraction())
        #expect(server.operations.last == "PKIOperation")
    }

    /// For the layer of HTTP, as a gateway before the CA may want it.
    @Test func tokensGoWithEachRequest() async throws {
        _ = try await provider(pinned.merging(["bearer-source": "env:TOKEN"]) { $1 })
            .getCertificate(NoUserInteraction())
        #expect(server.requests.last?.operation == "PKIOperation")
        #expect(server.requests.allSatisfy { $0.headers["Authorization"] == ["Bearer t0ken"] })

        let before = server.requests.count
        let issuer = try await ESTServer.start("--auth", "oauth")
        _ = try await provider(pinned.merging(oauth(issuer)) { $1 }).getCertificate(NoUserInteraction())
        #expect(try issuer.requests().compactMap { $0["grant_type"] as? String } == ["client_credentials"])
        let sent = Set(server.requests.dropFirst(before).map { $0.headers["Authorization"] })
        #expect(sent.count == 1 && sent.first?.first?.hasPrefix("Bearer ") == true)
    }
}
