import CertificateProviderTesting
import CertificateProviding
import Enrolment
import Foundation
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
        #expect(enrolment.isPassed && enrolment.results.count == 13, "\(enrolment)")

        let provider = try RemoteMDMProvider.make(
            environment: environment(storage, tokenStorage), parameters: parameters)
        _ = try await provider.getCertificate(NoUserInteraction())
        let token = await ProviderConformance(
            PKCS11TokenProvider.descriptor,
            ProviderParameters([
                "uri": .init(place.replacing("?", with: ";object=conformance?")), "pin-source": .init("env:PIN"),
            ]), secrets: [EmptyTokens.pin]
        ) { environment(InMemoryStorage(), tokenStorage) }.run()
        #expect(token.isPassed && token.results.count == 13, "\(token)")
        try provider.deleteStoredCertificate()
        await provider.shutdown()
    }
}
