import CertificateProviding
import Foundation
import Hummingbird
import Logging
import ProviderTransport

/// The parts of the relying party, and how requests reach them.
struct RelyingParty: Sendable {
    private let login: LoginController
    private let documents: DocumentController
    private let signatures: SignatureController

    /// - Throws: `configurationInvalid`; `storeWriteFailed` for the directory of ``BoundKeys``.
    init(
        _ configuration: RelyingPartyConfiguration, logger: Logger, transport: Transport = Transport(),
        now: @escaping @Sendable () -> Date = { Date() }
    ) throws(ProviderError) {
        let calls = ServerCalls(
            trust: configuration.trust, timeout: configuration.timeout, transport: transport, now: now)
        let tokens = AccessTokens(now: now)
        let hashes = GivenHashes(limit: configuration.documentsPerUser, now: now)
        let keys = try BoundKeys(directory: configuration.state)
        let authorization = DocumentAuthorization(configuration.clientID, configuration.clientSecret)
        login = LoginController(
            provider: try OpenIDProvider(configuration, calls, now: now),
            authorizations: OutstandingAuthorizations(limit: configuration.logins, now: now), tokens: tokens,
            logger: logger)
        documents = DocumentController(tokens: tokens, hashes: hashes, authorization: authorization)
        signatures = SignatureController(
            tokens: tokens, hashes: hashes, authorization: authorization, keys: keys,
            verifier: try Verifier(configuration, calls, logger: logger, now: now), logger: logger)
    }

    func router() -> Router<BasicRequestContext> {
        let router = Router(context: BasicRequestContext.self)
        router.add(middleware: ErrorMiddleware())
        login.addRoutes(to: router)
        documents.addRoutes(to: router)
        signatures.addRoutes(to: router)
        return router
    }
}
