import CertificateProviding
import CertificateTLS
import Enrolment
import Foundation
import NIOCore
import Synchronization
import TestSupport
import Testing

@testable import ProviderTransport
@testable import RemoteMDMProvider

/// A renewal whose certificate the server refuses in the TLS handshake. In TLS 1.3 that shows after the handshake.
@Suite(.timeLimit(.minutes(20))) struct RefusedCertificateTests {
    private static let refusals = ["unknown-ca", "close", "close-notify"]

    /// Requests that the server has issued for.
    private func enrolments(_ server: ESTServer) throws -> [[String: Any]] {
        try server.requests().filter { $0["status"] as? Int == 200 && $0["serial"] is String }
    }

    @Test("If the server refuses the current certificate, the password renews", arguments: refusals, ["1.2", "1.3"])
    func thePasswordRenewsInstead(refusal: String, version: String) async throws {
        let server = try await ESTServer.start("--auth", "basic", "--refuse-clients", refusal, "--tls", version)
        let (storage, log) = (InMemoryStorage(), TestLog())
        let provider = try server.provider(storage: storage, log: log)
        let first = try await provider.getCertificate(NoUserInteraction())
        #expect(log.warnings.isEmpty)
        let second = try await provider.getCertificate(NoUserInteraction())
        #expect(first.certificate != second.certificate)
        #expect(try provider.getStoredCertificate()?.certificate == second.certificate)
        let enrolments = try enrolments(server)
        #expect(enrolments.map { $0["operation"] as? String } == ["simpleenroll", "simpleenroll"])
        #expect(enrolments.allSatisfy { $0["client_certificate"] is NSNull && $0["user"] as? String == ESTServer.user })
        #expect(log.warnings.count == 1 && log.warnings[0].contains("current certificate was shown"))
        // Until the server takes it, each renewal goes this way.
        _ = try await provider.getCertificate(NoUserInteraction())
        #expect(server.issued == 3)
    }

    @Test(
        "If the server refuses the current certificate, a token or Digest password renews",
        arguments: [
            ("digest", [:]), ("bearer", ["username": "", "password-source": "", "bearer-source": "env:TOKEN"]),
            (
                "oauth",
                ["username": "", "password-source": "", "client-id": "estclient", "client-secret-source": "env:SECRET"]
            ),
        ])
    func soDoOtherCredentials(scheme: String, settings: [String: String]) async throws {
        let server = try await ESTServer.start("--auth", scheme, "--refuse-clients", "unknown-ca")
        var settings = settings
        if scheme == "oauth" { settings["token-url"] = "https://localhost:\(server.port)/token" }
        let provider = try server.provider(storage: InMemoryStorage(), settings)
        _ = try await provider.getCertificate(NoUserInteraction())
        _ = try await provider.getCertificate(NoUserInteraction())
        #expect(try enrolments(server).map { $0["operation"] as? String } == ["simpleenroll", "simpleenroll"])
    }

    /// The usual reason: the server has dropped the root that the clients' certificates are from.
    @Test("A renewal by password succeeds after the server has changed its root", arguments: ["1.2", "1.3"])
    func theServerMayHaveAnotherRootByThen(version: String) async throws {
        let server = try await ESTServer.start("--auth", "basic", "--refuse-clients", "unknown-ca", "--tls", version)
        let provider = try server.provider(storage: InMemoryStorage())
        try server.verify(try await provider.getCertificate(NoUserInteraction()))
        try server.rollOver()
        try server.verify(try await provider.getCertificate(NoUserInteraction()), by: "new-ca.pem")
        #expect(try enrolments(server).map { $0["operation"] as? String } == ["simpleenroll", "simpleenroll"])
    }

    @Test("A renewal by password waits for a pending decision")
    func aDecisionIsWaitedFor() async throws {
        let server = try await ESTServer.start("--auth", "basic", "--refuse-clients", "close-notify", "--pending", "2")
        let provider = try server.provider(storage: InMemoryStorage())
        _ = try await provider.getCertificate(NoUserInteraction())
        _ = try await provider.getCertificate(NoUserInteraction())
        let keys = try server.requests().compactMap { $0["csr_key_sha256"] as? String }
        #expect(server.issued == 2 && Set(keys).count == 2)
    }

    /// As for the first enrolment, where that was made with both.
    @Test("A renewal by password also presents the configured client certificate")
    func theClientCertificateGoesAlong() async throws {
        let server = try ESTResponder([.certificate, .basic], .init(refusesOwnClients: true))
        let (certificate, key) = (server.directory["manufacturer.pem"], server.directory["manufacturer.key"])
        chmod(key, 0o600)
        let provider = try server.provider(
            storage: InMemoryStorage(), ["client-certificate": certificate, "client-key-source": "file:\(key)"])
        _ = try await provider.getCertificate(NoUserInteraction())
        _ = try await provider.getCertificate(NoUserInteraction())
        let subjects = server.requests.filter { $0.serial != nil }.map { $0.clientCertificate ?? "" }
        #expect(subjects.count == 2 && subjects.allSatisfy { $0.contains("Device") }, "\(subjects)")
    }

    /// In the handshake, or by HTTP: nginx answers 400 to everything after it has completed the handshake.
    @Test(
        "If the server refuses the current certificate, the device certificate renews",
        arguments: [nil, 400, 401, 403], ["1.2", "1.3"])
    func theDeviceCertificateRenewsInstead(status: Int?, version: String) async throws {
        let server = try ESTResponder(
            .certificate, .init(tls: version, refusesOwnClients: status == nil, ownClientStatus: status))
        let log = TestLog()
        let provider = try server.provider(storage: InMemoryStorage(), Self.device(server), log: log)
        let first = try await provider.getCertificate(NoUserInteraction())
        let second = try await provider.getCertificate(NoUserInteraction())
        #expect(first.certificate != second.certificate && server.issued == 2)
        let enrolments = server.requests.filter { $0.serial != nil }
        #expect(enrolments.allSatisfy { $0.operation == .simpleenroll })
        #expect(enrolments.allSatisfy { $0.clientCertificate?.contains("Device") == true }, "\(enrolments)")
        #expect(log.warnings.count == 1 && log.warnings[0].contains("current certificate was shown"))
    }

    @Test("If HTTP refuses the current certificate, the password renews", arguments: [400, 403])
    func thePasswordRenewsAfterAStatus(status: Int) async throws {
        let server = try ESTResponder(.basic, .init(ownClientStatus: status))
        let provider = try server.provider(storage: InMemoryStorage())
        _ = try await provider.getCertificate(NoUserInteraction())
        _ = try await provider.getCertificate(NoUserInteraction())
        let enrolments = server.requests.filter { $0.serial != nil }
        #expect(enrolments.map(\.operation) == [.simpleenroll, .simpleenroll])
        #expect(enrolments.allSatisfy { $0.clientCertificate == nil && $0.user == ESTServer.user })
    }

    @Test("A password that went along with a refused renewal is not sent again", arguments: [400, 403])
    func aPasswordThatWentAlongIsSentOnce(status: Int) async throws {
        let server = try ESTResponder([.certificate, .basic])
        let settings = Self.device(server).merging(
            ["username": ESTServer.user, "password-source": "env:PASSWORD"]
        ) { $1 }
        let storage = OneIdentity()
        _ = try await server.provider(storage: storage, settings).getCertificate(NoUserInteraction())
        let before = server.requests.count
        let provider = try server.provider(storage: storage, label: "fault-status-\(status)", settings)
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .rejected)
        let sent = server.requests.dropFirst(before).filter { $0.authorization == "Basic" }
        #expect(sent.map(\.operation) == [.simplereenroll])
    }

    @Test("A device certificate that is refused as well is shown once")
    func theDeviceCertificateIsShownOnce() async throws {
        let server = try ESTResponder(.certificate, .init(ownClientStatus: 401))
        let storage = InMemoryStorage()
        let first = try await server.provider(storage: storage, Self.device(server)).getCertificate(NoUserInteraction())
        let before = server.requests.count
        let provider = try server.provider(storage: storage, label: "fault-status-401", Self.device(server))
        // The label is part of the name of the stored entry.
        _ = try storage.entry(named: server.provider(Self.device(server)).plan.storageName).map {
            try storage.setEntry($0, named: provider.plan.storageName)
        }
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .rejected)
        let asked = server.requests.dropFirst(before).filter { $0.operation?.enrols == true }
        #expect(asked.map(\.operation) == [.simplereenroll, .simpleenroll])
        #expect(try provider.getStoredCertificate()?.certificate == first.certificate)
    }

    @Test("If there is nothing else to authenticate with, the error names the refusal and what is missing")
    func anExpiredDeviceCertificateIsNamed() async throws {
        let server = try ESTResponder(.certificate, .init(ownClientStatus: 400))
        let storage = InMemoryStorage()
        _ = try await server.provider(storage: storage, Self.device(server)).getCertificate(NoUserInteraction())
        let expired = try CertifiedKey(
            "expired", key: .generate(.p256, location: .file), notAfter: Date(timeIntervalSinceNow: -60))
        try OpenSSLCommand.write(expired, "expired", to: server.directory)
        chmod(server.directory["expired.key"], 0o600)
        let provider = try server.provider(storage: storage, Self.device(server, "expired"))
        let error = await #expect(throws: ProviderError.self) {
            try await provider.getCertificate(NoUserInteraction())
        }
        #expect(error?.code == .rejected && error?.nativeCode == 400, "\(String(describing: error))")
        let message = error?.message ?? ""
        #expect(message.contains("with the status 400") && message.contains("is not possible either"), "\(message)")
        #expect(message.contains("'client-certificate'") && server.issued == 1, "\(message)")
    }

    private static func device(_ server: ESTResponder, _ name: String = "manufacturer") -> [String: String] {
        let key = server.directory["\(name).key"]
        chmod(key, 0o600)
        return [
            "username": "", "password-source": "", "client-certificate": server.directory["\(name).pem"],
            "client-key-source": "file:\(key)",
        ]
    }

    /// A password may be enough.
    @Test(arguments: ["nothing", "expired"])
    func aClientCertificateThatCannotBeUsedIsLeftOut(name: String) async throws {
        let server = try ESTResponder(.basic, .init(refusesOwnClients: true))
        let (storage, log) = (InMemoryStorage(), TestLog())
        _ = try await server.provider(storage: storage).getCertificate(NoUserInteraction())
        let expired = try CertifiedKey(
            "expired", key: .generate(.p256, location: .file), notAfter: Date(timeIntervalSinceNow: -60))
        try OpenSSLCommand.write(expired, "expired", to: server.directory)
        chmod(server.directory["expired.key"], 0o600)
        let provider = try server.provider(
            storage: storage,
            [
                "client-certificate": server.directory["\(name).pem"],
                "client-key-source": "file:\(server.directory["\(name).key"])",
            ], log: log)
        _ = try await provider.getCertificate(NoUserInteraction())
        #expect(server.issued == 2)
        #expect(log.warnings.contains { $0.contains("client-certificate") }, "\(log.warnings)")
    }

    /// A connection that ends before the certificate was sent does not refuse it: a server may not wait for a slow token.
    @Test(
        "A connection lost while the client signs does not count as a refused certificate",
        arguments: ["-tls1_2", "-tls1_3"])
    func anEndDuringOurSignatureIsNoRefusal(version: String) async throws {
        let authority = try TestAuthority()
        let (shown, own) = (try authority.issue("server"), try authority.issue("client"))
        let server = try DemandingServer(shown, version)
        let slow = TestKey(own.key) { [process = server.process] _, _ throws(ProviderError) in
            process.stop()
            // Until the task is cancelled.
            for await _ in AsyncStream<Never>.makeStream().stream {}
            throw ProviderError(.userCancelled, "cancelled")
        }
        let session = server.session(presenting: try TLSCredentials(own.with(slow)))
        let error = await #expect(throws: ProviderError.self) {
            try await session.connect(before: .now() + .seconds(600))
        }
        #expect(error?.code == .unavailable && error?.reason == nil, "\(String(describing: error))")
    }

    @Test func aPersonTypesThePasswordOnce() async throws {
        let server = try ESTResponder(.basic, .init(refusesOwnClients: true))
        let provider = try server.provider(storage: InMemoryStorage(), ["password-source": "prompt"])
        let person = Person(ESTServer.password)
        _ = try await provider.getCertificate(person)
        _ = try await provider.getCertificate(person)
        #expect(person.questions.count == 2 && server.issued == 2)
    }

    /// Other than with TLS 1.3, the alert always arrives.
    @Test("Without a usable password, the error names the refused certificate", arguments: ["none", "file", "prompt"])
    func withoutAPasswordItStaysRefused(source: String) async throws {
        let server = try await ESTServer.start("--auth", "none", "--refuse-clients", "unknown-ca", "--tls", "1.2")
        let storage = InMemoryStorage()
        let password = server.directory["password"]
        let settings = ["username": "", "password-source": ""]
        let first = try await server.provider(storage: storage, settings).getCertificate(NoUserInteraction())
        let gone = ["password-source": source == "file" ? "file:\(password)" : "prompt"]
        let provider = try server.provider(storage: storage, source == "none" ? settings : gone)
        let error = await #expect(throws: ProviderError.self) {
            try await provider.getCertificate(NoUserInteraction())
        }
        #expect(error?.code == .rejected && error?.nativeCode == 48, "\(String(describing: error))")
        #expect(error?.message.contains("'CN=client,O=Example'") == true, "\(String(describing: error))")
        if source == "file" { #expect(error?.message.contains(password) == true, "\(String(describing: error))") }
        #expect(try provider.getStoredCertificate()?.certificate == first.certificate)
        #expect(server.issued == 1)
    }

    @Test func aWrongPasswordIsSentOnce() async throws {
        let server = try ESTResponder(.basic, .init(refusesOwnClients: true))
        let storage = InMemoryStorage()
        let first = try await server.provider(storage: storage).getCertificate(NoUserInteraction())
        let before = server.requests.count
        let provider = try server.provider(storage: storage, variables: ["PASSWORD": "wrong"])
        let error = await #expect(throws: ProviderError.self) {
            try await provider.getCertificate(NoUserInteraction())
        }
        #expect(error?.code == .rejected && error?.nativeCode == 401, "\(String(describing: error))")
        let sent = server.requests.dropFirst(before).filter { $0.authorization == "Basic" }
        #expect(sent.count == 1)
        #expect(try provider.getStoredCertificate()?.certificate == first.certificate)
    }

    @Test(arguments: ["1.2", "1.3"]) func aServerThatIsNotTrustedGetsNothing(version: String) async throws {
        let server = try ESTResponder(.basic)
        let stranger = try ESTResponder(.basic, .init(tls: version, refusesOwnClients: true))
        let (storage, log) = (OneIdentity(), TestLog())
        _ = try await server.provider(storage: storage).getCertificate(NoUserInteraction())
        let anchors = ["trust-anchors": server.directory["ca.pem"]]
        let provider = try stranger.provider(storage: storage, anchors, log: log)
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .serverNotTrusted)
        #expect(stranger.requests.isEmpty)
        #expect(log.warnings.isEmpty)
    }

    /// It is about something else: a password was sent, or there is no answer, which may be the first one of a connection.
    @Test(arguments: ["status-401", "close-after-request", "csrattrs-no-keep-alive+close-after-request"])
    func anAnswerOfHTTPIsNoRefusalOfTheCertificate(fault: String) async throws {
        let server = try ESTResponder(.basic)
        let (storage, log) = (OneIdentity(), TestLog())
        _ = try await server.provider(storage: storage).getCertificate(NoUserInteraction())
        let before = server.requests.count
        let provider = try server.provider(storage: storage, label: "fault-\(fault)", log: log)
        let code = await code { _ = try await provider.getCertificate(NoUserInteraction()) }
        #expect(code == (fault == "status-401" ? .rejected : .unavailable))
        #expect(!server.requests.dropFirst(before).contains { $0.operation == .simpleenroll })
        #expect(log.warnings.isEmpty)
    }

    @Test(
        "If the TLS server refuses the current certificate, the SCEP challenge enrols anew",
        arguments: ["there", "gone", "refused"])
    func aChallengeIsForSCEP(challenge: String) async throws {
        let web = try TestAuthority("Web")
        let folder = try TemporaryDirectory()
        let authority = try CertifiedKey.authority.get().certificate
        try folder.write((web.root.pemRepresentation + authority.pemRepresentation).utf8, to: "both.pem")
        try folder.write(SCEPServer.challenge.utf8, to: "challenge")
        let responder = try SCEPResponder()
        let server = try await SCEPHTTPServer(responder, showing: web.issue("web"), accepting: web.root)
        let parameters = [
            "protocol": "scep", "url": server.url, "challenge-source": "file:\(folder["challenge"])",
            "trust-anchors": folder["both.pem"], "subject": "CN=client,O=Example", "timeout": "600",
        ]
        let provider = try RemoteMDMProvider.make(
            environment: .testing(transport: Transport(retryPolicy: TurnedClock().retryPolicy)),
            parameters: ProviderParameters(parameters.mapValues { .init($0) }))
        let first = try await provider.getCertificate(NoUserInteraction())
        if challenge == "refused" {
            responder.behave(.init(failInfo: "2"))
            let error = await #expect(throws: ProviderError.self) {
                try await provider.getCertificate(NoUserInteraction())
            }
            #expect(error?.code == .rejected && responder.received.count == 2)
            #expect(error?.message.hasPrefix("The SCEP server refused the request, with badRequest") == true)
            return
        }
        if challenge == "gone" {
            try FileManager.default.removeItem(atPath: folder["challenge"])
            let code = await code { _ = try await provider.getCertificate(NoUserInteraction()) }
            #expect(code == .rejected || code == .unavailable)
            #expect(responder.received.count == 1)
            #expect(try provider.getStoredCertificate()?.certificate == first.certificate)
            return
        }
        _ = try await provider.getCertificate(NoUserInteraction())
        // First enrolments both, the second not signed by the certificate that was refused.
        #expect(responder.received.map(\.type) == ["19", "19"])
        #expect(responder.received.last?.certificate != first.certificate.derRepresentation)
    }
}
