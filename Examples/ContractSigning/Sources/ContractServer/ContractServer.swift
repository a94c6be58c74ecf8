import Foundation
import Hummingbird
import HummingbirdCore
import Logging
import NIOCore

/// The parts of the server, and how requests reach them.
struct ContractServer: Sendable {
    /// Others wait. A process has 1,024 file descriptors where nothing else is set: the database and the notifier need some.
    static let maximumConnections = 512

    let book: ContractBook
    let registry: HostRegistry
    let authority: CertificateAuthority
    let seeds: Seeds
    let notifier: (any CodeNotifying)?
    /// Of a host's certificate, in seconds.
    let certificateLifetime: TimeInterval
    let logger: Logger

    /// For hosts and back offices.
    func router(certificates: any ClientCertificates = TLSClientCertificates()) -> Router<ServerContext> {
        let router = Router(context: ServerContext.self)
        router.add(middleware: ErrorMiddleware())
        let authentication = HostAuthentication(registry: registry, certificates: certificates)
        EnrolmentController(
            registry: registry, authority: authority, authentication: authentication, lifetime: certificateLifetime
        ).addRoutes(to: router)
        HostsController(book: book, authentication: authentication, notifier: notifier).addRoutes(to: router)
        OfficeController(seeds: seeds, registry: registry, book: book).addRoutes(to: router)
        return router
    }

    /// For a person at this machine.
    func pageRouter() throws -> Router<ServerContext> {
        let router = Router(context: ServerContext.self)
        router.add(middleware: ErrorMiddleware())
        try ContractsPage(book).addRoutes(to: router)
        return router
    }

    func application(
        _ router: Router<ServerContext>, at address: BindAddress, server: HTTPServerBuilder,
        onRunning: @escaping @Sendable (any Channel) async -> Void = { _ in }
    ) -> Application<RouterResponder<ServerContext>> {
        Application(
            router: router, server: server,
            configuration: .init(
                address: address,
                availableConnectionsDelegate: .maximum(Self.maximumConnections, logger: logger)),
            onServerRunning: onRunning, logger: logger)
    }
}

extension HTTP1Channel.Configuration {
    static let contracts = Self(
        additionalChannelHandlers: [ConnectionLimits()], idleTimeout: .seconds(60),
        httpDecoderConfiguration: .init(
            maxHeaderFieldSize: 16 * 1024, maxHeaderListSize: 32 * 1024, maxHeaderFieldCount: 100))
}
