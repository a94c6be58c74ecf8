import CertificateProviding
import CertificateTLS
import Enrolment
import Foundation
import NIOCore
import TestSupport
import Testing

@testable import ProviderTransport
@testable import RemoteMDMProvider

@Suite(.timeLimit(.minutes(20))) struct ESTEnrolmentTests {
    @Test func anIdentityIsEnrolledAndStored() async throws {
        let server = try ESTResponder(.basic)
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

    /// The current certificate speaks for a renewal.
    @Test(arguments: ["username", "bearer-source", "client-secret-source"])
    func aRenewalNeedsNoSecretThatIsGone(parameter: String) async throws {
        let server = try ESTResponder([.basic, .bearer])
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
        let last = try #require(server.requests.last)
        #expect(last.operation == .simplereenroll && last.authorization == nil)
    }

    @Test(
        "A key of the type that the server requests is generated",
        arguments: [("key:ec:P-384", "EC P-384"), ("key:ed25519", "Ed25519")])
    func whatTheServerWantsIsMade(wish: String, kind: String) async throws {
        let server = try ESTResponder([], .init(wishes: [wish], enforcesWishes: true))
        let identity = try await server.provider().getCertificate(NoUserInteraction())
        #expect(identity.certificate.publicKey.displayName == kind)
    }

    @Test func aRenewalTakesANewKeyAndTheOldCertificate() async throws {
        let server = try ESTResponder(.basic)
        let provider = try server.provider()
        let first = try await provider.getCertificate(NoUserInteraction())
        let second = try await provider.getCertificate(NoUserInteraction())
        #expect(second.certificate != first.certificate)
        #expect(second.certificate.publicKey != first.certificate.publicKey)
        try server.verify(second)
        let last = try #require(server.requests.last)
        #expect(last.operation == .simplereenroll)
        #expect(try provider.getStoredCertificate()?.certificate == second.certificate)
    }

    /// The server compares the names of a renewal with the certificate, and writes names in its own form.
    @Test func aRenewalAsksForWhatTheCertificateSays() async throws {
        let server = try ESTResponder(.basic)
        let asked = #"dns:client.example, upn:alice@example.com, "uri:https://a.example/x,y""#
        let settings = ["subject-alternative-names": asked]
        let provider = try server.provider(label: "fault-other-names", settings)
        let first = try await provider.getCertificate(NoUserInteraction())
        #expect(
            first.certificate.subjectAlternativeNames == [
                .dns("client.example"), .upn("alice@example.com"), .uri("https://a.example/x,y"),
                .dns("added.example"),
            ])
        let second = try await provider.getCertificate(NoUserInteraction())
        #expect(second.certificate.subjectAlternativeNames == first.certificate.subjectAlternativeNames)
        #expect(second.certificate.subjectDER == first.certificate.subjectDER)
        #expect(server.requests.last?.operation == .simplereenroll)
    }

    /// The administrator means what the configuration says now.
    @Test("A renewal with a changed 'subject' requests the configured name")
    func anotherConfigurationAsksForWhatItSays() async throws {
        let server = try ESTResponder(.basic)
        let storage = OneIdentity()
        _ = try await server.provider(storage: storage).getCertificate(NoUserInteraction())
        let provider = try server.provider(storage: storage, ["subject": "CN=renamed,O=Example"])
        // The server refuses another name in a renewal, and issues it for the password.
        let renamed = try await provider.getCertificate(NoUserInteraction())
        #expect(renamed.certificate.subject == "CN=renamed,O=Example")
        let asked = server.requests.filter { $0.csrSubject == "CN=renamed,O=Example" }
        #expect(asked.map(\.operation).first == .simplereenroll && asked.last?.operation == .simpleenroll)
    }

    @Test(
        "The EST label is the path of the URL without /.well-known/est",
        arguments: [
            ("", "/.well-known/est"), ("label", "/.well-known/est/label"), (".well-known/est", "/.well-known/est"),
            (".well-known/est/label", "/.well-known/est/label"),
            (".well-known/estimate", "/.well-known/est/.well-known/estimate"),
        ])
    func theLabelIsWhatIsNotTheWellKnownPath(path: String, target: String) async throws {
        let server = try ESTResponder(.basic)
        _ = await code { _ = try await server.provider(label: path).getCertificate(NoUserInteraction()) }
        #expect(server.requests.first?.path == "\(target)/cacerts")
    }

    @Test func aWrongPasswordIsRejected() async throws {
        let server = try ESTResponder(.basic, .init(password: "another"))
        #expect(await code { _ = try await server.provider().getCertificate(NoUserInteraction()) } == .rejected)
        #expect(server.issued == 0)
    }

    @Test func aPinIsLookedAtBeforeAnythingIsSent() async throws {
        let server = try ESTResponder(.basic)
        let pin = String(decoding: try server.directory.read("server.pin"), as: UTF8.self)
            .split(whereSeparator: \.isWhitespace).joined()
        _ = try await server.provider(["pin": pin]).getCertificate(NoUserInteraction())
        let before = server.requests.count
        let another = "sha256/" + String(repeating: "A", count: 43) + "="
        let wrong = try server.provider(["pin": another])
        let refusal = await #expect(throws: ProviderError.self) {
            try await wrong.getCertificate(NoUserInteraction())
        }
        #expect(refusal?.code == .serverNotTrusted)
        #expect(refusal?.message.contains(":\(server.port): The server's certificate is not trusted") == true)
        let unreadable = try server.provider(["pin": "sha256/abc"])
        #expect(await code { _ = try await unreadable.getCertificate(NoUserInteraction()) } == .configurationInvalid)
        #expect(server.requests.count == before)
    }

    @Test func aPinAloneIsEnoughWhereThatIsAskedFor() async throws {
        let server = try ESTResponder(.basic, .init(serverCertificate: .selfSigned))
        let settings = ["pin": server.directory["server.pem"], "trust-anchors": ""]
        let strict = try server.provider(settings)
        #expect(await code { _ = try await strict.getCertificate(NoUserInteraction()) } == .serverNotTrusted)
        let pinned = try server.provider(settings.merging(["pin-mode": "pin-only"]) { $1 })
        _ = try await pinned.getCertificate(NoUserInteraction())
        let wrong = try server.provider(
            settings.merging(["pin-mode": "pin-only", "pin": server.directory["ca.pem"]]) { $1 })
        #expect(await code { _ = try await wrong.getCertificate(NoUserInteraction()) } == .serverNotTrusted)
    }

    /// A password that a server has refused is not sent for the certificate once more, since the server may lock accounts.
    @Test(
        "A password rejected for /csrattrs is not sent again for the enrolment",
        arguments: [ESTAuthentication.basic, .digest])
    func aPasswordThatIsRefusedForTheWishesIsNotSentAgain(scheme: ESTAuthentication) async throws {
        let server = try ESTResponder(scheme, .init(wishes: ["key:ec:P-384"], authenticatesWishes: true))
        let wrong = try server.provider(["password-source": "env:WRONG"], variables: ["WRONG": "wr0ng"])
        let error = await #expect(throws: ProviderError.self) {
            try await wrong.getCertificate(NoUserInteraction())
        }
        #expect(error?.code == .rejected && error?.nativeCode == 401)
        #expect(error?.message.contains("wr0ng") == false)
        let requests = server.requests
        #expect(requests.map(\.operation) == [.cacerts, .csrattrs, .csrattrs])
        #expect(requests.compactMap { $0.authorization }.count == 1)
        let identity = try await server.provider().getCertificate(NoUserInteraction())
        #expect(identity.certificate.publicKey.curve == "P-384")
    }

    @Test("Without a matching trust anchor, no request is sent to the server")
    func nobodyIsTrustedWithoutAReason() async throws {
        let server = try ESTResponder(.basic)
        let without = try server.provider(["trust-anchors": ""])
        #expect(await code { _ = try await without.getCertificate(NoUserInteraction()) } == .configurationInvalid)
        let stranger = try server.provider(["trust-anchors": server.directory["stranger-ca.pem"]])
        #expect(await code { _ = try await stranger.getCertificate(NoUserInteraction()) } == .serverNotTrusted)
        #expect(server.requests.isEmpty)
    }

    @Test("A connection reads the file of the trust anchors once")
    func theTrustAnchorsAreReadOnce() async throws {
        let server = try ESTResponder()
        let file = server.directory["ca.pem"]
        let session = AuthenticatingSession(
            try #require(ServerURL("https://localhost:\(server.port)")),
            ServerSecurity(trust: ServerTrust(trustAnchors: .pemFile(file))), .none,
            over: RemovingNetwork(network: server.network, file: file))
        try await session.connect(before: .now() + .seconds(600))
        #expect(!FileManager.default.fileExists(atPath: file))
    }
}

/// Removes a file before it connects.
private struct RemovingNetwork: Network {
    let network: InMemoryNetwork
    let file: String

    var eventLoopGroup: any EventLoopGroup { network.eventLoopGroup }

    func connect(
        to host: String, port: Int, on eventLoop: any EventLoop, timeout: TimeAmount,
        prepare: @escaping @Sendable (any Channel) -> EventLoopFuture<Void>
    ) -> EventLoopFuture<any Channel> {
        try? FileManager.default.removeItem(atPath: file)
        return network.connect(to: host, port: port, on: eventLoop, timeout: timeout, prepare: prepare)
    }
}
