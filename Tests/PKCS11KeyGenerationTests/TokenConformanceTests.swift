import CertificateProviderTesting
import CertificateProviding
import Enrolment
import Foundation
import PEMFileProvider
import PKCS11TokenProvider
import RemoteMDMProvider
import TestSupport
import Testing

/// The contracts of key stores and providers, on a token and with enrolment into it. The same suites run through the plugin
/// protocol in `EndToEndTests`.
@Suite(.serialized, .timeLimit(.minutes(20))) struct TokenConformanceTests {
    private let tokens: EmptyTokens
    private let place: String

    init() throws {
        tokens = try EmptyTokens.shared.get()
        place = "pkcs11:token=\(EmptyTokens.Name.conformance.rawValue)?module-path=\(tokens.module)"
    }

    private func environment(_ storage: InMemoryStorage, _ tokenStorage: InMemoryStorage) -> ProviderEnvironment {
        .testing(
            storage: storage, variables: ["PIN": EmptyTokens.pin, "PASSWORD": ESTServer.password],
            keyStores: [(TokenKeyStore.descriptor, tokenStorage)])
    }

    @Test func theTokenAsAKeyStore() async throws {
        let (storage, tokenStorage) = (InMemoryStorage(), InMemoryStorage())
        let report = await KeyStoreConformance {
            try environment(storage, tokenStorage).keyStores.store(place, pinSource: SecretSource("env:PIN"))
        }.run()
        #expect(report.isPassed && report.results.count > 6, "\(report)")
    }

    @Test("A key in the token and its certificate in a file are an identity, found by the public key")
    func aCertificateInAFile() async throws {
        let (storage, tokenStorage) = (InMemoryStorage(), InMemoryStorage())
        let store = try environment(storage, tokenStorage).keyStores.store(place, pinSource: SecretSource("env:PIN"))
        let (directory, authority) = (try TemporaryDirectory(), try TestAuthority())
        for type in [KeyType.p256, .rsa2048] {
            let keys = [
                try await store.make(NewKey(type, label: "web"), NoUserInteraction()) { _ in },
                try await store.make(NewKey(type, label: "other"), NoUserInteraction()) { _ in },
            ]
            let leaf = try authority.certify(keys[0].publicKey.derRepresentation, as: "web")
            let chain = [authority.root, authority.intermediate, leaf].map(\.pemRepresentation).joined()
            let path = try directory.write(Array(chain.utf8), to: "web.pem", mode: 0o644)
            let parameters = ProviderParameters(
                ["certificate": path, "key": place, "key-pin-source": "env:PIN"].mapValues { .init($0) })
            let report = await ProviderConformance(PEMFileProvider.descriptor, parameters, secrets: [EmptyTokens.pin]) {
                environment(storage, tokenStorage)
            }.run()
            #expect(report.isPassed && report.results.count > 8, "\(report)")

            let provider = try PEMFileProvider.descriptor.makeProvider(environment(storage, tokenStorage), parameters)
            _ = try await provider.getCertificate(NoUserInteraction())
            let identity = try #require(try provider.getStoredCertificate())
            #expect(identity.certificateChain == [leaf, authority.intermediate] && identity.key.location == .token)
            let renewed = try authority.certify(keys[1].publicKey.derRepresentation, as: "renewed")
            try directory.write(Array(renewed.pemRepresentation.utf8), to: "web.pem")
            #expect(try await provider.getCertificate(NoUserInteraction()).certificate == renewed)
            try directory.write(
                Array(try authority.issue("elsewhere").certificate.pemRepresentation.utf8), to: "web.pem")
            #expect(await code { try await provider.getCertificate(NoUserInteraction()) } == .pending)
            await provider.shutdown()
            // The rest of a replacement has a minute to follow.
            var later = environment(storage, tokenStorage)
            later.now = { Date() + 90 }
            let settled = try PEMFileProvider.descriptor.makeProvider(later, parameters)
            #expect(await code { try await settled.getCertificate(NoUserInteraction()) } == .keyMismatch)
            await settled.shutdown()
            for key in keys { try await store.destroy(store.reference(to: key), NoUserInteraction()) }
        }
        await store.shutdown()
    }

    /// The engine, with a server that does not exist.
    @Test func anInventedServersIdentityInTheToken() async throws {
        let server = try InventedServer()
        let (storage, tokenStorage) = (InMemoryStorage(), InMemoryStorage())
        var environment = environment(storage, tokenStorage)
        environment.secrets = SecretReader { ["PIN": EmptyTokens.pin, "PASS": "open sesame"][$0] }
        environment.keyStores =
            ProviderEnvironment.testing(
                variables: ["PIN": EmptyTokens.pin], keyStores: [(TokenKeyStore.descriptor, tokenStorage)]
            ).keyStores
        let before = try tokens.count(.conformance)
        try await server.checkEnrolment(in: environment, key: place, pinSource: "env:PIN")
        // The issuer's certificate may be others' issuer too.
        #expect(try tokens.count(.conformance) - before <= 1)
    }

    /// Its identity is enrolled into the token, and then found there.
    @Test func enrolmentIntoTheTokenAndTheToken() async throws {
        let server = try await ESTServer.start(["--auth", "basic"])
        let (storage, tokenStorage) = (InMemoryStorage(), InMemoryStorage())
        let parameters = ProviderParameters(
            [
                "protocol": "est", "url": "https://localhost:\(server.port)/",
                "trust-anchors": server.directory["ca.pem"],
                "username": ESTServer.user, "password-source": "env:PASSWORD", "subject": "CN=conformance",
                "timeout": "600", "key": place, "key-pin-source": "env:PIN",
            ].mapValues { ProviderParameters.Value($0) })
        let enrolment = await ProviderConformance(
            RemoteMDMProvider.descriptor, parameters, secrets: [EmptyTokens.pin, ESTServer.password]
        ) { environment(storage, tokenStorage) }.run()
        #expect(enrolment.isPassed && enrolment.results.count == 14, "\(enrolment)")

        let provider = try RemoteMDMProvider.make(
            environment: environment(storage, tokenStorage), parameters: parameters)
        _ = try await provider.getCertificate(NoUserInteraction())
        let token = await ProviderConformance(
            PKCS11TokenProvider.descriptor,
            ProviderParameters([
                "uri": .init(place.replacing("?", with: ";object=conformance?")), "pin-source": .init("env:PIN"),
            ]), secrets: [EmptyTokens.pin]
        ) { environment(InMemoryStorage(), tokenStorage) }.run()
        #expect(token.isPassed && token.results.count == 14, "\(token)")
        try provider.deleteStoredCertificate()
        await provider.shutdown()
    }
}
